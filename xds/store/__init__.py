"""Durable desired state: one contract (``base``); ``engines.open_store`` opens a store.

``records`` are the lines of a backup, ``retention`` are the rules of deletion, ``audit_entries`` is the audit list.
``revisions`` is the arithmetic of revisions; ``rank`` keeps the order of a group's resources in a table;
``feed`` notifies the watchers in the process. ``sql`` is the store in SQL; ``sqlite`` and ``postgres`` are its engines.
"""
