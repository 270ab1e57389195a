"""``xds get`` and ``export``: groups, snapshots and resources; the names of resource types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from typing import Any

from xds.calls import groups
from xds.cli.client import Client
from xds.cli.errors import CommandError, Exit
from xds.cli.output import Format
from xds.cli.table import Column, Style, TableLayout, actor_text, rendered
from xds.model.node import DEFAULT_GROUP
from xds.model.resource_type import V3_TYPES, type_url_of

Json = dict[str, Any]

NO_GROUPS = "no groups: `xds apply -g NAME -f FILE` pushes the first"
_LISTED = frozenset((Format.TABLE, Format.WIDE, Format.NAME))


def seconds(setting: str, item: Json) -> str:
    """A time setting of a group; empty if the group has none of its own."""
    value_s = item.get(setting)
    return "" if value_s is None else f"{value_s:g}s"


GROUPS = TableLayout(
    name="group",
    columns=(
        Column("GROUP", "group"),
        Column("REVISION", "revision"),
        Column("RESOURCES", lambda item: str(sum(item["resources"].values()))),
        Column("NODES", "nodes"),
        Column("AGE", "time", is_time=True),
        Column("AUTHOR", actor_text),
        Column("MESSAGE", "message", is_prose=True),
        Column("SELECTOR", lambda item: item.get("selector") or "", is_wide=True, is_prose=True),
        Column("PRIORITY", lambda item: str(item.get("priority", "")), is_wide=True),
        Column("DELAY", partial(seconds, "removal_delay_s"), is_wide=True),
        Column("DRAIN", partial(seconds, "listener_drain_s"), is_wide=True),
        Column("ETAG", "etag", is_wide=True),
    ),
    in_order="group",
)

RESOURCES = TableLayout(
    name="name",
    columns=(
        Column("TYPE", "type"),
        Column("NAME", "name"),
        Column("VERSION", "version"),
        Column("LIVE", lambda item: item["live"]["kind"] if "live" in item else "", is_wide=True),
    ),
)


@dataclass(frozen=True, slots=True)
class ListRequest:
    """The objects to list or show. ``kind`` is ``groups``, ``snapshot``, ``resources`` or a type."""

    kind: str
    name: str = ""
    group: str = DEFAULT_GROUP
    show_secrets: bool = False


def is_document(request: ListRequest, format: Format | None) -> bool:
    """Whether the result is one document, not a list.

    Raises ``CommandError`` if a table of a document is requested.
    """
    if request.kind == "snapshot":
        return format not in _LISTED
    if not request.name or request.kind in {"group", "groups", "resources"}:
        return False
    require_document(format)
    return True


def document(client: Client, request: ListRequest) -> Json:
    """A snapshot or a resource in the form that ``apply`` accepts."""
    if request.kind == "snapshot":
        return snapshot(client, request.group, secrets=request.show_secrets)
    type = known_type(request.kind)
    return client.run(groups.resource(request.group, type, request.name, show_secrets=request.show_secrets))


def list_text(client: Client, request: ListRequest, style: Style) -> str:
    """A list of groups or resources as text."""
    if request.kind in {"group", "groups"}:
        items = [client.run(groups.group(request.name))] if request.name else client.items(groups.groups())
        return rendered(items, GROUPS, style, NO_GROUPS)
    is_of_any_type = request.kind in {"snapshot", "resources"}
    types = () if is_of_any_type else (known_type(request.kind),)
    items = list_resources(client, request.group, types, request.show_secrets)
    what = types[0] if types else "resources"
    empty = f"group {request.group} has no {what}: `xds describe group {request.group}` shows what it has"
    if what == "endpoints":
        empty = f"no endpoints are pushed to group {request.group}: `xds endpoints list -g {request.group}` shows all"
    layout = replace(RESOURCES, name=lambda item: f"{item['type']}/{item['name']}") if is_of_any_type else RESOURCES
    return rendered(items, layout, style, empty)


def list_resources(client: Client, group: str, types: Iterable[str] = (), secrets: bool = False) -> Iterator[Json]:
    """The resources of a group, of the given types or of all."""
    for type in tuple(types) or tuple(client.run(groups.group(group))["versions"]):
        yield from client.items(groups.resources(group, type, show_secrets=secrets))


def snapshot(client: Client, group: str, revision: int = 0, secrets: bool = False) -> Json:
    """The snapshot of a group, at a revision or the current one, as a document that ``apply`` accepts."""
    return client.run(groups.snapshot(group, revision=revision or None, show_secrets=secrets))


def require_document(format: Format | None) -> None:
    """Raises ``CommandError`` if a table of a document is requested."""
    if format in _LISTED:
        raise CommandError(Exit.USAGE, f"-o {format}: this is a document; use yaml or json")


OTHERS = ("groups", "snapshot", "resources")
# Commands for words that are not kinds of resources.
_COMMANDS = {
    "assignments": "assignment show",
    "events": "watch",
    "load": "load",
    "nacks": "nacks",
    "nodes": "nodes",
    "revisions": "rollout history",
}


def known_type(word: str) -> str:
    """The alias for an alias (also in the singular), a message name or a type URL.

    Raises ``CommandError`` for other words.
    """
    aliases = [rule.alias for rule in V3_TYPES]
    for alias in (word, f"{word}s"):
        if alias in aliases:
            return alias
    if "." in word:
        return type_url_of(word)
    kinds = (*OTHERS, *aliases)
    raise CommandError(
        Exit.USAGE, f"no such kind: {word!r} ({', '.join(kinds)}, or a type URL){_kind_hint(word, kinds)}"
    )


def _kind_hint(word: str, kinds: Sequence[str]) -> str:
    command = _COMMANDS.get(word) or _COMMANDS.get(f"{word}s")
    if command:
        return f"; did you mean `xds {command}`?"
    near = get_close_matches(word, kinds, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
