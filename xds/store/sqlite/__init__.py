"""The SQLite engine, in a file or in ``memory``.

``engine`` is the store. ``database`` is one connection and its failures, ``schema`` the settings and migrations,
``pages`` the space in the file, ``files`` the files on disk, ``directory_lock`` keeps a second server away.
``examination`` finds what of a damaged file is intact.
"""
