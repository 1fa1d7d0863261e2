"""How fast a run is, beside the same work written by hand in plain PyTorch."""
