"""``xds rollout``: how far a group has come, its history, the way back."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from xds.cli.client import Client, group_path
from xds.cli.failure import CommandError, Exit
from xds.cli.output import Format, say, write, write_document
from xds.cli.table import Column, Style, View, rendered
from xds.cli.waiting import POLL_S, check_somebody, held_lines, late, progress, refusals

Json = dict[str, Any]

HISTORY = View(
    name=lambda item: str(item["revision"]),
    columns=(
        Column("REVISION", lambda item: str(item["revision"])),
        Column("AGE", lambda item: item["time"], is_time=True),
        Column("AUTHOR", lambda item: item["author"]),
        Column("RESOURCES", lambda item: "deleted" if item["deleted"] else str(item["resources"])),
        Column("MESSAGE", lambda item: item["message"]),
    ),
)

STATUS = View(
    name=lambda item: str(item["type"]),
    columns=(
        Column("TYPE", lambda item: item["type"]),
        Column("SYNCED", lambda item: str(item["synced"])),
        Column("PENDING", lambda item: str(item["pending"]), lambda item: "warn" if item["pending"] else ""),
        Column("NACKED", lambda item: str(item["nacked"]), lambda item: "bad" if item["nacked"] else ""),
        Column("NOT_SUBSCRIBED", lambda item: str(item["not_subscribed"])),
    ),
)


def show_status(client: Client, group: str, style: Style, percent: float) -> None:
    """Write where the nodes stand. Raises ``CommandError`` when refusals keep ``percent`` of them from it."""
    found = client.call("GET", group_path(group, "/rollout"))
    if style.format in {Format.JSON, Format.YAML, Format.JSONL}:
        write_document(found, style.format)
    else:
        write(rendered(({"type": type, **counts} for type, counts in found["types"].items()), STATUS, style))
        total = found["synced"] + found["pending"] + found["nacked"]
        say(f"group {group}: {found['synced']} of {total} nodes have revision {found['revision']}")
        for line in held_lines(found):
            say(line)
    if _is_refused(found, percent):
        raise CommandError(Exit.NEGATIVE, refusals(found))


def wait_until_done(client: Client, group: str, percent: float, timeout_s: float, *, allow_none: bool = False) -> None:
    """Wait until ``percent`` of the nodes are in step, or refusals rule that out.

    Raises ``CommandError`` when the time is over; unless ``allow_none``, also when the group has no node.
    """
    end = time.monotonic() + timeout_s
    with progress(group) as show:
        while True:
            found = client.call("GET", group_path(group, "/rollout"))
            show(found)
            if _is_done(found, percent) or _is_refused(found, percent):
                break
            left = end - time.monotonic()
            if left <= 0:
                raise CommandError(Exit.TIMED_OUT, late(found))
            time.sleep(min(POLL_S, left))
    if not allow_none:
        check_somebody(client, group, found)


def roll_back(client: Client, group: str, to: int, query: Mapping[str, str], headers: Mapping[str, str]) -> Json:
    """Bring back ``to``, or the newest revision before the present one. Raises ``CommandError``."""
    return client.call("POST", group_path(group, "/rollback"), query, headers, {"to": to or _before(client, group)})


def _before(client: Client, group: str) -> int:
    present = client.call("GET", group_path(group))["revision"]
    for item in client.items(group_path(group, "/revisions")):
        if item["revision"] < present and not item["deleted"]:
            return int(item["revision"])
    raise CommandError(Exit.NOT_FOUND, f"group {group}: there is no revision before {present}")


def _is_done(found: Json, percent: float) -> bool:
    return bool(found["synced"] >= _needed(found, percent))


def _is_refused(found: Json, percent: float) -> bool:
    return bool(found["synced"] + found["pending"] < _needed(found, percent))


def _needed(found: Json, percent: float) -> float:
    return float(found["synced"] + found["pending"] + found["nacked"]) * percent / 100
