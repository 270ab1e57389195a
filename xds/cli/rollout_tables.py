"""The progress of a push by type, and the revisions of a group, as tables."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from xds.cli.table import Column, Style, TableLayout, history_layout, rendered

Json = dict[str, Any]


def what(item: Json) -> str:
    """The kind of a revision, and whether it was undone or rejected, or is a line of a careful rollout."""
    kinds = {"rollback": f"rollback to {item['content_of']}", "restore": "restore"}
    kind = "endpoints" if item["kind"] == "push" and item["endpoints_only"] else kinds.get(item["kind"], item["kind"])
    outcomes = [
        f"rejected by {item['refused']} of {item['nodes']}" if item["refused"] else "",
        f"undone by {item['undone_by']}" if item["undone_by"] else "",
        f"{item['line']} of the rollout" if item.get("line") else "",
    ]
    notes = ", ".join(filter(None, outcomes))
    return f"{kind} ({notes})" if notes else str(kind)


HISTORY = history_layout(
    what, Column("RESOURCES", lambda item: "deleted" if item["deleted"] else str(item["resources"]))
)

STATUS = TableLayout(
    name="type",
    columns=(
        Column("TYPE", "type"),
        Column("SYNCED", "synced"),
        Column("PENDING", "pending", lambda item: "warn" if item["pending"] else ""),
        Column("NACKED", "nacked", lambda item: "bad" if item["nacked"] else ""),
        Column("NOT_SUBSCRIBED", "not_subscribed"),
    ),
)
_AT_BASE = Column("AT_BASE", lambda item: str(item.get("at_base", 0)))


def types_table(status: Json, style: Style) -> str:
    """The progress type by type; while a careful rollout changes some of them, with the nodes at its base."""
    types = status["types"]
    is_split = any("at_base" in counts for counts in types.values())
    layout = replace(STATUS, columns=(*STATUS.columns, _AT_BASE)) if is_split else STATUS
    return rendered(({"type": type, **counts} for type, counts in types.items()), layout, style)
