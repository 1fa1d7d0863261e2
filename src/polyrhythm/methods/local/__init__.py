"""Local training: optimisers, and how their learning rate changes."""
