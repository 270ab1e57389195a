"""Runs the sources of the settings, each in its own task. A source that ends is run again after a growing delay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import monotonic, time

import structlog

from xds.services.core.source import Sink, Source
from xds.services.growing_delay import GrowingDelay
from xds.services.paced_sink import PacedSink
from xds.services.source_settings import SourceSettings

STEADY_S = 60.0  # a source that ran for this long is run again after the shortest delay
CLOSE_S = 5.0  # a cancelled source may take this long to end

MakeSink = Callable[[str, str, float | None], Sink]  # name, kind, and ``hold_share`` of `ServiceCatalog.sink`

_log = structlog.get_logger(logger_name="xds.services.sources")


@dataclass(frozen=True, slots=True)
class SourceRun:
    """How a source runs. The catalog knows what it has shown. Times are epoch seconds.

    ``started_at`` is when it was run first, ``restarts_n`` how often it was run again. ``retry_at`` is when it is run
    again; None while it runs. ``waiting_n`` services have changes that wait because of the rate limit, since
    ``waiting_since``.
    """

    name: str
    kind: str
    started_at: float = 0.0
    restarts_n: int = 0
    retry_at: float | None = None
    waiting_n: int = 0
    waiting_since: float | None = None


class Sources:
    """All sources of the settings. ``make_sink`` gives the catalog's sink for a name and a kind."""

    def __init__(
        self, sources: Iterable[tuple[Source, SourceSettings]] = (), make_sink: MakeSink | None = None
    ) -> None:
        self._make_sink = make_sink
        self._has_started = False
        self._running: dict[str, _RunningSource] = {}
        for source, settings in sources:
            self._add(source, settings)

    def start(self) -> None:
        """Run all sources."""
        self._has_started = True
        for running in self._running.values():
            running.start()

    async def replace(self, removed: Iterable[str], new: Iterable[tuple[Source, SourceSettings]]) -> None:
        """Stop the sources named by ``removed``, then run ``new`` ones, with the same names or others.

        The instances of a source stay in the catalog, and belong to a new source of the same name.
        """
        ended = [self._running.pop(name) for name in removed if name in self._running]
        await asyncio.gather(*(running.close() for running in ended))
        for source, settings in new:
            added = self._add(source, settings)
            if self._has_started:
                added.start()

    def _add(self, source: Source, settings: SourceSettings) -> _RunningSource:
        assert self._make_sink is not None
        added = self._running[source.name] = _RunningSource(source, settings, self._make_sink)
        return added

    async def close(self) -> None:
        """Stop all sources. Their instances stay in the catalog."""
        await asyncio.gather(*(running.close() for running in self._running.values()))

    def runs(self) -> dict[str, SourceRun]:
        """How each source runs, by name."""
        return {name: self._running[name].state() for name in sorted(self._running)}


class _RunningSource:
    """One source and its task."""

    def __init__(self, source: Source, settings: SourceSettings, make_sink: MakeSink) -> None:
        self._source = source
        self._settings = settings
        self._make_sink = make_sink
        self._sink: PacedSink | None = None
        self._task: asyncio.Task[None] | None = None
        self._started_at = 0.0
        self._restarts_n = 0
        self._retry_at: float | None = None

    def start(self) -> None:
        self._started_at = time()
        inner = self._make_sink(self._source.name, self._source.kind, self._settings.hold_share)
        self._sink = PacedSink(inner, self._settings.changes_per_s)
        self._task = asyncio.create_task(self._run(self._sink), name=f"source {self._source.name}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            _, pending = await asyncio.wait((self._task,), timeout=CLOSE_S)
            if pending:
                _log.error("source.not_ended", source=self._source.name, kind=self._source.kind, waited_s=CLOSE_S)
        if self._sink is not None:
            self._sink.close()

    def state(self) -> SourceRun:
        waiting_n, since = (self._sink.waiting_n, self._sink.waiting_since) if self._sink is not None else (0, None)
        return SourceRun(
            self._source.name, self._source.kind, self._started_at, self._restarts_n, self._retry_at, waiting_n, since
        )

    async def _run(self, sink: PacedSink) -> None:
        delay = GrowingDelay(self._settings.retry_s, self._settings.longest_retry_s)
        while True:
            began = monotonic()
            message = await self._run_once(sink)
            if monotonic() - began >= STEADY_S:
                delay.reset()
            self._restarts_n += 1
            sink.failed(message)
            waited_s = delay.next_s()
            self._retry_at = time() + waited_s
            await asyncio.sleep(waited_s)
            self._retry_at = None

    async def _run_once(self, sink: PacedSink) -> str:
        """Run the source until it ends. Returns the reason of the end."""
        try:
            await self._source.run(sink)
        except asyncio.CancelledError as error:
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return f"a task of the source was cancelled: {error}"
        except Exception as error:  # a source may have any bug
            _log.exception("source.ended", source=self._source.name, kind=self._source.kind)
            return f"{type(error).__name__}: {error}"
        return "the source ended by itself"
