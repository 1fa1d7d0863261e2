"""The tables and figures of the papers, as experiments that anybody can run: rows, columns, seeds, claims, and a page."""
