"""When does the server step, and on what?"""
