"""Durable desired state: one contract (``base``), two engines (``engines.open_store`` opens one).

``records`` are the lines of a backup, ``retention`` says what is kept and for how long, ``audit_entries`` what was
written and by whom. ``revisions`` is the arithmetic that the engines share; ``rank`` keeps the order of a group's
resources in a table; ``feed`` notifies the watchers in the process. ``memory`` is the reference engine, ``sqlite`` the
default.
"""
