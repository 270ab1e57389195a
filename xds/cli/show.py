"""``xds get``, ``nodes`` and ``nacks``: what the server has, as tables or documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from xds.cli.client import Client
from xds.cli.failure import CommandError, Exit
from xds.cli.output import Format, age, write_document, write_names, write_table
from xds.model.resource_type import V3_TYPES, type_url_of

Json = dict[str, Any]
Row = Sequence[str]

MESSAGE_WIDTH = 120
# The grid's columns: the types nearly every proxy has.
GRID = {"CDS": "clusters", "EDS": "endpoints", "LDS": "listeners", "RDS": "routes", "SDS": "secrets"}
_WORDS = {"synced": "ok", "pending": "wait", "nacked": "NACK", "orphaned": "orphaned"}


def show_groups(client: Client, format: Format) -> None:
    """All groups."""
    headers = ("GROUP", "REVISION", "RESOURCES", "NODES", "AGE", "AUTHOR", "MESSAGE")
    _show(client.items("/groups"), format, "group", headers, _group_row)


def show_snapshot(client: Client, group: str, format: Format | None) -> None:
    """A group's whole snapshot, as a document that ``apply`` takes again."""
    document = client.call("GET", f"/groups/{quote(group, safe='')}/snapshot")
    if format in (Format.TABLE, Format.NAME):
        show_resources(client, group, format)
    else:
        write_document(document, format or Format.YAML)


def show_resources(client: Client, group: str, format: Format) -> None:
    """All resources of a group."""
    versions = client.call("GET", f"/groups/{quote(group, safe='')}")["versions"]
    found = (item for type in versions for item in client.items(_resources_path(group, type)))
    _show_resources(found, format)


def show_type(client: Client, group: str, type: str, name: str, format: Format | None) -> None:
    """The resources of one type, or one of them."""
    path = _resources_path(group, _known_type(type))
    if name:
        document = client.call("GET", f"{path}/{quote(name, safe='')}")
        write_document(document, format if format is Format.JSON else Format.YAML)
    else:
        _show_resources(client.items(path), format or Format.TABLE)


def show_nodes(client: Client, query: Mapping[str, str], format: Format) -> None:
    """Which proxy has what: the revision it runs, type by type."""
    headers = ("NODE", "CLUSTER", "LOCALITY", "GROUP", "AGENT", "SEEN", *GRID)
    _show(client.items("/nodes", query), format, "id", headers, _node_row)


def show_nacks(client: Client, query: Mapping[str, str], format: Format) -> None:
    """Who refused what, and why."""
    headers = ("LAST", "NODE", "GROUP", "TYPE", "VERSION", "COUNT", "STATE", "MESSAGE")
    _show(client.items("/nacks", query), format, "node", headers, _nack_row)


def _show(items: Iterable[Json], format: Format, name: str, headers: Row, row: Callable[[Json], Row]) -> None:
    if format is Format.TABLE:
        write_table(headers, map(row, items))
    elif format is Format.NAME:
        write_names(item[name] for item in items)
    else:
        write_document({"items": list(items)}, format)


def _show_resources(items: Iterable[Json], format: Format) -> None:
    headers = ("TYPE", "NAME", "VERSION")
    _show(items, format, "name", headers, lambda item: (item["type"], item["name"], item["version"]))


def _resources_path(group: str, type: str) -> str:
    return f"/groups/{quote(group, safe='')}/resources/{quote(type, safe='')}"


def _known_type(word: str) -> str:
    """An alias (also in the singular), a message name or a type URL. Raises ``CommandError`` for another word."""
    aliases = [rule.alias for rule in V3_TYPES]
    for alias in (word, f"{word}s"):
        if alias in aliases:
            return alias
    if "." in word:
        return type_url_of(word)
    raise CommandError(Exit.USAGE, f"no such kind: {word!r} (groups, snapshot, resources, {', '.join(aliases)})")


def _group_row(item: Json) -> Row:
    resources = str(sum(item["resources"].values()))
    revision, nodes = str(item["revision"]), str(item["nodes"])
    return item["group"], revision, resources, nodes, age(item["time"]), item["author"], item["message"]


def _node_row(item: Json) -> Row:
    locality = "/".join(filter(None, item["locality"].values()))
    seen = "now" if item["connected"] else age(item["last_seen"])
    cells = (_cell(item["types"].get(alias)) for alias in GRID.values())
    return item["id"], item["cluster"], locality, item["group"], item["user_agent"], seen, *cells


def _cell(state: Json | None) -> str:
    if state is None or state["state"] == "not_subscribed":
        return "-"
    held = state["revision"] if state["revision"] is not None else state["version_acked"]
    shown = f"{_WORDS.get(state['state'], state['state'])} {held}".strip()
    unsent = len(state.get("unexpressed", ()))  # what the old transport cannot express; -o yaml says why
    return f"{shown}, {unsent} unsent" if unsent else shown


def _nack_row(item: Json) -> Row:
    message = " ".join(item["message"].split())
    shown = message if len(message) <= MESSAGE_WIDTH else f"{message[:MESSAGE_WIDTH]}..."
    what = (item["type"], item["version"], str(item["count"]), item["state"])
    return age(item["last"]), item["node"], item["group"], *what, shown
