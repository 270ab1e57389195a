"""A process of the load generator: commands as JSON lines on standard input, answers and counts on standard output.

Answers carry the ``id`` of their command. Lines with ``acks`` and without an ``id`` have the ACKs since the last mark,
at most every few milliseconds and only while there are new ones. The end of the input ends the process.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import resource
import ssl
import sys
from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from itertools import islice
from typing import Any

import uvloop

from bench.load.client import KnownResources, Requests, XdsStream
from bench.load.messages import Layouts, MessageReader, WholeReader
from bench.load.session import Reader, Session, Target
from bench.load.spec import ADS, METHODS, FleetSpec
from bench.load.tally import Tally
from xds.wire.http2.headers import encode

MAX_LINE_BYTES = 256 << 20
TELL_EVERY_S = 0.005
CONNECTING_AT_ONCE = 200

Json = dict[str, Any]


class Worker:
    """The sessions of this process. ``say`` writes a line."""

    def __init__(self, say: Callable[[Json], None]) -> None:
        self._say = say
        self._marks = 0
        self._tally = Tally(tell=self._tell_soon)
        self._sessions: list[Session] = []
        self._streams_per_connection = 1

    async def handle(self, command: Json) -> Json:
        """Do what a command says; its answer."""
        answer: Json | None = await getattr(self, f"do_{command.pop('do')}")(**command)
        return answer or {}

    async def do_start(self, spec: Json, first: int, streams: int) -> None:
        """Connect the streams numbered from ``first``; returns when each was answered."""
        read = FleetSpec.from_json(spec)
        self._streams_per_connection = read.streams_per_connection
        self._sessions = sessions(read, range(first, first + streams), self._tally)
        slots = asyncio.Semaphore(CONNECTING_AT_ONCE)
        await self._connect_all(slots)

    async def do_reconnect(self, known: bool) -> None:
        """After a cut: all at once; returns when each stream was answered."""
        if not known:
            for session in self._sessions:
                session.forget()
        self._tally.waits.clear()
        await self._connect_all(asyncio.Semaphore(len(self._sessions) or 1))

    async def _connect_all(self, slots: asyncio.Semaphore) -> None:
        async def connect(session: Session) -> None:
            async with slots:
                await session.connect()

        await asyncio.gather(*map(connect, self._sessions))
        await self._tally.all_answered.wait()
        gc.collect()
        gc.freeze()

    async def do_cut(self) -> None:
        """Close all connections; returns when they are closed."""
        for session in self._sessions:
            session.cut()
        await asyncio.gather(*(session.closed() for session in self._sessions))

    async def do_mark(self, record: bool) -> None:
        """Count ACKs anew."""
        self._marks += 1
        self._tally.mark(record)

    async def do_acks(self) -> Json:
        """The recorded ACKs: per type and version the times and the streams, as the bytes of arrays."""
        recorded = self._tally.recorded or {}
        return {
            "acks": [
                [url.decode(), version.decode(), packed(found.times), packed(found.streams)]
                for (url, version), found in recorded.items()
            ]
        }

    async def do_pause(self, streams: int) -> None:
        """The connections of the first ``streams`` streams are not read any more."""
        for session in islice(self._sessions, -(-streams // self._streams_per_connection)):
            session.pause()

    async def do_resume(self) -> None:
        """All are read again."""
        for session in self._sessions:
            session.resume()

    async def do_stats(self) -> Json:
        """What was counted since the start, and the waits since the last (re)connect."""
        tally = self._tally
        return {
            "messages": tally.messages,
            "bytes_in": tally.bytes_in,
            "bytes_out": tally.bytes_out,
            "unanswered": tally.unanswered,
            "errors": dict(tally.errors),
            "waits": tally.waits,
        }

    def _tell_soon(self) -> None:
        asyncio.get_running_loop().call_later(TELL_EVERY_S, self._tell)

    def _tell(self) -> None:
        tally = self._tally
        tally.is_told = False
        told = {"mark": self._marks, "acks": tally.acks, "first_at": tally.first_at, "last_at": tally.last_at}
        self._say(told)


def sessions(spec: FleetSpec, numbers: Sequence[int], tally: Tally) -> list[Session]:
    """The sessions of the streams with these numbers, in order; not connected yet."""
    known = KnownResources()
    requests = Requests(spec, known)
    target = make_target(spec, tally)

    def whole_reader() -> Reader:
        return WholeReader(target.layouts, known.note)

    def reader() -> Reader:
        return MessageReader(target.layouts)

    made = []
    for begin in range(0, len(numbers), spec.streams_per_connection):
        clients = [XdsStream(requests, number) for number in numbers[begin : begin + spec.streams_per_connection]]
        # The last one reads what Delta responses hold, for all: the first ones may be slow readers.
        reads_all = spec.variant == "delta" and begin + spec.streams_per_connection >= len(numbers)
        made.append(Session(target, clients, whole_reader if reads_all else reader))
    return made


def make_target(spec: FleetSpec, tally: Tally) -> Target:
    """Where to connect to, with the headers that every stream begins with."""
    host, _, port = spec.target.rpartition(":")
    tls = None
    if spec.ca is not None:
        tls = ssl.create_default_context(cafile=str(spec.ca))
        tls.set_alpn_protocols(["h2"])
    headers = (
        (":method", "POST"),
        (":scheme", "https" if tls else "http"),
        (":path", ADS + METHODS[spec.variant]),
        (":authority", spec.target),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "xds-bench-load"),
    )
    return Target(host, int(port), tls, encode(headers), tally, Layouts())


def packed(numbers: array[Any]) -> str:
    """The bytes of an array as text."""
    return base64.b64encode(numbers.tobytes()).decode()


def raise_file_limit() -> None:
    """Allow as many sockets as the system grants."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def lines() -> AsyncIterator[Json]:
    """The commands on standard input."""
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while line := await reader.readline():
        yield json.loads(line)


async def run() -> None:
    """Serve commands until the input ends; they overlap, so that a start that lasts can be asked about."""
    loop = asyncio.get_running_loop()
    output, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, sys.stdout.buffer)

    def say(answer: Json) -> None:
        output.write(json.dumps(answer).encode() + b"\n")

    async def handle(number: int, command: Json) -> None:
        try:
            say({"id": number, **await worker.handle(command)})
        except Exception as error:  # told to the parent, which raises it
            say({"id": number, "error": f"{type(error).__name__}: {error}"})

    worker = Worker(say)
    tasks: set[asyncio.Task[None]] = set()
    async for command in lines():
        task = asyncio.create_task(handle(command.pop("id"), command))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await worker.do_cut()


def main() -> None:
    raise_file_limit()
    gc.set_threshold(100_000, 50, 100)
    uvloop.run(run())


if __name__ == "__main__":
    main()
