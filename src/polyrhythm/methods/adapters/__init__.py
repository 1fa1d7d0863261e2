"""What becomes of low-rank adapters: how their factors are averaged, and which of them is trained when."""
