"""The SQLite engine.

``engine`` is the store: one thread that runs the calls as jobs. ``database`` is one connection and its failures,
``schema`` its tables, ``files`` its files on disk. The statements are in ``ledger`` (commits), ``content_rows``,
``audit_rows``, ``record_rows`` (backups) and ``collection`` (deletion of old content). ``examination``
finds what of a damaged file is intact.
"""
