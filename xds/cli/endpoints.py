"""``xds endpoints``: assignments as they are served, and live endpoints set by hand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from xds.calls import endpoints
from xds.cli.arguments import given
from xds.cli.client import Client, group_option
from xds.cli.errors import CommandError, Exit
from xds.cli.output import DOCUMENTS, Format, say, write, write_document
from xds.cli.push_options import print_warnings
from xds.cli.table import Column, Style, TableLayout, locality_text, rendered

Json = dict[str, Any]

FILE_LIMIT_BYTES = 16 << 20
_PARTS = ("region", "zone", "sub_zone")
_HEALTH_STYLES = {"HEALTHY": "good", "UNHEALTHY": "bad", "TIMEOUT": "bad", "DRAINING": "warn", "DEGRADED": "warn"}


def owner_text(owner: Json) -> str:
    """``pushed``, ``by hand (alice)``, ``service web``, ``upstream web``, ``leaving (alice)``."""
    if owner["kind"] == "binding":
        return f"service {owner.get('service', '')}".strip()
    if owner["kind"] == "lowered":
        return f"upstream {owner.get('upstream', '')}".strip()
    if owner["kind"] in {"hand", "leaving"}:
        who = owner.get("actor") or owner.get("author") or ""
        what = "by hand" if owner["kind"] == "hand" else "leaving"
        return f"{what} ({who})" if who else what
    return str(owner["kind"])


ASSIGNMENTS = TableLayout(
    name="name",
    columns=(
        Column("NAME", "name"),
        Column("OWNER", lambda item: owner_text(item["owner"])),
        Column("ENDPOINTS", "endpoints_n"),
        Column("DRAINING", lambda item: str(item["draining_n"] or ""), lambda item: "warn"),
        Column("AGE", lambda item: item["owner"].get("time") or "", is_time=True),
        Column("VERSION", "version", is_wide=True),
        Column("ETAG", "etag", is_wide=True),
    ),
)

ENDPOINTS = TableLayout(
    name="address",
    columns=(
        Column("ADDRESS", "address"),
        Column("HEALTH", "health", lambda item: _HEALTH_STYLES.get(item["health"], "")),
        Column("WEIGHT", lambda item: "" if item["weight"] is None else str(item["weight"])),
        Column("LOCALITY", lambda item: locality_text(item["locality"])),
        Column("PRIORITY", "priority"),
        Column("UNTIL", lambda item: item.get("until") or ""),
        Column("HOSTNAME", lambda item: item.get("hostname") or "", is_wide=True),
    ),
)


def list_text(client: Client, group: str, live: bool, style: Style) -> str:
    """The assignments of a group. Raises ``CommandError``."""
    assignments = client.items(endpoints.assignments(group, live=live))
    what, command = ("live assignments", "endpoints list") if live else ("assignments", "get resources")
    empty = f"group {group} has no {what}: `xds {command}{group_option(group)}` shows what it has"
    return rendered(assignments, ASSIGNMENTS, style, empty)


def show(item: Json, style: Style, format: Format | None) -> None:
    """Print one assignment: its endpoints, with its owner and warnings as messages; or the whole item."""
    if format in DOCUMENTS:
        write_document(item, format)
    else:
        command = f"xds endpoints add {item['name']} ADDRESS{group_option(item['group'])}"
        empty = f"{item['name']} has no endpoints: `{command}` adds one"
        write(rendered(item["endpoints"], ENDPOINTS, style, empty))
        for line in _messages(item):
            say(line)
    print_warnings(item.get("warnings", ()))


def put_items(
    addresses: Sequence[str], weight: int | None, health: str, locality: str, priority: int | None, hostname: str
) -> list[Json]:
    """The endpoints to put; values that are None or empty are not changed. Raises ``CommandError``."""
    fields: Json = {**given(health=health, hostname=hostname)}
    if weight is not None:
        fields["weight"] = weight
    if priority is not None:
        fields["priority"] = priority
    if locality:
        fields["locality"] = read_locality(locality)
    return [{"address": address, **fields} for address in addresses]


def read_locality(text: str) -> Json:
    """``REGION/ZONE/SUB_ZONE``; parts from the end may be left out. Raises ``CommandError``."""
    parts = text.split("/", len(_PARTS) - 1)
    if not any(parts):
        raise CommandError(Exit.USAGE, f"not a locality: {text!r} (REGION/ZONE/SUB_ZONE)")
    return dict(zip(_PARTS, parts, strict=False))


def _messages(item: Json) -> Iterator[str]:
    if item.get("dry_run"):
        yield "dry run: nothing was changed"
    elif item.get("changed") is False:
        yield "unchanged"
    owner = item["owner"]
    since = f" since {owner['time']}" if "time" in owner else ""
    yield f"{item['name']} of group {item['group']}: {owner_text(owner)}{since}"
    if item["leaving"]:
        yield "deleted, or no longer bound: the pushed assignment is served when all endpoints have drained"
