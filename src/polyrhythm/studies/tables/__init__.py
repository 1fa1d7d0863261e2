"""The tables and figures of the papers as experiments that anybody can run, each with a page beside its numbers."""
