"""How much does a client do, or what is sent instead?"""
