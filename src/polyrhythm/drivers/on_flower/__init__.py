"""Flower carries the messages of a real federation: its server app and its client app, from an experiment.

Importing this imports flwr, which the extra `polyrhythm[flower]` installs.
"""

from polyrhythm.drivers.on_flower.apps import client_app, server_app
from polyrhythm.drivers.on_flower.mods import mod

__all__ = ["client_app", "mod", "server_app"]
