"""Durable desired state: one contract (``base``), two engines (``engines.open_store`` opens one).

``records`` are the lines of a backup, ``retention`` are the rules of deletion, ``audit_entries`` is the audit list.
``revisions`` is the arithmetic that the engines share; ``rank`` keeps the order of a group's resources in a table;
``feed`` notifies the watchers in the process. ``memory`` is the reference engine, ``sqlite`` the default.
"""
