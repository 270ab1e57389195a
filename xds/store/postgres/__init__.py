"""The PostgreSQL engine: a database that a team runs already.

``engine`` is the store. ``database`` is its connection with transactions and lost answers, ``connection`` connects and
runs the statements of `xds.store.sql`, ``failures`` are the errors, ``schema`` the tables, ``listener`` tells of the
commits of all servers.
"""
