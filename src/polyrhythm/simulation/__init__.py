"""I/O and time. Drivers carry out what the cores decide and decide nothing themselves."""
