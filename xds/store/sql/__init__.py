"""The store in SQL, one text for SQLite (3.35 or newer) and PostgreSQL.

``store`` has the calls, and a ``worker``, which is their thread. The statements are in ``ledger`` (commits),
``content_rows``, ``blob_rows``, ``audit_rows``, ``observed_rows``, ``record_rows`` (backups) and ``collection``
(deletion of old content); ``sequences`` are the counters that never go back. They run on a ``connection`` in the
transaction of their caller. ``tables`` are the tables.
"""
