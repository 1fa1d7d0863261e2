"""The two pure cores: `client.work` and `server.receive`."""
