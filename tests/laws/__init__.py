"""Equalities and invariants of whole federated runs, each with mutants that break it."""
