"""The dashboard: the runs of a folder in a browser, while they train and afterwards.

It reads the run database and nothing else of a run, and it writes nothing but a request to stop and
labels, and both only where it may.
"""
