"""Differential privacy of clients: what each part does to it, and what that comes to."""
