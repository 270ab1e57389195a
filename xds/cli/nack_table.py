"""NACKs as tables: one row each, or equal ones of different nodes together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xds.cli.lingering import some
from xds.cli.table import Column, TableLayout
from xds.model.natural_order import natural_key

Json = dict[str, Any]

NODES_NAMED = 3

NACKS = TableLayout(
    name=lambda record: str(record["node"]),
    columns=(
        Column("LAST", lambda record: record["last"], is_time=True),
        Column("NODE", lambda record: record["node"]),
        Column("GROUP", lambda record: record["group"]),
        Column("TYPE", lambda record: record["type"]),
        Column("VERSION", lambda record: record["version"]),
        Column("COUNT", lambda record: str(record["count"])),
        Column("STATE", lambda record: record["state"], lambda item: "bad" if item["state"] == "open" else "dim"),
        Column("REFUSED", lambda record: some(record["guilty"], len(record["guilty"]))),
        Column("FIRST", lambda record: record["first"], is_time=True, is_wide=True),
        Column("NONCE", lambda record: record["nonce"], is_wide=True),
        Column("NAMES", lambda record: ",".join(record["names"]), is_wide=True, is_prose=True),
        Column("MESSAGE", lambda record: record["message"], is_prose=True),
    ),
)


def _refused(item: Json) -> str:
    """The rejected resources; as long as they are not known, how many may be meant."""
    if item["guilty"]:
        return some(item["guilty"], len(item["guilty"]))
    return str(item["names"][0]) if item["resources"] == 1 and item["names"] else f"one of {item['resources']}"


ALIKE = TableLayout(
    name=lambda item: str(item["node"]),
    columns=(
        Column("LAST", lambda item: item["last"], is_time=True),
        Column("REFUSED", _refused),
        Column("TYPE", lambda item: item["type"]),
        Column("GROUP", lambda item: item["group"]),
        Column("NODES", lambda item: some(item["nodes"][:NODES_NAMED], len(item["nodes"]))),
        Column("COUNT", lambda item: str(item["count"])),
        Column("STATE", lambda item: item["state"], lambda item: "bad" if item["state"] == "open" else "dim"),
        Column("MESSAGE", lambda item: item["message"], is_prose=True),
    ),
)


def alike(records: Iterable[Json]) -> list[Json]:
    """Equal NACKs of different nodes as one: the latest record with all ``nodes`` and the sum of the counts.

    Those whose rejected resources are known come first, then those of the most nodes, then the latest.
    """
    found: dict[tuple[object, ...], Json] = {}
    for record in records:
        key = (record["type"], record["group"], record["state"], record["message"], tuple(record["guilty"]))
        if key not in found:
            found[key] = {**record, "nodes": [record["node"]]}
            continue
        same = found[key]
        same["nodes"].append(record["node"])
        same["count"] += record["count"]
        same["last"] = max(same["last"], record["last"])
    for same in found.values():
        same["nodes"] = sorted(set(same["nodes"]), key=natural_key)
    latest_first = sorted(found.values(), key=lambda same: str(same["last"]), reverse=True)
    return sorted(latest_first, key=lambda same: (same["state"] != "open", not same["guilty"], -len(same["nodes"])))
