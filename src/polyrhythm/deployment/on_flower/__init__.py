"""Flower carries the messages of a real federation: its server app and its client app, from an experiment.

Importing this imports flwr, which the extra `polyrhythm[flower]` installs.
"""

from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from polyrhythm.deployment.on_flower.apps import client_app, server_app
from polyrhythm.deployment.on_flower.mods import mod

__all__ = ["ClientApp", "Context", "ServerApp", "client_app", "mod", "server_app"]
