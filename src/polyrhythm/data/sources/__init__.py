"""Where data comes from: one file for each family of sources, each returning a `Collection`."""
