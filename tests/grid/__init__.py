"""Every combination of the parts that is not refused runs."""
