"""How local steps are computed. Engines do arithmetic and decide nothing."""
