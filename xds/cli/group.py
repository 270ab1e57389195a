"""``xds group`` and ``xds delete``: settings of groups; deleting groups and resources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from xds.cli.arguments import parse_duration
from xds.cli.client import Client, RefusedError, group_path, problem_text
from xds.cli.errors import CommandError, Exit
from xds.cli.output import age
from xds.cli.resources import known_type, resources_path, seconds
from xds.cli.table import Column, TableLayout

Json = dict[str, Any]

DEFAULT = "default"  # as a value: the server's setting
NONE = "none"  # as an etag: there are no settings yet
ATTEMPTS = 5

_FLAGS = {
    "selector": "--selector",
    "priority": "--priority",
    "on_nack": "--on-nack",
    "removal_delay_s": "--removal-delay",
    "listener_drain_s": "--listener-drain",
}
_UNSET: Mapping[str, object] = {"priority": 0}  # of a group that does not exist; other settings are empty

SETTINGS = TableLayout(
    name=lambda item: str(item["group"]),
    columns=(
        Column("GROUP", lambda item: item["group"]),
        Column("NODES", lambda item: str(item["nodes"])),
        Column("REVISION", lambda item: str(item["revision"])),
        Column("PRIORITY", lambda item: str(item["priority"])),
        Column("SELECTOR", lambda item: item["selector"]),
        Column("ON_NACK", lambda item: item["on_nack"]),
        Column("DELAY", partial(seconds, "removal_delay_s")),
        Column("DRAIN", partial(seconds, "listener_drain_s")),
    ),
)


@dataclass(frozen=True, slots=True)
class Given:
    """The settings that the command line gives. None and empty ones are not changed."""

    selector: str | None = None
    priority: int | None = None
    on_nack: str = ""
    removal_delay: str = ""
    listener_drain: str = ""

    def changes(self) -> Json:
        """The changes in the API's terms. Raises ``CommandError``."""
        found: Json = {}
        if self.selector is not None:
            found["selector"] = self.selector
        if self.priority is not None:
            found["priority"] = self.priority
        if self.on_nack:
            found["on_nack"] = "" if self.on_nack == DEFAULT else self.on_nack
        for name, text in (("removal_delay_s", self.removal_delay), ("listener_drain_s", self.listener_drain)):
            if text:
                found[name] = None if text == DEFAULT else parse_duration(text)
        if not found:
            raise CommandError(Exit.USAGE, f"nothing to set: give some of {', '.join(_FLAGS.values())}")
        return found


def set_group(
    client: Client, group: str, given: Given, query: Mapping[str, str], if_match: str = ""
) -> tuple[Json, Json]:
    """Change the given settings and keep the others; the group before (empty: it did not exist) and after.

    Settings that somebody else changes at the same time are kept, too. With ``if_match`` the settings must have that
    etag, or not exist (``none``). Raises ``CommandError``.
    """
    changes = given.changes()
    for _ in range(ATTEMPTS if not if_match else 1):
        try:
            return _change(client, group, changes, query, if_match)
        except RefusedError as error:
            if error.status != HTTPStatus.PRECONDITION_FAILED:
                raise _in_our_words(error) from None
            last = error
    raise last


def _change(client: Client, group: str, changes: Json, query: Mapping[str, str], if_match: str) -> tuple[Json, Json]:
    before = _present(client, group)
    kept = {name: before[name] for name in _FLAGS if before.get(name) not in (None, "")}
    settings = {name: value for name, value in {**kept, **changes}.items() if value is not None}
    etag = if_match or before.get("settings_etag") or NONE
    headers = {"If-None-Match": "*"} if etag == NONE else {"If-Match": etag}
    return before, client.call("PUT", group_path(group), query, headers, body=settings)


def difference(before: Json, after: Json) -> str:
    """The changed settings on a line."""
    pairs = [(name, _shown(before.get(name, _UNSET.get(name))), _shown(after[name])) for name in _FLAGS]
    changed = [f"{_FLAGS[name].removeprefix('--')} {old} -> {new}" for name, old, new in pairs if old != new]
    return f"group {after['group']}: {', '.join(changed) or 'unchanged'}"


def fields(item: Json) -> dict[str, object]:
    """A group with its settings, for people."""
    return {
        "group": item["group"],
        "revision": f"{item['revision']} ({item['etag']})" if item["revision"] else "none: no nodes belong to it yet",
        "pushed": f"{age(item['time'])} ago by {item['author'] or '-'}" if item["revision"] else "",
        "nodes": f"{item['nodes']} connected",
        "settings": item["settings_etag"] or "none",
        "selector": item["selector"],
        "priority": item["priority"],
        "on NACK": item["on_nack"],
        "removal delay": seconds("removal_delay_s", item),
        "listener drain": seconds("listener_drain_s", item),
        "selector failures": item["selector_failures"] or "",
    }


def _present(client: Client, group: str) -> Json:
    try:
        return client.call("GET", group_path(group))
    except CommandError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        return {}


def _in_our_words(error: RefusedError) -> RefusedError:
    """The refusal, with our flags instead of the API's field names."""
    errors = [
        {
            **found,
            "pointer": _FLAGS.get(str(found.get("pointer")).removeprefix("/"), found.get("pointer")),
            "source": "",
        }
        for found in error.problem.get("errors", [])
    ]
    problem = {**error.problem, "errors": errors}
    return RefusedError(error.status, problem_text(problem) or str(error), problem)


def _shown(value: object) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:g}" if isinstance(value, int | float) else repr(value)


def delete_group(client: Client, group: str, query: Mapping[str, str], headers: Mapping[str, str]) -> Json:
    """Delete a group; the answer to the push. Raises ``CommandError``."""
    return {**client.call("DELETE", group_path(group), query, headers), "deleted": True}


def delete_resource(
    client: Client, group: str, kind: str, name: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> Json:
    """Remove one resource from a group; the answer to the push. Raises ``CommandError``."""
    return client.call("DELETE", resources_path(group, known_type(kind), name), query, headers)
