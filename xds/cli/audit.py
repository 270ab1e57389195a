"""``xds audit``: who wrote what, and who was turned away."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from xds.cli.client import Client
from xds.cli.output import say
from xds.cli.table import Column, View
from xds.cli.who import who

Json = dict[str, Any]

VALUE_SHOWN = 200


def _what(item: Json) -> str:
    """What was written, or tried."""
    if item["refused"]:
        return f"{item.get('subject', '')}: {item.get('reason', '')}"
    told = [item.get("subject", ""), item.get("message", "")]
    if item.get("revision"):
        return " ".join(filter(None, (f"revision {item['revision']}", *told)))
    values = (_short(item[name]) for name in ("old", "new") if name in item)
    return " ".join(filter(None, (told[0], " -> ".join(values), told[1])))


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_SHOWN else f"{text[:VALUE_SHOWN]}..."


AUDIT = View(
    name=lambda item: str(item["id"]),
    columns=(
        Column("AGE", lambda item: item["time"], is_time=True),
        Column("COUNT", lambda item: str(item["count"])),
        Column("WHO", who),
        Column("FROM", lambda item: item["peer"]),
        Column("ACTION", lambda item: item["action"], lambda item: "bad" if item["refused"] else ""),
        Column("GROUP", lambda item: item.get("group", "")),
        Column("WHAT", _what),
        Column("ID", lambda item: item["id"], is_wide=True),
        Column("FIRST", lambda item: item["first_time"], is_time=True, is_wide=True),
        Column("REQUEST", lambda item: item.get("request_id", ""), is_wide=True),
    ),
)


def read_audit(client: Client, filters: Mapping[str, str], cursor: str) -> Iterator[Json]:
    """The list, the oldest first; a message says how to go on behind it, and whether something is missing."""
    place = cursor
    while True:
        page = client.call("GET", "/audit", {**filters, **({"cursor": place} if place else {})})
        if page["lagged"]:
            say("some changes behind this cursor are not kept any more")
        yield from page["items"]
        place = page["cursor"]
        if "next_page_token" not in page:
            break
    say(f"go on with --cursor {place}")
