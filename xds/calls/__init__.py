"""Calls of the admin API: as values without I/O, how to reach a server, the senders, and errors.

The client library and the command line send with it.
"""
