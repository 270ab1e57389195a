"""The calls about nodes, NACKs, events, live endpoints and config entries. No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from xds.client.calls import (
    ENTRY_ARGUMENTS,
    ApiCall,
    EntryArguments,
    Json,
    flags,
    items,
    place,
    precondition,
    reader,
    write_parts,
)
from xds.client.encoding import ResourceInput, encode_resource
from xds.client.reading import ShapeError, read_value
from xds.client.results import EntryOutcome, Nack, NodeStatus, ServedAssignment, ServerEvent, StoredEntry

NDJSON = "application/x-ndjson"
LAST_EVENT_ID = "Last-Event-ID"


def nodes(group: str, state: str, selector: str) -> ApiCall[tuple[NodeStatus, ...]]:
    """A page of nodes."""
    return ApiCall("GET", place("nodes"), items(NodeStatus), flags(group=group, state=state, selector=selector))


def node(id: str) -> ApiCall[NodeStatus]:
    """One node."""
    return ApiCall("GET", place("nodes", id), reader(NodeStatus))


def disconnect(id: str, author: str) -> ApiCall[int]:
    """End the streams of a node; the result is their number."""
    return ApiCall("DELETE", place("nodes", id), lambda value: int(value["streams"]), flags(author=author))


def nacks(group: str, node: str, type: str, since: str, state: str) -> ApiCall[tuple[Nack, ...]]:
    """A page of NACKs, the newest first."""
    query = flags(group=group, node=node, type=type, since=since, state=state)
    return ApiCall("GET", place("nacks"), items(Nack), query)


def assignments(group: str, live: bool) -> ApiCall[tuple[ServedAssignment, ...]]:
    """A page of the assignments of a group."""
    return ApiCall("GET", place("groups", group, "endpoints"), items(ServedAssignment), flags(live=live))


def assignment(group: str, name: str) -> ApiCall[ServedAssignment]:
    """One assignment with its endpoints."""
    return ApiCall("GET", place("groups", group, "endpoints", name), reader(ServedAssignment))


def edit_endpoints(
    method: str, group: str, name: str, body: object, options: Mapping[str, Any]
) -> ApiCall[ServedAssignment]:
    """Set, change or delete a live assignment.

    Options: ``if_match``, ``author``, ``drain_s``, ``dry_run``, ``allow_empty``.
    """
    query = flags(**{name: options.get(name) for name in ("author", "drain_s", "dry_run", "allow_empty")})
    path = place("groups", group, "endpoints", name)
    headers = precondition(options.get("if_match"), "e-")
    return ApiCall(method, path, reader(ServedAssignment), query, headers, body)


def endpoints_patch(
    put: Iterable[Mapping[str, Any] | str], remove: Iterable[str], localities: Iterable[Mapping[str, Any]]
) -> Json:
    """The body of a change of some endpoints; an endpoint may be its address."""
    body = {
        "put": [{"address": each} if isinstance(each, str) else dict(each) for each in put],
        "remove": list(remove),
        "localities": [dict(each) for each in localities],
    }
    return {name: value for name, value in body.items() if value}


def assignment_body(assignment: ResourceInput) -> Json:
    """A ClusterLoadAssignment as the body of a request."""
    return encode_resource(assignment, "the assignment")


def config_entries(kind: str) -> ApiCall[tuple[StoredEntry, ...]]:
    """A page of config entries."""
    return ApiCall("GET", place("config-entries"), items(StoredEntry), flags(kind=kind))


def config_entry(kind: str, name: str) -> ApiCall[StoredEntry]:
    """One config entry, and who modified it last."""
    return ApiCall("GET", place("config-entries", kind, name), reader(StoredEntry))


def put_config_entries(entries: Sequence[Mapping[str, Any]], **given: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    """Write several config entries, all or none."""
    return _entry_write("POST", place("config-entries"), [dict(entry) for entry in entries], **given)


def put_config_entry(
    kind: str, name: str, entry: Mapping[str, Any], **given: Unpack[EntryArguments]
) -> ApiCall[EntryOutcome]:
    """Write one config entry. ``if_match`` is about this entry."""
    return _entry_write("PUT", place("config-entries", kind, name), dict(entry), **given)


def delete_config_entry(kind: str, name: str, **given: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    """Delete one config entry. ``if_match`` is about this entry."""
    return _entry_write("DELETE", place("config-entries", kind, name), None, **given)


def roll_back_config_entries(to: int, **given: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    """Make a new revision with the entries of an earlier one."""
    return _entry_write("POST", place("config-entries", "rollback"), {"to": to}, **given)


def _entry_write(method: str, path: str, body: object, **given: Unpack[EntryArguments]) -> ApiCall[EntryOutcome]:
    query, headers = write_parts(given, ENTRY_ARGUMENTS)
    return ApiCall(method, path, reader(EntryOutcome), query, headers, body)


class EventCursor:
    """The position of an event reader. Makes its requests, and reads the lines of the answers."""

    def __init__(self, kinds: Sequence[str], group: str, node: str, after: str) -> None:
        self._query = flags(kinds=",".join(kinds), group=group, node=node)
        self._after = after
        self.has_begun = False

    def call(self) -> ApiCall[None]:
        """The request that continues after the last event."""
        headers = {"Accept": NDJSON, **({LAST_EVENT_ID: self._after} if self._after else {})}
        return ApiCall("GET", place("events"), lambda _: None, self._query, headers)

    def begin(self, headers: Mapping[str, str]) -> None:
        """Note the position at which an answer begins, so that no event is missed if it ends before the first one."""
        self.has_begun = True
        self._after = self._after or headers.get(LAST_EVENT_ID, "")

    def read(self, line: str) -> ServerEvent | None:
        """The event of a line; None for an empty line, which keeps the connection open. Raises ``ShapeError``."""
        if not line.strip():
            return None
        try:
            event: ServerEvent = read_value(ServerEvent, json.loads(line))
        except ValueError as error:
            raise ShapeError(f"not an event: {error}") from None
        self._after = event.id or self._after
        return event
