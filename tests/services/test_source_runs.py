"""Running sources: what ends is run again, and what floods is bounded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from time import monotonic, time
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.recording_sink import RecordingSink
from xds.services import source_runs as sources_module
from xds.services.catalog import ServiceCatalog
from xds.services.core.instance import Instance
from xds.services.core.source import Sink
from xds.services.paced_sink import PacedSink
from xds.services.source_runs import Sources
from xds.services.source_settings import PythonSettings

Run = Callable[[Sink], Awaitable[None]]


class Scripted:
    """A source that does what the test says."""

    kind = "python"

    def __init__(self, run: Run, name: str = "mine") -> None:
        self.name = name
        self._run = run

    async def run(self, sink: Sink) -> None:
        await self._run(sink)


def settings(retry_s: float = 0.05, longest_retry_s: float = 0.2, changes_per_s: float = 1000) -> PythonSettings:
    return PythonSettings(
        kind="python", object="a:b", retry_s=retry_s, longest_retry_s=longest_retry_s, changes_per_s=changes_per_s
    )


def one(number: int = 1) -> Instance:
    return Instance(f"i{number}", f"10.0.{number // 250}.{number % 250 + 1}", 80)


@asynccontextmanager
async def running(*scripts: Run, **options: float) -> AsyncIterator[tuple[Sources, ServiceCatalog]]:
    catalog = ServiceCatalog()
    made = [(Scripted(run, f"source-{n}"), settings(**options)) for n, run in enumerate(scripts)]
    sources = Sources(made, catalog.sink)
    catalog.start()
    sources.start()
    try:
        yield sources, catalog
    finally:
        await sources.close()
        await catalog.close()


async def eventually(is_so: Callable[[], bool], timeout_s: float = 20) -> None:
    async with asyncio.timeout(timeout_s):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_a_source_that_ends_is_run_again_and_its_last_set_stays() -> None:
    runs: list[float] = []

    async def run(sink: Sink) -> None:
        runs.append(monotonic())
        if len(runs) == 1:
            sink.put("web", [one()])
        await asyncio.sleep(0.1)
        raise RuntimeError("the connection broke")

    async with running(run) as (sources, catalog):
        await eventually(lambda: len(runs) >= 5)
        (status,) = catalog.statuses()
        assert (status.is_failing, status.message) == (True, "RuntimeError: the connection broke")
        assert [each.instance for each in catalog.instances("web")] == [one()]
        assert sources.runs()["source-0"].restarts_n >= 4


async def test_the_delay_grows_to_its_limit() -> None:
    began: list[float] = []

    async def run(sink: Sink) -> None:
        began.append(monotonic())
        raise RuntimeError

    # Printing tracebacks takes longer than the delays.
    with capture_logs():
        async with running(run, retry_s=0.1, longest_retry_s=0.4) as (sources, _):
            left_s = list[float]()

            def has_run() -> bool:
                if (retry_at := sources.runs()["source-0"].retry_at) is not None:
                    left_s.append(retry_at - time())
                return len(began) >= 6

            await eventually(has_run)
    assert 0.1 < max(left_s) <= 0.4
    delays = [after - before for before, after in pairwise(began[:6])]
    for delay, longest in zip(delays, (0.1, 0.2, 0.4, 0.4, 0.4), strict=True):
        assert longest / 2 <= delay, delays


@pytest.mark.parametrize("how", ["returns", "cancels", "wrong"])
async def test_a_source_that_ends_in_an_odd_way_is_run_again(how: str) -> None:
    runs = 0

    async def run(sink: Sink) -> None:
        nonlocal runs
        runs += 1
        if how == "cancels":
            task = asyncio.create_task(asyncio.sleep(10))
            task.cancel()
            await task
        if how == "wrong":
            wrong: Any = {"address": "10.0.0.1"}
            sink.put("web", [wrong])

    async with running(run) as (_, catalog):
        await eventually(lambda: runs >= 3)
        messages = {
            "returns": "ended by itself",
            "cancels": "was cancelled",
            "wrong": "service 'web': dict is not an Instance",
        }
        assert messages[how] in catalog.statuses()[0].message


async def test_one_source_that_fails_leaves_the_others_alone() -> None:
    async def good(sink: Sink) -> None:
        for number in range(1_000):
            sink.put("web", [one(number)])
            await asyncio.sleep(0.01)

    async def bad(sink: Sink) -> None:
        raise RuntimeError

    async with running(bad, good) as (sources, catalog):
        await eventually(lambda: sources.runs()["source-0"].restarts_n > 3)
        assert [status.is_failing for status in catalog.statuses()] == [True, False]
        before = catalog.statuses()[1].changes_n
        await eventually(lambda: catalog.statuses()[1].changes_n > before)


async def test_closing_ends_a_source_that_cleans_up() -> None:
    began, ended = asyncio.Event(), False

    async def run(sink: Sink) -> None:
        nonlocal ended
        try:
            began.set()
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(0.05)
            ended = True

    async with running(run):
        await began.wait()
    assert ended


async def test_a_source_that_does_not_end_does_not_keep_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xds.services.source_runs.CLOSE_S", 0.2)
    begun, released = asyncio.Event(), asyncio.Event()

    async def run(sink: Sink) -> None:
        begun.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    async with running(run):
        await begun.wait()
        began = monotonic()
    assert monotonic() - began < 5
    released.set()


# The bound on changes


async def test_a_flood_is_bounded_and_ends_with_the_latest_state() -> None:
    inner = RecordingSink()
    sink = PacedSink(inner, 100)
    began = monotonic()
    for round in range(50):
        for service in range(20):
            sink.put(f"s{service}", [one(round)])
    await inner.wait_until(lambda: all(inner.services.get(f"s{n}") == (one(49),) for n in range(20)))
    took_s = monotonic() - began
    puts = sum(method == "put" for method, _ in inner.calls)
    assert puts <= 100 + 100 * took_s + 2, (puts, took_s)
    assert sink.waiting_n == 0 and sink.waiting_since is None


async def test_a_flood_over_time_is_bounded() -> None:
    inner = RecordingSink()
    sink = PacedSink(inner, 50)
    began, number = monotonic(), 0
    while (took_s := monotonic() - began) < 1.5:
        number += 1
        sink.put("web", [one(number % 1000)])
        await asyncio.sleep(0.001)
    assert 50 <= sum(method == "put" for method, _ in inner.calls) <= 50 + took_s * 50 + 5
    await inner.wait_until(lambda: inner.services["web"] == (one(number % 1000),))


async def test_waiting_changes_are_not_overtaken() -> None:
    inner = RecordingSink()
    sink = PacedSink(inner, 10)
    for number in range(30):
        sink.put(f"s{number}", [one()])
    sink.replace({"web": [one(1)], "api": [one(1)]})
    sink.put("web", [one(2)])
    sink.remove("api")
    sink.put("more", [one(3)])
    assert sink.waiting_n > 0 and sink.waiting_since is not None
    await inner.wait_until(lambda: sink.waiting_n == 0)
    assert inner.services == {"web": (one(2),), "more": (one(3),)}
    sink.put("web", [one(4)])
    sink.remove("web")
    await inner.wait_until(lambda: "web" not in inner.services)


async def test_one_large_reading_delays_the_next_changes_by_a_bounded_time() -> None:
    inner = RecordingSink()
    sink = PacedSink(inner, 100)
    sink.replace({f"s{number}": [one(number)] for number in range(20_000)})
    assert len(inner.services) == 20_000, "the first reading passes at once"
    began = monotonic()
    sink.put("s0", [one(7)])
    await inner.wait_until(lambda: inner.services["s0"] == (one(7),))
    assert monotonic() - began < 15, "a second; 200 at the bound of a hundred changes a second"


async def test_a_flood_of_instances_is_bounded() -> None:
    """The catalog looks at each instance: a million of them count as many changes."""
    inner = RecordingSink()
    sink = PacedSink(inner, 100)
    million = [one()] * 1_000_000
    began, number = monotonic(), 0
    while (took_s := monotonic() - began) < 1.0:
        number += 1
        sink.put("web", [*million, one(number)])
        await asyncio.sleep(0.001)
    assert 1 <= sum(method == "put" for method, _ in inner.calls) <= 1 + took_s
    await inner.wait_until(lambda: inner.services["web"][-1] == one(number))


async def test_a_flood_of_whole_readings_is_bounded() -> None:
    inner = RecordingSink()
    sink = PacedSink(inner, 100)
    began, number = monotonic(), 0
    while (took_s := monotonic() - began) < 1.5:
        number += 1
        sink.replace({f"s{n}": [one(number % 1000)] for n in range(100)})
        await asyncio.sleep(0.001)
    assert 1 <= sum(method == "replace" for method, _ in inner.calls) <= 3 + took_s
    await inner.wait_until(lambda: inner.services["s0"] == (one(number % 1000),))


async def test_waiting_changes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("xds.services.paced_sink.WAITING_LIMIT", 50)
    inner = RecordingSink()
    sink = PacedSink(inner, 1)
    for number in range(1_000):
        sink.put(f"s{number}", [one()])
    assert sink.waiting_n == 50
    assert "more than 50 changed services wait" in inner.failures[-1]
    sink.close()


async def test_a_source_that_was_replaced_and_does_not_end_puts_nothing_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources_module, "CLOSE_S", 0.05)
    sinks: list[Sink] = []
    go_on = asyncio.Event()

    async def stubborn(sink: Sink) -> None:
        sink.put("web", [one(1)])
        sinks.append(sink)
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()

    async def successor(sink: Sink) -> None:
        sink.put("web", [one(2)])
        await asyncio.Event().wait()

    async with running(stubborn) as (sources, catalog):
        async with asyncio.timeout(5):
            while not sinks:
                await asyncio.sleep(0.01)
        await sources.replace(["source-0"], [(Scripted(successor, "source-0"), settings())])
        assert list(sources.runs()) == ["source-0"]
        async with asyncio.timeout(5):
            while [each.instance.id for each in catalog.instances("web") if each.drains_until is None] != ["i2"]:
                await asyncio.sleep(0.01)
        (old,) = sinks
        old.put("web", [one(3)])
        old.replace({"api": [one(4)]})
        old.failed("it is late")
        old.rejected([])
        old.alive()
        assert [each.instance.id for each in catalog.instances("web") if each.drains_until is None] == ["i2"]
        assert catalog.instances("api") == ()
        assert catalog.statuses()[0].failures_n == 0
        go_on.set()
