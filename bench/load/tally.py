"""The counts of a worker: ACKs with their times and streams, streams that wait, and failures."""

from __future__ import annotations

import asyncio
from array import array
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Recorded:
    """The ACKs of one version: when each was sent, and the numbers of the streams."""

    times: array[float] = field(default_factory=lambda: array("d"))
    streams: array[int] = field(default_factory=lambda: array("i"))


@dataclass(slots=True)
class Tally:
    """What a worker counts. ACKs and their times are those since the last mark."""

    acks: int = 0
    first_at: float = 0.0
    last_at: float = 0.0
    recorded: dict[tuple[bytes, bytes], Recorded] | None = None
    unanswered: int = 0
    waits: list[float] = field(default_factory=list)
    messages: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    is_told: bool = False
    tell: Callable[[], None] = lambda: None
    all_answered: asyncio.Event = field(default_factory=asyncio.Event)

    def mark(self, record: bool) -> None:
        """Count anew."""
        self.acks = 0
        self.recorded = {} if record else None

    def expect(self, streams: int) -> None:
        """So many more streams, or fewer, wait for their first answers."""
        self.unanswered += streams
        if self.unanswered:
            self.all_answered.clear()
        else:
            self.all_answered.set()

    def note_answered(self, wait_s: float) -> None:
        """A stream has the first answers to all that it asked for."""
        self.waits.append(wait_s)
        self.expect(-1)

    def note_ack(self, now: float, type_url: bytes, version: bytes, stream: int) -> None:
        """An ACK was handed to its connection, which sends it as soon as the peer's windows let it."""
        if not self.is_told:
            self.is_told = True
            self.tell()
        if not self.acks:
            self.first_at = now
        self.acks += 1
        self.last_at = now
        if self.recorded is not None:
            recorded = self.recorded.setdefault((type_url, version), Recorded())
            recorded.times.append(now)
            recorded.streams.append(stream)
