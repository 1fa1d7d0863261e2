"""One file per way to train a part of the model."""
