"""What is a client's own: the part of the model that it shares with nobody, and the model that it uses in the end."""
