"""Sums of updates of which the server sees no single one: the protocol, its graph, numbers in it, and the part."""
