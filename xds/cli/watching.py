"""``xds watch``: events as lines."""

from __future__ import annotations

from typing import Any

from xds.cli.output import printable
from xds.cli.who import who

Json = dict[str, Any]


def event_line(event: Json) -> str:
    """One event for people: when, what, to whom."""
    told = {name: event[name] for name in ("group", "node", "type", "revision") if event.get(name) not in {None, ""}}
    details = event.get("details") or {}
    told.update({name: value for name, value in details.items() if name not in {"actor", "author"}})
    if who(details):
        told["by"] = who(details)
    what = " ".join(part for part in (event["kind"], event.get("action", "")) if part)
    where = " ".join(f"{name}={value}" for name, value in told.items())
    message = " ".join(str(event.get("message", "")).split())
    return printable("  ".join(part for part in (event.get("time", "-"), what, where, message) if part)) + "\n"
