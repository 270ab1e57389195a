"""One way to start, push to and measure every server under test.

    async with Peer.start("go-snapshot") as peer:
        pushed = await peer.push(clusters=1000, assignments=0, changed="all", edition=1)

``ours`` is ``xds serve``; ``go-snapshot`` and ``go-linear`` are go-control-plane with its snapshot cache and its linear
cache; ``broadcaster`` is grpc.aio without a protocol.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from bench.peers import go_program
from bench.peers.child import LOOPBACK, Child, PeerError, free_port
from bench.peers.ours import Ours, tls_environment
from bench.peers.resources import Change, Changed, Content, name_of

Kind = Literal["ours", "go-snapshot", "go-linear", "broadcaster"]
KINDS: tuple[Kind, ...] = get_args(Kind)
T = TypeVar("T")
START_TIMEOUT_S = 60.0
PUSH_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Pushed:
    """An accepted push, in monotonic seconds.

    ``version`` is the version_info under which clients get the type that a change of one changes: assignments, or
    clusters where there are no assignments. It is the edition, but for ``go-linear``, which counts the changes of each
    type by itself, and for one resource of ``ours``, which gets the revision and a hash of the content (`number_of`).
    """

    version: str
    asked_at: float
    accepted_at: float


def number_of(version: str) -> int:
    """The place of a pushed version among those of its type. The revision of ``ours`` has a hash of the content behind
    it: ``2+ce5c5dcb``."""
    return int(version.partition("+")[0])


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files that the server shows."""

    certificate: Path
    key: Path


class Peer:
    """A running server under test. ``target`` is where its gRPC port is."""

    def __init__(
        self, kind: Kind, port: int, child: Child, push: Callable[[Change], Awaitable[tuple[str, float, float]]]
    ) -> None:
        self.kind = kind
        self.target = f"{LOOPBACK}:{port}"
        self.admin = ""  # URL of the admin API, of ``ours`` alone
        self.excluded_cpu_s = 0.0
        self._child = child
        self._push = push

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        kind: Kind,
        port: int | None = None,
        *,
        tls: Tls | None = None,
        binary: bool = False,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Peer]:
        """Start on a free port of the loopback address, or on ``port``, and end it at the end of the block.

        ``environment``: settings of ours beside the defaults.
        ``binary``: ours is pushed to in protobuf instead of JSON. ``flags`` are further ones of the program, for the
        peers that are not ours: ``--ads=false`` lets go-snapshot's SotW clients ask for some of the assignments instead
        of all, which in ADS mode it never answers. Raises ``PeerError`` when it does not start.
        """
        chosen = free_port() if port is None else port
        if kind == "ours":
            running = _ours(cls, chosen, tls, binary, environment)
        else:
            running = _commanded(cls, kind, chosen, [*await asyncio.to_thread(_program, kind), *_tls(tls), *flags])
        async with running as peer:
            yield peer

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; 0 after a clean end."""
        return self._child.exit_code

    async def push(self, clusters: int, assignments: int, changed: Changed, edition: int, listeners: int = 0) -> Pushed:
        """Set new content, as ``Change`` says. Raises ``PeerError`` when it is not accepted."""
        return Pushed(*await self._push(Change(clusters, assignments, changed, edition, listeners)))

    def cpu_s(self) -> float:
        """CPU of the process so far, in seconds, all threads. The broadcaster's making of messages is left out."""
        return self._child.cpu_s() - self.excluded_cpu_s

    def rss_kb(self) -> int:
        """Memory of the process that is in RAM now."""
        return self._child.memory_kb("VmRSS")

    def peak_rss_kb(self) -> int:
        """The most there was of it since the start or since ``reset_peak``."""
        return self._child.memory_kb("VmHWM")

    def reset_peak(self) -> None:
        """Begin a new peak."""
        self._child.reset_peak()


@asynccontextmanager
async def _ours(
    make: type[Peer], port: int, tls: Tls | None, binary: bool, environment: Mapping[str, str] | None
) -> AsyncIterator[Peer]:
    secured = tls_environment(str(tls.certificate), str(tls.key)) if tls is not None else {}
    server = Ours(port, {**secured, **(environment or {})}, binary)
    try:
        await within(START_TIMEOUT_S, server.ready(), server.child, "xds serve is not ready")
        peer = make("ours", port, server.child, server.push)
        peer.admin = server.url
        yield peer
        await server.stop()
    finally:
        server.child.kill()
        server.child.close()


@asynccontextmanager
async def _commanded(make: type[Peer], kind: Kind, port: int, argv: Sequence[str | Path]) -> AsyncIterator[Peer]:
    child = Child([*argv, "--port", str(port)])

    async def push(change: Change) -> tuple[str, float, float]:
        version, asked_at, accepted_at, excluded_cpu_s = await within(
            PUSH_TIMEOUT_S, asyncio.to_thread(_ask, child, change), child, f"{kind} did not answer a push"
        )
        peer.excluded_cpu_s = excluded_cpu_s
        return version, asked_at, accepted_at

    try:
        await within(START_TIMEOUT_S, asyncio.to_thread(child.read), child, f"{kind} is not ready")
        peer = make(kind, port, child, push)
        yield peer
        await asyncio.to_thread(child.close_input)
    finally:
        child.kill()
        child.close()


def _ask(child: Child, change: Change) -> tuple[str, float, float, float]:
    command = change.command()
    if change.listeners:
        child.ask({"prepare": _everything(change)})
        command = {"set": True}
    asked_at = time.monotonic()
    answer = child.ask(command)
    return str(answer["pushed"]), asked_at, time.monotonic(), float(answer.get("built_cpu_s", 0.0))


def _everything(change: Change) -> dict[str, Any]:
    """All resources of a change, as go-control-plane is given what it does not make itself."""
    content = Content()
    content.apply(change)
    put = [
        {"type": url, "name": name_of(index), "body": base64.b64encode(content.body(url, index)).decode()}
        for url, index in content.every()
    ]
    return {"put": put, "delete": []}


async def within(seconds: float, work: Awaitable[T], child: Child, what: str) -> T:
    """The result of ``work``; the child does not survive being too late, so that nobody waits for its lines.

    Not by ``asyncio.wait_for``: before Python 3.12 that takes no notice of a cancellation that comes with the result.
    """
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        child.kill()
        raise PeerError(f"{what} after {seconds:g} s\n{child.log_tail()}") from None


def _program(kind: Kind) -> list[str | Path]:
    if kind == "broadcaster":
        return [sys.executable, "-m", "bench.peers.broadcaster"]
    return [go_program.build(), "--cache", kind.removeprefix("go-")]


def _tls(tls: Tls | None) -> list[str | Path]:
    return [] if tls is None else ["--tls-cert", tls.certificate, "--tls-key", tls.key]
