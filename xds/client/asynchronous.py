"""`AsyncClient`: the admin API for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx

from xds.client import calls, fleet_calls
from xds.client.calls import ApiCall, EntryArguments, Json, PatchInput, PushArguments
from xds.client.encoding import ResourceInput
from xds.client.exchange import (
    QUIET_S,
    RECONNECT_S,
    ServerAccess,
    document_of,
    may_repeat,
    reaching,
    read_document,
    request_arguments,
    result_of,
)
from xds.client.failures import AdminApiError, ServerBusyError, UnreachableServerError
from xds.client.fleet_calls import EventCursor
from xds.client.results import (
    EntryOutcome,
    GroupRevision,
    GroupSnapshot,
    GroupState,
    Nack,
    NodeStatus,
    PushOutcome,
    PushProgress,
    ResourceDifference,
    ServedAssignment,
    ServerEvent,
    StoredEntry,
    TransactionOutcome,
    UndoProposal,
    ValidationOutcome,
)

T = TypeVar("T")


class AsyncClient:
    """The admin API of one server. Methods raise ``AdminApiError``; see its subclasses.

    ``server`` is its URL. Arguments that are left out come from the environment, as for the ``xds`` command:
    ``XDS_ADDR``, ``XDS_TOKEN`` or ``XDS_TOKEN_FILE``, ``XDS_CACERT``, ``XDS_CERT``, ``XDS_KEY``. Options of writes are
    those of ``PushArguments``. Lists are iterators that fetch page after page. A client belongs to one event loop, on
    which many calls may run at once.
    """

    def __init__(
        self,
        server: str = "",
        *,
        token: str = "",
        cacert: str | Path = "",
        cert: str | Path = "",
        key: str | Path = "",
        timeout_s: float = 60.0,
    ) -> None:
        self._access = ServerAccess(server, token, cacert, cert, key, timeout_s)
        self._http = httpx.AsyncClient(**self._access.arguments())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    # Pushes

    async def apply(
        self,
        group: str,
        resources: Iterable[ResourceInput],
        *,
        version: str = "",
        versions: Mapping[str, str] | None = None,
        **options: Unpack[PushArguments],
    ) -> PushOutcome:
        """Replace all resources of a group.

        A resource is a dictionary with ``@type``, a protobuf message, or a message of envoy-data-plane. ``version`` is
        served as version_info; ``versions`` by type alias.
        """
        return await self._run(calls.apply(group, resources, version, versions, **options))

    async def put(
        self, group: str, type: str, name: str, resource: ResourceInput, **options: Unpack[PushArguments]
    ) -> PushOutcome:
        """Add or replace one resource; the others stay. ``type`` is an alias (``clusters``) or a type URL."""
        return await self._run(calls.put(group, type, name, resource, **options))

    async def delete(self, group: str, type: str, name: str, **options: Unpack[PushArguments]) -> PushOutcome:
        """Remove one resource; the others stay."""
        return await self._run(calls.delete(group, type, name, **options))

    async def transact(
        self,
        changes: Iterable[PatchInput] = (),
        *,
        put_entries: Sequence[Mapping[str, Any]] = (),
        delete_entries: Sequence[tuple[str, str]] = (),
        **options: Unpack[PushArguments],
    ) -> TransactionOutcome:
        """Change several groups, and config entries, all or none."""
        return await self._run(calls.transact(changes, put_entries, delete_entries, **options))

    async def validate(self, resources: Iterable[ResourceInput], *, strict: bool = False) -> ValidationOutcome:
        """Check a snapshot without pushing it. Raises ``InvalidInputError`` with all findings."""
        return await self._run(calls.validate(resources, strict))

    async def rollback(
        self, group: str, to: int, *, keep_endpoints: bool = False, **options: Unpack[PushArguments]
    ) -> PushOutcome:
        """Make a new revision with the content of an old one."""
        return await self._run(calls.rollback(group, to, keep_endpoints, **options))

    async def undo(self, group: str, **options: Unpack[PushArguments]) -> PushOutcome:
        """Undo the last configuration change. Raises ``AdminApiError`` if there is nothing to go back to."""
        return await self._run(calls.undo(await self.undo_plan(group), options))

    async def undo_plan(self, group: str) -> UndoProposal:
        """What ``undo`` would do."""
        return await self._run(calls.undo_plan(group))

    async def progress(self, group: str, revision: int, *, wait_s: float = 0.0) -> PushProgress:
        """How many of the nodes that were connected at a recent push have it."""
        return await self._run(calls.progress(group, revision, wait_s))

    # Groups

    def groups(self) -> AsyncIterator[GroupState]:
        """All groups by name."""
        return self._pages(calls.groups())

    async def group(self, name: str) -> GroupState:
        """One group."""
        return await self._run(calls.group(name))

    async def configure_group(
        self,
        name: str,
        *,
        selector: str | None = None,
        priority: int | None = None,
        on_nack: str | None = None,
        removal_delay_s: float | None = None,
        listener_drain_s: float | None = None,
        if_match: str | int | None = None,
        author: str = "",
        dry_run: bool = False,
        allow_empty: bool = False,
    ) -> GroupState:
        """Create a group, or set its settings. Settings that are left out are reset.

        ``if_match`` is the ``settings_etag`` that was read, or 0: there must be no settings yet.
        """
        settings = {
            "selector": selector,
            "priority": priority,
            "on_nack": on_nack,
            "removal_delay_s": removal_delay_s,
            "listener_drain_s": listener_drain_s,
        }
        return await self._run(calls.configure_group(name, settings, if_match, author, dry_run, allow_empty))

    async def delete_group(self, name: str, **options: Unpack[PushArguments]) -> PushOutcome:
        """Delete a group with its settings; ``moves`` of the result counts its nodes by the group that they move to."""
        return await self._run(calls.push("DELETE", calls.place("groups", name), **options))

    async def snapshot(self, group: str, *, revision: int | None = None, show_secrets: bool = False) -> GroupSnapshot:
        """All resources of a group, now or at a revision."""
        return await self._run(calls.snapshot(group, revision, show_secrets))

    async def resource(self, group: str, type: str, name: str, *, show_secrets: bool = False) -> Json:
        """One resource as a document."""
        return await self._run(calls.resource(group, type, name, show_secrets))

    def history(self, group: str, *, endpoints: bool = True) -> AsyncIterator[GroupRevision]:
        """The revisions of a group, the newest first. ``endpoints=False`` omits those that changed only endpoints."""
        return self._pages(calls.history(group, endpoints))

    def difference(
        self, group: str, revision: int, base: int | None = None, *, show_secrets: bool = False
    ) -> AsyncIterator[ResourceDifference]:
        """The resources that a revision changed, compared with ``base``: by default the previous one, 0: nothing."""
        return self._pages(calls.difference(group, revision, base, show_secrets))

    # The fleet

    def nodes(self, *, group: str = "", state: str = "", selector: str = "") -> AsyncIterator[NodeStatus]:
        """Nodes by id. ``state``: with a type in this state, such as ``nacked``; ``selector`` as for groups."""
        return self._pages(fleet_calls.nodes(group, state, selector))

    async def node(self, id: str) -> NodeStatus:
        """One node with its streams."""
        return await self._run(fleet_calls.node(id))

    async def disconnect(self, id: str, *, author: str = "") -> int:
        """End the streams of a node, which may reconnect at once; returns their number."""
        return await self._run(fleet_calls.disconnect(id, author))

    def nacks(
        self, *, group: str = "", node: str = "", type: str = "", since: datetime | str = "", state: str = ""
    ) -> AsyncIterator[Nack]:
        """NACKs, the newest first. ``since`` is a time or an age (``15m``), ``state`` ``open`` or ``resolved``."""
        after = since if isinstance(since, str) else since.astimezone().isoformat()
        return self._pages(fleet_calls.nacks(group, node, type, after, state))

    async def events(
        self, *, kinds: Sequence[str] = (), group: str = "", node: str = "", after: str = "", reconnects: bool = True
    ) -> AsyncIterator[ServerEvent]:
        """Events as they happen, without end. ``after``: start behind the event with this id; ``"0"``: at the oldest.

        A lost connection is opened again, and the events of the gap follow. If the server no longer has some of them,
        an event of the kind ``lagged`` says so. Raises ``UnreachableServerError`` or ``ServerBusyError`` if the server
        does not answer for a minute, and with ``reconnects=False`` when the connection is lost.
        """
        cursor, attempt = EventCursor(kinds, group, node, after), 0
        while True:
            try:
                async for event in self._events(cursor):
                    attempt = 0
                    yield event
            except (UnreachableServerError, ServerBusyError):
                if not reconnects or not cursor.has_begun or attempt == len(RECONNECT_S):
                    raise
            else:
                if not reconnects:
                    return
            await asyncio.sleep(RECONNECT_S[min(attempt, len(RECONNECT_S) - 1)])
            attempt += 1

    # Live endpoints

    def assignments(self, group: str, *, live: bool = False) -> AsyncIterator[ServedAssignment]:
        """The assignments of a group, without their endpoints; ``live``: only live assignments."""
        return self._pages(fleet_calls.assignments(group, live))

    async def assignment(self, group: str, name: str) -> ServedAssignment:
        """One assignment as it is served, with its endpoints."""
        return await self._run(fleet_calls.assignment(group, name))

    async def set_endpoints(
        self,
        group: str,
        name: str,
        assignment: ResourceInput,
        *,
        if_match: str | int | None = None,
        author: str = "",
        drain_s: float | None = None,
        dry_run: bool = False,
        allow_empty: bool = False,
    ) -> ServedAssignment:
        """Serve a ClusterLoadAssignment instead of the pushed one, without a revision. Its former endpoints drain."""
        body = fleet_calls.assignment_body(assignment)
        options = {
            "if_match": if_match,
            "author": author,
            "drain_s": drain_s,
            "dry_run": dry_run,
            "allow_empty": allow_empty,
        }
        return await self._run(fleet_calls.edit_endpoints("PUT", group, name, body, options))

    async def change_endpoints(
        self,
        group: str,
        name: str,
        *,
        put: Iterable[Mapping[str, Any] | str] = (),
        remove: Iterable[str] = (),
        localities: Iterable[Mapping[str, Any]] = (),
        if_match: str | int | None = None,
        author: str = "",
        drain_s: float | None = None,
        dry_run: bool = False,
        allow_empty: bool = False,
    ) -> ServedAssignment:
        """Add, change and remove some endpoints. One is its ``HOST:PORT``, or ``{"address", "weight"?, ...}``."""
        body = fleet_calls.endpoints_patch(put, remove, localities)
        options = {
            "if_match": if_match,
            "author": author,
            "drain_s": drain_s,
            "dry_run": dry_run,
            "allow_empty": allow_empty,
        }
        return await self._run(fleet_calls.edit_endpoints("PATCH", group, name, body, options))

    async def reset_endpoints(
        self,
        group: str,
        name: str,
        *,
        author: str = "",
        drain_s: float | None = None,
        dry_run: bool = False,
        allow_empty: bool = False,
    ) -> ServedAssignment:
        """Serve the pushed assignment again."""
        options = {"author": author, "drain_s": drain_s, "dry_run": dry_run, "allow_empty": allow_empty}
        return await self._run(fleet_calls.edit_endpoints("DELETE", group, name, None, options))

    # Config entries

    def config_entries(self, kind: str = "") -> AsyncIterator[StoredEntry]:
        """Config entries by kind and name."""
        return self._pages(fleet_calls.config_entries(kind))

    async def config_entry(self, kind: str, name: str) -> StoredEntry:
        """One config entry, and who modified it last."""
        return await self._run(fleet_calls.config_entry(kind, name))

    async def put_config_entries(
        self, entries: Sequence[Mapping[str, Any]], **options: Unpack[EntryArguments]
    ) -> EntryOutcome:
        """Write several config entries, all or none. ``if_match`` is about all of them."""
        return await self._run(fleet_calls.put_config_entries(entries, **options))

    async def put_config_entry(
        self, kind: str, name: str, entry: Mapping[str, Any], **options: Unpack[EntryArguments]
    ) -> EntryOutcome:
        """Write one config entry. ``if_match`` is about this entry."""
        return await self._run(fleet_calls.put_config_entry(kind, name, entry, **options))

    async def delete_config_entry(self, kind: str, name: str, **options: Unpack[EntryArguments]) -> EntryOutcome:
        """Delete one config entry. ``if_match`` is about this entry."""
        return await self._run(fleet_calls.delete_config_entry(kind, name, **options))

    async def roll_back_config_entries(self, to: int, **options: Unpack[EntryArguments]) -> EntryOutcome:
        """Make a new revision with the config entries of an earlier one; 0: none."""
        return await self._run(fleet_calls.roll_back_config_entries(to, **options))

    # Sending

    async def _run(self, call: ApiCall[T]) -> T:
        return result_of(call, await self._send(call))

    async def _send(self, call: ApiCall[Any], token: str = "") -> httpx.Response:
        for attempt in (0, 1):
            try:
                with reaching(self._access.url):
                    return await self._http.request(**request_arguments(call, self._access.timeout_s, token))
            except AdminApiError as error:
                if not may_repeat(call, error, attempt):
                    raise
        raise AssertionError  # the second attempt returns or raises

    async def _pages(self, call: ApiCall[tuple[T, ...]]) -> AsyncIterator[T]:
        token = ""
        while True:
            document = document_of(await self._send(call, token))
            for each in read_document(call, document):
                yield each
            token = str(document.get("next_page_token", ""))
            if not token:
                return

    async def _events(self, cursor: EventCursor) -> AsyncIterator[ServerEvent]:
        call = cursor.call()
        with reaching(self._access.url):
            async with self._http.stream(**request_arguments(call, QUIET_S)) as response:
                if not response.is_success:
                    await response.aread()
                    document_of(response)
                cursor.begin(response.headers)
                async for line in response.aiter_lines():
                    event = cursor.read(line)
                    if event is not None:
                        yield event
