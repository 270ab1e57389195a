"""`Server`: the xDS server embedded in a program, on the event loop of the program."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from xds.app.features import with_sources
from xds.app.server import Hosting
from xds.app.server import Server as StandaloneServer
from xds.app.settings import make_settings
from xds.calls.call import Answer, ApiCall
from xds.client.methods import ArrivingAnswer, AsyncMethods
from xds.client.table import Calls
from xds.codec.schema import add_descriptor_sets
from xds.embed.address import ServerAddress
from xds.embed.grouping import GuardedChoice
from xds.embed.hooks import Hooks, end_hooks, run_hooks
from xds.embed.local_sender import LocalSender
from xds.model.node import Node
from xds.server.logs import configure_logging
from xds.services.core.source import Source
from xds.services.source_settings import SourceSettings
from xds.settings.settings import Settings, SettingsError, merge
from xds.tasks.lifecycle import Phase

DEFAULT_GRPC = "127.0.0.1:18000"


class Server(AsyncMethods, Calls):
    """The xDS server: ``async with Server() as server``. It serves inside the context, and drains at its end.

    Its methods are those of ``AsyncClient``: calls of the admin API, without a connection. Results and errors are those
    of `xds.client`. The history has ``program`` as the actor.

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
        self._recording.enter_context(server.fleet.events.watching(self._hooks.kinds()))
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

    async def send(self, call: ApiCall[Any], page: str = "") -> Answer:
        """The answer to a call, whatever its status."""
        return await LocalSender(self._running.application).send(call, page)

    def begun(self, call: ApiCall[Any]) -> AbstractAsyncContextManager[ArrivingAnswer]:
        """The answer to a call while it arrives."""
        return LocalSender(self._running.application).begun(call)

    @property
    def has_ended(self) -> bool:
        """Whether the server drains: events end then."""
        return self._server is None or self._server.phase is Phase.DRAINING

    def regroup(self) -> None:
        """Call ``group_of`` again for all nodes. Use this when its answers have changed."""
        self._running.cache.choose_groups()
        self._running.grpc.registry.wake(self._running.cache.groups())


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
