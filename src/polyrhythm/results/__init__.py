"""Runs to look at."""
