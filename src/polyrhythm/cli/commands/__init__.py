"""Definitions of the commands beside those of `app`, one file per group."""
