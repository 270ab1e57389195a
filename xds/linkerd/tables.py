"""The answers to the streams of a Linkerd proxy, as a table and as short texts."""

from __future__ import annotations

from typing import Any

from xds.cli.table import Column, TableLayout

Json = dict[str, Any]

VARIANT = "linkerd"


def answer_text(item: Json) -> str:
    """The last answer to a stream of a Linkerd proxy, as a short text."""
    if not item["is_known"]:
        return "awaited"
    if item["endpoints"]:
        return f"{item['endpoints']} endpoint{'s' if item['endpoints'] > 1 else ''}"
    if not item["exists"]:
        return "no such service"
    return "no endpoints" if item["endpoints"] is not None else "yes"


DESTINATIONS = TableLayout(
    name="authority",
    columns=(
        Column("METHOD", "method"),
        Column("DESTINATION", "authority"),
        Column("ANSWER", answer_text, lambda item: "" if item["is_known"] else "warn"),
        Column("SOURCE", "source"),
        Column("MESSAGES", "messages"),
        Column("LEFT OUT", lambda item: "; ".join(item["skipped"]), is_prose=True),
    ),
)


def streams_text(node: Json) -> str:
    """``2 Linkerd streams``; empty if the node has none."""
    number = sum(stream["variant"] == VARIANT for stream in node["streams"])
    return f"{number} Linkerd stream{'s' if number > 1 else ''}" if number else ""
