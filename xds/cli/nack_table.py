"""NACKs as tables: one row for each, or one row for equal NACKs of several nodes."""

from __future__ import annotations

from typing import Any

from xds.cli.lingering import first_names
from xds.cli.table import Column, TableLayout

Json = dict[str, Any]

NODES_NAMED = 3

NACKS = TableLayout(
    name="node",
    columns=(
        Column("LAST", "last", is_time=True),
        Column("NODE", "node"),
        Column("GROUP", "group"),
        Column("TYPE", "type"),
        Column("VERSION", "version"),
        Column("COUNT", "count"),
        Column("STATE", "state", lambda item: "bad" if item["state"] == "open" else "dim"),
        Column("REFUSED", lambda record: first_names(record["guilty"], len(record["guilty"]))),
        Column("FIRST", "first", is_time=True, is_wide=True),
        Column("NONCE", "nonce", is_wide=True),
        Column("NAMES", lambda record: ",".join(record["names"]), is_wide=True, is_prose=True),
        Column("MESSAGE", "message", is_prose=True),
    ),
)


def _refused(item: Json) -> str:
    """The rejected resources; while they are unknown, the number of suspects."""
    if item["guilty"]:
        return first_names(item["guilty"], len(item["guilty"]))
    return str(item["names"][0]) if item["resources"] == 1 and item["names"] else f"one of {item['resources']}"


MERGED_NACKS = TableLayout(
    name="node",
    columns=(
        Column("LAST", "last", is_time=True),
        Column("REFUSED", _refused),
        Column("TYPE", "type"),
        Column("GROUP", "group"),
        Column("NODES", lambda item: first_names(item["nodes"][:NODES_NAMED], item["nodes_total"])),
        Column("COUNT", "count"),
        Column("STATE", "state", lambda item: "bad" if item["state"] == "open" else "dim"),
        Column("MESSAGE", "message", is_prose=True),
    ),
)
