"""One experiment: what it is, whether it can run, and its runs: new, resumed, verified, replayed, dry."""
