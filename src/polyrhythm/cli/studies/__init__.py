"""Studies on the command line: carried out, listed, checked, and the best setting so far."""
