"""What the streams of a Linkerd proxy were answered, as a table and in short."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xds.cli.table import Column, TableLayout

Json = dict[str, Any]

VARIANT = "linkerd"


def told(item: Json) -> str:
    """What a stream of a Linkerd proxy was answered, in short."""
    if not item["is_known"]:
        return "awaited"
    if item["endpoints"]:
        return f"{item['endpoints']} endpoint{'s' if item['endpoints'] > 1 else ''}"
    if not item["exists"]:
        return "nothing there"
    return "no endpoints" if item["endpoints"] is not None else "yes"


DESTINATIONS = TableLayout(
    name=lambda item: str(item["authority"]),
    columns=(
        Column("METHOD", lambda item: item["method"]),
        Column("DESTINATION", lambda item: item["authority"]),
        Column("ANSWER", told, lambda item: "" if item["is_known"] else "warn"),
        Column("SOURCE", lambda item: item["source"]),
        Column("MESSAGES", lambda item: str(item["messages"])),
        Column("LEFT OUT", lambda item: "; ".join(item["skipped"]), is_prose=True),
    ),
)


def streams_text(streams: Iterable[Json]) -> str:
    """``2 Linkerd streams``; empty if there are none."""
    number = sum(stream["variant"] == VARIANT for stream in streams)
    return f"{number} Linkerd stream{'s' if number > 1 else ''}" if number else ""
