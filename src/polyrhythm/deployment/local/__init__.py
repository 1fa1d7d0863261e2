"""A federation of Flower's on one machine: keys, a project, processes. Imports no flwr: it starts Flower's programs."""
