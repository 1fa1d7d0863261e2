"""Which samples does a client use, in which order?"""
