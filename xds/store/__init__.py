"""Durable desired state: one contract (``base``), several engines (``engines.open_store`` picks one).

``revisions`` is the arithmetic all engines share; ``feed`` is the in-process half of a watch. ``memory`` is the
reference engine. ``sqlite`` is the embedded default: an asyncio shell over ``worker`` (one thread), ``database`` (one
connection, its failures), ``ledger`` and ``entries`` (the statements), ``schema``, ``rank`` and ``directory``.
"""
