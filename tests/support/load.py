"""Keep-alive HTTP load, and the result of each request."""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from tests.support.background import Background
from tests.support.process import LOOPBACK, wait_until

CONNECTIONS = 8
RPS = 300.0  # more shows nothing more of a change, and takes the machine from the tests beside it
PAUSE_S = 0.002
REQUEST_TIMEOUT_S = 10.0
RECONNECT_PAUSE_S = 0.05
BEHIND_LIMIT_S = 1.0  # the longest delay that is caught up with extra requests
FAILURE_SAMPLES = 8
ERRORS = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ValueError)


@dataclass(slots=True)
class LoadReport:
    """Counts since the start: requests that ended, those that failed, and the bodies of the good ones.

    ``failed_in_s`` counts the failures by the second in which they were seen, from 0.
    """

    total: int = 0
    failed: int = 0
    samples: list[str] = field(default_factory=list)
    bodies: Counter[str] = field(default_factory=Counter)
    failed_in_s: Counter[int] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic, repr=False)

    def note_failure(self, detail: str) -> None:
        """Count a failure; the first few are kept as text."""
        self.total += 1
        self.failed += 1
        self.failed_in_s[int(time.monotonic() - self.started)] += 1
        if len(self.samples) < FAILURE_SAMPLES:
            self.samples.append(f"request {self.total}: {detail}")

    def note_success(self, body: str) -> None:
        """Count a 200 by its body."""
        self.total += 1
        self.bodies[body] += 1


class HttpLoad:
    """GETs over a few keep-alive connections until stopped.

    A status other than 200, a reset or a timeout is a failure. ``rps`` are sent a second, as long as the answers keep
    pace; it may be changed at any time. With 0 a connection sends the next request soon after each answer. With
    ``per_connection`` a connection is replaced after this many requests.
    """

    def __init__(
        self,
        background: Background,
        port: int,
        host: str = "svc.test",
        path: str = "/",
        connections: int = CONNECTIONS,
        tls: ssl.SSLContext | None = None,
        rps: float = RPS,
        per_connection: int = 0,
        headers: Mapping[str, str] | None = None,
        address: str = LOOPBACK,
    ) -> None:
        self.report = LoadReport()
        self.rps = rps
        self._per_connection = per_connection
        self._connections = connections
        self._tls = tls
        self._background = background
        self._place = address, port
        lines = [
            f"GET {path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in {"host": host, **(headers or {})}.items()),
        ]
        self._request = "".join(f"{line}\r\n" for line in [*lines, ""]).encode()
        self._stopped = False
        self._tasks = background.run(self._start(connections))

    async def _start(self, connections: int) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(self._client()) for _ in range(connections)]

    def wait_total(self, requests: int) -> None:
        """Wait until ``requests`` more have ended."""
        goal = self.report.total + requests
        wait_until(lambda: self.report.total >= goal, f"{goal} requests under load", detail=lambda: self.report)

    def wait_body(self, body: str, requests: int = 1) -> None:
        """Wait until the upstream that answers ``body`` has answered ``requests`` more."""
        goal = self.report.bodies[body] + requests
        wait_until(lambda: self.report.bodies[body] >= goal, f"{goal} answers {body!r}", detail=lambda: self.report)

    def stop(self) -> LoadReport:
        """Let the requests in flight end, and return the counts."""
        self._stopped = True
        self._background.run(self._finish(), REQUEST_TIMEOUT_S * 2)
        return self.report

    async def _finish(self) -> None:
        await asyncio.gather(*self._tasks)

    async def _client(self) -> None:
        while not self._stopped:
            try:
                await self._connection()
            except ERRORS as error:
                self.report.note_failure(f"{type(error).__name__}: {error}")
                await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _connection(self) -> None:
        reader, writer = await asyncio.open_connection(*self._place, ssl=self._tls)
        sent = 0
        try:
            due = time.monotonic() + random.uniform(0, self._share_s())
            while not self._stopped and await asyncio.wait_for(self._exchange(reader, writer), REQUEST_TIMEOUT_S):
                due = max(due + self._share_s(), time.monotonic() - BEHIND_LIMIT_S)
                await asyncio.sleep(max(due - time.monotonic(), 0.0) if self.rps else PAUSE_S)
                sent += 1
                if sent == self._per_connection:
                    return
        finally:
            writer.close()

    def _share_s(self) -> float:
        """The time of one connection for a request, so that all connections together send ``rps``."""
        return self._connections / self.rps if self.rps else 0.0

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its answer; whether the connection may be used again."""
        writer.write(self._request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        body = await reader.readexactly(_content_length(head))
        status = int(head.split(b" ", 2)[1])
        if status == 200:
            self.report.note_success(body.decode())
        else:
            self.report.note_failure(f"{status} {body[:200].decode(errors='replace')}")
        return b"connection: close" not in head

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def _content_length(head: bytes) -> int:
    _, found, rest = head.partition(b"content-length:")
    return int(rest.split(b"\r\n", 1)[0]) if found else 0
