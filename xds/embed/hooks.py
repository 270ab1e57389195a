"""Hooks: functions of the embedding program that are called on events.

Hooks are called for the events of the event log, one event after the other. A stream never waits for a hook. Hooks that
are too slow miss events; then ``on_lagged`` is called.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

import structlog

from xds.admin.models.events import ServerEvent
from xds.admin.routes.events import follow
from xds.fleet.event_log import DEFAULT_KINDS, EventFilter, EventKind, EventLog, FleetEvent

Hook = Callable[[ServerEvent], Awaitable[None] | None]
LaggedHook = Callable[[], Awaitable[None] | None]

SILENCE_S = 3600.0
CLOSE_S = 5.0  # after the drain, for hooks of the last events

_log = structlog.get_logger(logger_name="xds.embed")


@dataclass(frozen=True, slots=True)
class Hooks:
    """Functions or coroutine functions that are called with a `ServerEvent`, each one optional.

    * ``on_ack``: a node ACKed a type: ``node``, ``group``, ``type``, ``revision`` and ``details["version"]``;
    * ``on_synced``: a node has ACKed all its types at ``revision``;
    * ``on_nack``: a node rejected a type: ``message`` in the client's words, ``details["guilty"]`` once the rejected
      names are known (the hook is called again when they are);
    * ``on_connected``, ``on_gone``: the first stream of a node opened, its last one closed;
    * ``on_event``: every event except ACKs, also those above;
    * ``on_lagged``: events are missing before the next one, because hooks were too slow.

    An exception of a hook is logged, and the next event follows.
    """

    on_ack: Hook | None = None
    on_synced: Hook | None = None
    on_nack: Hook | None = None
    on_connected: Hook | None = None
    on_gone: Hook | None = None
    on_event: Hook | None = None
    on_lagged: LaggedHook | None = None

    def kinds(self) -> frozenset[EventKind]:
        """The kinds of events to read. ACKs are recorded only while a hook reads them, because they cost CPU."""
        if self.on_ack is not None or self.on_synced is not None:
            return frozenset(EventKind)
        return DEFAULT_KINDS

    def of(self, event: FleetEvent) -> Iterator[Hook]:
        """The hooks of an event."""
        hooks = {
            (EventKind.ACK, "acked"): self.on_ack,
            (EventKind.ACK, "synced"): self.on_synced,
            (EventKind.NACK, "opened"): self.on_nack,
            (EventKind.NACK, "narrowed"): self.on_nack,
            (EventKind.NODE, "connected"): self.on_connected,
            (EventKind.NODE, "disconnected"): self.on_gone,
        }.get((event.kind, event.action))
        if hooks is not None:
            yield hooks
        if self.on_event is not None and event.kind is not EventKind.ACK:
            yield self.on_event


async def run_hooks(log: EventLog, hooks: Hooks, cursor: int) -> None:
    """Call the hooks of all events after ``cursor`` until the log is closed."""
    async for page in follow(log, cursor, EventFilter(hooks.kinds()), SILENCE_S):
        if page is None:
            continue
        if page.lagged and hooks.on_lagged is not None:
            await _call("on_lagged", hooks.on_lagged)
        for event in page.events:
            for hook in hooks.of(event):
                await _call(f"{event.kind}.{event.action}", hook, ServerEvent.from_domain(event))


async def end_hooks(running: asyncio.Task[None]) -> None:
    """Wait ``CLOSE_S`` for the hooks of the last events, then cancel them."""
    _, pending = await asyncio.wait((running,), timeout=CLOSE_S)
    if pending:
        running.cancel()
        await asyncio.wait((running,))


async def _call(what: str, hook: Callable[..., Awaitable[None] | None], *given: ServerEvent) -> None:
    try:
        result = hook(*given)
        if inspect.isawaitable(result):
            await result
    except Exception:
        _log.exception("hook.failed", hook=what)
