"""Runs the sources of the settings: each in a task of its own, begun anew after a growing delay when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import random
from time import monotonic, time

import structlog

from xds.catalog.source import Sink, Source
from xds.control.change_bound import ChangeBound
from xds.control.source_settings import SourceSettings
from xds.control.source_sink import SourceCondition, SourceSink
from xds.fleet.event_log import EventKind, EventLog
from xds.model.errors import NotFoundError, Violation

STEADY_S = 60.0  # a source that ran so long begins with the shortest delay again
EVENTS_PER_S = 1 / 60  # of one source: a source that flaps must not displace the history of changes
EVENTS_BURST = 10

MakeSink = Callable[[str, str], Sink]

_log = structlog.get_logger(logger_name="xds.control.sources")


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """A source at one moment. ``waiting_n``: services whose latest state waits for the bound on changes.

    ``retry_s``: when it is run again (epoch seconds), if it has ended.
    """

    name: str
    kind: str
    condition: SourceCondition
    waiting_n: int
    retry_s: float | None


class Sources:
    """All sources with their condition. ``make_sink`` gives the sink of the catalog for a name and a kind."""

    def __init__(self, sources: Sequence[tuple[Source, SourceSettings]], make_sink: MakeSink, events: EventLog) -> None:
        self._running = {
            source.name: _RunningSource(source, settings, make_sink, events) for source, settings in sources
        }

    def start(self) -> None:
        """Run all sources."""
        for running in self._running.values():
            running.start()

    async def close(self) -> None:
        """Stop all sources. What they gave last stays in the catalog."""
        await asyncio.gather(*(running.close() for running in self._running.values()))

    def statuses(self) -> list[SourceStatus]:
        """All sources by name."""
        return [self._running[name].status() for name in sorted(self._running)]

    def status(self, name: str) -> SourceStatus:
        """One source. Raises ``NotFoundError``."""
        if name not in self._running:
            raise NotFoundError(f"no source named {name[:200]!r} runs here")
        return self._running[name].status()


class _RunningSource:
    """One source and its task."""

    def __init__(self, source: Source, settings: SourceSettings, make_sink: MakeSink, events: EventLog) -> None:
        self._source = source
        self._settings = settings
        self._make_sink = make_sink
        self._journal = SourceJournal(source.name, source.kind, events)
        self._sink: SourceSink | None = None
        self._task: asyncio.Task[None] | None = None
        self._retry_s: float | None = None

    def start(self) -> None:
        inner = self._make_sink(self._source.name, self._source.kind)
        self._sink = SourceSink(inner, self._settings.changes_per_s, self._journal)
        self._task = asyncio.create_task(self._run(self._sink), name=f"source {self._source.name}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._sink is not None:
            self._sink.close()
        self._journal.close()

    def status(self) -> SourceStatus:
        sink = self._sink
        condition = sink.condition if sink is not None else SourceCondition()
        waiting_n = sink.waiting_n if sink is not None else 0
        return SourceStatus(self._source.name, self._source.kind, condition, waiting_n, self._retry_s)

    async def _run(self, sink: SourceSink) -> None:
        delay_s = self._settings.retry_s
        while True:
            began = monotonic()
            try:
                await self._source.run(sink)
                message = "the source ended by itself"
            except asyncio.CancelledError as error:
                if (task := asyncio.current_task()) is not None and task.cancelling():
                    raise
                message = f"a task of the source was cancelled: {error}"
            except Exception as error:  # a source may have any bug
                _log.exception("source.ended", source=self._source.name, kind=self._source.kind)
                message = f"{type(error).__name__}: {error}"
            if monotonic() - began >= STEADY_S:
                delay_s = self._settings.retry_s
            sink.condition.restarts_n += 1
            sink.failed(message)
            waited_s = delay_s * (0.5 + random() / 2)  # noqa: S311
            self._retry_s = time() + waited_s
            await asyncio.sleep(waited_s)
            self._retry_s = None
            delay_s = min(delay_s * 2, self._settings.longest_retry_s)


class SourceJournal:
    """Records in the event log and the log how a source is: a `SourceTold`.

    The events of one source are bounded in number. Of those beyond, the latest is recorded as soon as it may be.
    """

    def __init__(self, name: str, kind: str, events: EventLog) -> None:
        self._about: Mapping[str, str | int] = {"source": name, "kind": kind}
        self._events = events
        self._bound = ChangeBound(EVENTS_PER_S, EVENTS_BURST, monotonic())
        self._latest: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._left_out_n = 0

    def failing(self, message: str) -> None:
        """As in `SourceTold`."""
        self._record("failing", message, {})

    def recovered(self, failed_s: float) -> None:
        """As in `SourceTold`."""
        self._record("recovered", "", {"failed_s": round(failed_s)})

    def rejected(self, findings: tuple[Violation, ...], findings_n: int) -> None:
        """As in `SourceTold`."""
        if findings_n:
            self._record("rejected", str(findings[0]), {"findings": findings_n})
        else:
            self._record("accepted", "", {})

    def close(self) -> None:
        """Record nothing any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _record(self, action: str, message: str, more: Mapping[str, str | int]) -> None:
        now = time()
        if self._bound.admits(monotonic()):
            self._latest = None
            self._write(action, message, now, more)
            return
        self._left_out_n += 1
        self._latest = partial(self._write, action, message, now, more)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._bound.wait_s(), self._write_latest)

    def _write_latest(self) -> None:
        self._timer = None
        latest, self._latest = self._latest, None
        if latest is not None:
            self._bound.admits(monotonic())
            self._left_out_n -= 1
            latest()

    def _write(self, action: str, message: str, now: float, more: Mapping[str, str | int]) -> None:
        self._bound.spend(1)
        details = {**self._about, **more}
        if self._left_out_n:
            details["events_left_out"] = self._left_out_n
            self._left_out_n = 0
        self._events.record(EventKind.SOURCE, action, now, message=message, details=details)
        log = _log.warning if action in ("failing", "rejected") else _log.info
        log(f"source.{action}", error_message=message, **details)
