"""The load generator: thousands of xDS streams that acknowledge what comes, in worker processes of their own.

    fleet = Fleet(FleetSpec("127.0.0.1:18000", 1000, "sotw", (Subscription(CLUSTER),)))
    await fleet.start()
    fleet.mark()
    ...  # push
    ack = await fleet.acked(1000, timeout_s=60)
    await fleet.stop()

A client must not cost more than the server under test: see `bench.load.worker` for what each process does, and
``python -m bench.load`` for what a message and its ACK cost there.
"""

from __future__ import annotations

import asyncio
import base64
import time
from array import array
from collections import Counter
from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

from bench.load.process import ENDED, FleetError, WorkerProcess
from bench.load.spec import Ack, FleetSpec, Subscription, Variant

__all__ = ["Ack", "Fleet", "FleetError", "FleetSpec", "Subscription", "Variant"]


Json = dict[str, Any]


class Fleet:
    """Streams as ``spec`` says. ``start`` it first, and ``stop`` it whatever happens; or use it as a context."""

    def __init__(self, spec: FleetSpec) -> None:
        self.spec = spec
        self._workers: list[WorkerProcess] = []
        self._told = asyncio.Event()

    async def start(self, timeout_s: float = 120.0) -> None:
        """Connect all; returns when every stream has ACKed its first response of every subscription."""
        sizes = [
            min(self.spec.worker_streams, self.spec.streams - first)
            for first in range(0, self.spec.streams, self.spec.worker_streams)
        ]
        self._workers = [WorkerProcess(self._told) for _ in sizes]
        asked = [
            worker.ask(
                "start",
                spec=self.spec.to_json(),
                first=self.spec.first_node + place * self.spec.worker_streams,
                streams=size,
            )
            for place, (worker, size) in enumerate(zip(self._workers, sizes, strict=True))
        ]
        await self._all(asked, timeout_s, "the first answers")

    async def stop(self) -> None:
        """Close all connections and end the workers."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))
        self._workers = []

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.stop()

    # ACKs

    def mark(self, record: bool = False) -> None:
        """Begin a new count of ACKs; with ``record`` each is kept for `acks`. In force when it returns."""
        for worker in self._workers:
            worker.mark(record)

    async def acked(self, count: int, timeout_s: float) -> Ack:
        """Wait for ``count`` ACKs since the mark; what was sent until then. Raises ``FleetError`` after the timeout."""
        deadline = time.monotonic() + timeout_s
        while (ack := self._ack()).count < count:
            self._told.clear()
            try:
                async with asyncio.timeout(deadline - time.monotonic()):
                    await self._told.wait()
            except TimeoutError:
                raise FleetError(f"{ack.count} of {count} ACKs in {timeout_s:g} s; {self._troubles()}") from None
            if any(worker.has_ended for worker in self._workers):
                raise FleetError(ENDED)
        return ack

    def _ack(self) -> Ack:
        acks = [worker.ack for worker in self._workers if worker.ack.count]
        if not acks:
            return Ack(0, 0.0, 0.0)
        return Ack(sum(ack.count for ack in acks), min(ack.first_at for ack in acks), max(ack.last_at for ack in acks))

    def ack_times(self) -> dict[tuple[str, str], array[float]]:
        """When each ACK since ``mark(record=True)`` was sent, by type URL and version."""
        merged: dict[tuple[str, str], array[float]] = {}
        for worker in self._workers:
            for url, version, times, _ in worker.ask_now("acks")["acks"]:
                merged.setdefault((url, version), array("d")).frombytes(base64.b64decode(times))
        return merged

    def acks(self) -> list[tuple[float, str, str]]:
        """The same in the order of time: (sent at, type URL, version)."""
        return sorted((at, url, version) for (url, version), times in self.ack_times().items() for at in times)

    def stream_acks(self) -> list[tuple[float, int, str]]:
        """The same with who sent it: (sent at, number of the stream, version), of all types."""
        found: list[tuple[float, int, str]] = []
        for worker in self._workers:
            for _, version, times, streams in worker.ask_now("acks")["acks"]:
                sent_at, senders = array("d", base64.b64decode(times)), array("i", base64.b64decode(streams))
                found.extend((at, sender, version) for at, sender in zip(sent_at, senders, strict=True))
        return sorted(found)

    # Disturbances

    async def cut(self, timeout_s: float = 60.0) -> None:
        """Close all connections at once, by TCP resets; returns when they are closed."""
        await self._all([worker.ask("cut") for worker in self._workers], timeout_s, "the end of all connections")

    async def reconnect(self, known: bool = True, timeout_s: float = 120.0) -> None:
        """All streams come back at once; returns when each was answered.

        With ``known`` they say what they hold: SotW the version, Delta the version of each resource. Nobody waits for
        an answer to Delta subscriptions by name and to SotW wildcards then: there is none as long as nothing differs.
        """
        asked = [worker.ask("reconnect", known=known) for worker in self._workers]
        await self._all(asked, timeout_s, "the answers to streams that came back")

    def pause(self, streams: int) -> None:
        """The first ``streams`` streams (whole connections) read nothing more from their sockets."""
        for place, worker in enumerate(self._workers):
            worker.ask_now("pause", streams=max(0, streams - place * self.spec.worker_streams))

    def resume(self) -> None:
        """All streams read again."""
        for worker in self._workers:
            worker.ask_now("resume")

    # What was counted

    def stats(self) -> Json:
        """``messages``, ``bytes_in``, ``bytes_out``, ``errors`` (what to how often) and ``cpu_s`` of the workers since
        the start; ``waits``, seconds until each stream was answered, since it was started or came back last;
        ``unanswered`` streams now. Refused and lost streams are among the errors, and tried again.
        """
        parts = [worker.ask_now("stats") for worker in self._workers]
        errors: Counter[str] = Counter()
        for part in parts:
            errors.update(part["errors"])
        sums = {name: sum(part[name] for part in parts) for name in ("messages", "bytes_in", "bytes_out", "unanswered")}
        waits = [wait for part in parts for wait in part["waits"]]
        return {**sums, "errors": dict(errors), "waits": waits, "cpu_s": self.cpu_s()}

    def cpu_s(self) -> float:
        """User and system time of the workers so far."""
        return sum(worker.cpu_s() for worker in self._workers)

    async def _all(self, asked: Sequence[Coroutine[Any, Any, Json]], timeout_s: float, what: str) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*asked)
        except TimeoutError:
            raise FleetError(f"{what} did not come in {timeout_s:g} s; {self._troubles()}") from None

    def _troubles(self) -> str:
        stats = self.stats()
        return f"{stats['unanswered']} streams unanswered, errors {stats['errors']}"
