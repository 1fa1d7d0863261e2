"""What clients remember between their visits, in memory and in files."""
