"""Runs to look at: their records, tables, and figures."""

from polyrhythm.results.run import Comparison, Run, compare

__all__ = ["Comparison", "Run", "compare"]
