"""A real federation: the server, the nodes, and what travels between them."""
