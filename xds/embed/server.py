"""`Server`: the xDS server embedded in a program, on the event loop of the program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from xds.access.caller import Caller
from xds.app.features import with_sources
from xds.app.server import Hosting
from xds.app.server import Server as StandaloneServer
from xds.app.settings import make_settings
from xds.calls.encoding import ResourceInput, encode_resource, encode_resources
from xds.codec.resources import DecodedPush
from xds.codec.schema import add_descriptor_sets
from xds.embed.address import ServerAddress
from xds.embed.grouping import GuardedChoice
from xds.embed.hooks import Hooks, end_hooks, recording, run_hooks
from xds.fleet.state import Convergence, NackRecord, NodeState
from xds.model.errors import NotFoundError
from xds.model.node import Node
from xds.model.resource_type import type_url_of
from xds.push.request import PushOptions, PushResult
from xds.server.logs import configure_logging
from xds.services.binding_review import check_assignment
from xds.services.core.binding import Binding
from xds.services.core.source import Source
from xds.services.served import ServedServices
from xds.services.source_settings import SourceSettings
from xds.settings.settings import Settings, SettingsError, merge
from xds.tasks.threads import run_sized

ACTOR = "program"  # the actor of changes by the program, in the history
DEFAULT_GRPC = "127.0.0.1:18000"


class Server:
    """The xDS server: ``async with Server() as server``. It serves inside the context, and drains at its end.

    * ``grpc``, ``http``: ``HOST:PORT``; port 0 is a free one. Without ``http`` there is no admin port: no ``xds``
      commands, no metrics;
    * ``data``: the directory of the store; without it everything is in memory;
    * ``group_of``: chooses the group of a node; if it returns None, selectors and names decide. It must be fast, and
      may be called from any thread;
    * ``sources``: sources of instances (docs/services.md#a-source-of-your-own);
    * ``settings``: those of the configuration file (docs/configuration.md), as nested dictionaries. The environment
      is not read.

    All methods belong to the event loop that runs the server. Logs go where the program has configured structlog to
    write; otherwise warnings go to standard error.

    Raises ``SettingsError``; on entry ``OSError`` for an address that cannot be bound.
    """

    def __init__(
        self,
        *,
        grpc: str = DEFAULT_GRPC,
        http: str | None = None,
        data: str | Path | None = None,
        group_of: Callable[[Node], str | None] | None = None,
        hooks: Hooks = Hooks(),  # noqa: B008 - frozen
        sources: Sequence[Source] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._settings = embedded_settings(grpc, http, data, settings or {})
        added = tuple((source, SourceSettings(kind=source.kind)) for source in sources)
        self._hosting = Hosting(tunes_process=False, opens_http=http is not None, features=with_sources(added))
        self._hooks = hooks
        self._choice = GuardedChoice(group_of) if group_of is not None else None
        self._server: StandaloneServer | None = None
        self._hooks_task: asyncio.Task[None] | None = None
        self._recording = ExitStack()

    async def __aenter__(self) -> Self:
        if not structlog.is_configured():
            configure_logging("warning")
        add_descriptor_sets(self._settings.codec.descriptor_sets)
        server = self._server = StandaloneServer(self._settings, self._hosting)
        if self._choice is not None:
            server.cache.choose_groups(self._choice)
        self._recording.enter_context(recording(server.fleet.events, self._hooks))
        self._hooks_task = asyncio.create_task(run_hooks(server.fleet.events, self._hooks, server.fleet.events.newest))
        try:
            await server.start()
        except BaseException:
            await self._close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        try:
            await self._running.drain()
        finally:
            await self._close()

    async def _close(self) -> None:
        server, self._server = self._running, None
        server.fleet.events.close()
        if self._hooks_task is not None:
            await end_hooks(self._hooks_task)
        self._recording.close()
        await server.close()

    @property
    def _running(self) -> StandaloneServer:
        if self._server is None:
            raise RuntimeError("the server does not run: use it within `async with`")
        return self._server

    @property
    def grpc_address(self) -> ServerAddress:
        """Host and port for xDS clients; as text ``HOST:PORT``."""
        return ServerAddress(*self._running.addresses()[0])

    @property
    def http_address(self) -> ServerAddress:
        """Host and port of the admin API; as text ``HOST:PORT``. Raises ``RuntimeError`` if there is none."""
        if not self._hosting.opens_http:
            raise RuntimeError("there is no admin port: give http")
        return ServerAddress(*self._running.addresses()[1])

    @property
    def http_url(self) -> str:
        """The URL of the admin API, for ``Client`` and ``xds --server``. Raises ``RuntimeError`` if there is none."""
        scheme = "https" if self._settings.server.http.tls is not None else "http"
        return f"{scheme}://{self.http_address}"

    # Snapshots

    async def set_snapshot(
        self,
        group: str,
        resources: Iterable[ResourceInput],
        *,
        version: str = "",
        versions: Mapping[str, str] | None = None,
        message: str = "",
        if_revision: int | None = None,
        allow_empty: bool = False,
    ) -> PushResult:
        """Replace all resources of a group. Returns when the push is stored, before nodes have it (see `wait_taken`).

        A resource is a dictionary with ``@type``, a protobuf message, or a message of envoy-data-plane. ``version`` is
        the ``version_info`` of all types, ``versions`` that of single types by type alias; by default it is the
        revision. ``if_revision`` is the revision that the group must be at; 0: the group must not exist. A push that
        changes nothing makes no revision.

        Raises ``ValidationError`` with all findings, ``ConflictError``, ``EmptyingError`` if connected nodes would lose
        their whole configuration, ``StoreError``.
        """
        values = encode_resources(resources)
        labels = {"versions": dict(versions)} if versions else {}
        pushed = await self._decoded({"resources": values, "version": version, **labels}, len(values))
        options = _options(message, if_revision, allow_empty)
        push = self._running.publisher.push
        return await push(group, pushed.resources, label=pushed.label, labels=pushed.labels, options=options)

    async def put(self, group: str, resource: ResourceInput, *, message: str = "") -> PushResult:
        """Add or replace one resource; the others stay. Raises as ``set_snapshot``."""
        pushed = await self._decoded({"resources": [encode_resource(resource)]}, 1)
        return await self._running.publisher.put(group, pushed.resources[0], _options(message))

    async def delete(self, group: str, type: str, name: str, *, message: str = "", force: bool = False) -> PushResult:
        """Remove one resource. ``type`` is an alias (``clusters``) or a type URL.

        Raises ``NotFoundError``; without ``force`` also ``StillReferencedError`` if another resource refers to it.
        """
        options = replace(_options(message), force=force)
        return await self._running.publisher.delete(group, (type_url_of(type), name), options)

    async def delete_group(self, group: str, *, allow_empty: bool = False) -> PushResult:
        """Delete a group. Its nodes move to another group, or keep their configuration. Raises ``EmptyingError``."""
        return await self._running.publisher.delete_group(group, _options("", None, allow_empty))

    async def rollback(self, group: str, to: int, *, message: str = "") -> PushResult:
        """Make a new revision with the content of an old one."""
        return await self._running.publisher.rollback(group, to, _options(message))

    async def wait_taken(self, pushed: PushResult, timeout_s: float = 30.0) -> Convergence:
        """Wait until a push is ACKed by all nodes that were connected then, or NACKed by one, or ``timeout_s`` is over.

        Returns how many of these nodes have it; ``verdict_of`` of the result is ``DONE``, ``PENDING`` or ``REFUSED``.
        Raises ``NotFoundError`` for a push that is not among the last 64.
        """
        verdict = await self._running.publisher.groups.pushes.wait_for_verdict(pushed.group, pushed.revision, timeout_s)
        if verdict is None:
            raise NotFoundError(f"revision {pushed.revision} of group {pushed.group!r} is not a recent push")
        return verdict

    def revision(self, group: str) -> int:
        """The revision of a group; 0 if there is no such group."""
        content = self._running.publisher.groups.find(group)
        return content.revision if content is not None else 0

    def groups(self) -> list[str]:
        """The names of all groups."""
        return list(self._running.publisher.groups.names())

    async def _decoded(self, document: Mapping[str, Any], resources_n: int) -> DecodedPush:
        return await run_sized(partial(self._running.decoder.values, dict(document)), resources=resources_n)

    # The fleet

    def nodes(self, group: str | None = None) -> Iterator[NodeState]:
        """Nodes by id, connected or recently disconnected, with their streams and the state of each type."""
        return self._running.fleet.nodes(group)

    def node(self, id: str) -> NodeState | None:
        """One node; None if it is unknown."""
        return self._running.fleet.node(id)

    def nacks(self, group: str | None = None, node: str | None = None) -> Iterator[NackRecord]:
        """NACK records, the newest first."""
        return self._running.fleet.nack_log.select(group, node)

    def disconnect(self, node: str) -> int:
        """End the streams of a node, which may reconnect at once; returns their number."""
        return self._running.grpc.disconnect(node)

    def regroup(self) -> None:
        """Call ``group_of`` again for all nodes. Use this when its answers have changed."""
        self._running.cache.choose_groups()
        self._running.grpc.registry.wake(self._running.cache.groups())

    # Endpoints

    async def follow_service(self, group: str, assignment: str, service: str) -> bool:
        """Let an assignment follow a service: its endpoints are the instances of the service, from any source.

        ``assignment`` is the name of the cluster, or its ``eds_cluster_config.service_name``. This makes no revision.
        Returns False if it follows the service already.

        Raises ``NotFoundError``, ``ValidationError``, ``ConflictError``.
        """
        check_assignment(self._running.publisher.groups.find(group), assignment)
        bindings = self._running.feature(ServedServices).bindings
        return await bindings.put((group, assignment), Binding(service), by=Caller(ACTOR))

    async def unfollow(self, group: str, assignment: str) -> None:
        """End `follow_service` for an assignment: the pushed one is served again. Raises ``NotFoundError``."""
        await self._running.feature(ServedServices).bindings.delete((group, assignment), by=Caller(ACTOR))


def embedded_settings(grpc: str, http: str | None, data: str | Path | None, settings: Mapping[str, Any]) -> Settings:
    """The settings of an embedded server. Raises ``SettingsError``."""
    ports = {"grpc": _address(grpc, "grpc"), **({"http": _address(http, "http")} if http is not None else {})}
    store = {"kind": "memory"} if data is None else {"kind": "sqlite", "data": str(data)}
    return make_settings(merge(settings, {"server": ports, "store": store}))


def _address(text: str, name: str) -> dict[str, object]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingsError(f"{name}: expected HOST:PORT, not {text!r}")
    return {"host": host, "port": int(port)}


def _options(message: str, if_revision: int | None = None, allow_empty: bool = False) -> PushOptions:
    meta = Caller(ACTOR).meta(message)
    return PushOptions(expect=if_revision, meta=meta, allow_empty=allow_empty)
