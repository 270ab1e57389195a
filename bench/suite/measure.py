"""One cell: rounds that alternate between the servers, each a push and the wait for the ACKs of all streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Protocol, TypeVar

from bench.suite.process import quiet
from bench.suite.results import Figures

WARM_ROUNDS = 2
ACK_TIMEOUT_S = 180.0
Changed = Literal["all", "one"]
MS = 1e3
US = 1e6


@dataclass(frozen=True, slots=True)
class Change:
    """What a push changes: all or one, of the clusters, or of the assignments where there are any.

    With ``listeners``, each with a route configuration and a secret, all of them change too.
    """

    clusters: int
    assignments: int = 0
    changed: Changed = "all"
    listeners: int = 0


class Pushed(Protocol):
    """An accepted push: the version under which clients get it, and monotonic seconds."""

    @property
    def version(self) -> str: ...
    @property
    def asked_at(self) -> float: ...
    @property
    def accepted_at(self) -> float: ...


class Server(Protocol):
    """A server under test: `bench.peers.peer.Peer`."""

    async def push(self, clusters: int, assignments: int, changed: Changed, edition: int, listeners: int) -> Pushed: ...
    def cpu_s(self) -> float: ...


class Acked(Protocol):
    """When the ACKs that were waited for were sent."""

    @property
    def last_at(self) -> float: ...


class Clients(Protocol):
    """The streams of one server: `bench.load.fleet.Fleet`."""

    def mark(self) -> None: ...
    async def acked(self, count: int, timeout_s: float) -> Acked: ...
    def cpu_s(self) -> float: ...
    def stats(self) -> Mapping[str, Any]: ...
    async def stop(self) -> None: ...


ServerT = TypeVar("ServerT", bound=Server)
ClientsT = TypeVar("ClientsT", bound=Clients)


@dataclass(slots=True)
class Side(Generic[ServerT, ClientsT]):
    """A server with its fleets, each with the number of ACKs of a push: a push changes all types that it follows.

    Its pushes are numbered, so that each changes what it says.
    """

    kind: str
    server: ServerT
    streams: int = 0
    fleets: list[tuple[ClientsT, int]] = field(default_factory=list)
    edition: int = 0

    async def push(self, change: Change) -> Pushed:
        """Push the next edition."""
        self.edition += 1
        return await self.server.push(
            change.clusters, change.assignments, change.changed, self.edition, change.listeners
        )


AnySide = Side[Any, Any]


@dataclass(frozen=True, slots=True)
class Round:
    """One push. CPU is all of the server's: building the snapshot, and for ours the admin call. ``received``: bytes."""

    cpu_s: float
    push_s: float
    wall_s: float
    call_s: float
    generator_s: float
    received: int

    def figures(self, streams: int) -> dict[str, float]:
        """As they are kept: CPU in microseconds per stream, times in milliseconds."""
        return {
            "cpu_us": self.cpu_s / streams * US,
            "push_ms": self.push_s * MS,
            "wall_ms": self.wall_s * MS,
            "call_ms": self.call_s * MS,
            "generator_us": self.generator_s / streams * US,
            "received_kb": self.received / streams / 1e3,
        }


async def push_once(side: AnySide, change: Change) -> Round:
    """Push, wait until every stream has ACKed it, and until the server is done with it.

    ``wall_s`` is from the push's answer to the last ACK (0 when the ACK came first), ``call_s`` from its beginning.
    """
    received = _received(side)
    for fleet, _ in side.fleets:
        fleet.mark()
    generator_s = _generator_s(side)
    before_s = side.server.cpu_s()
    pushed = await side.push(change)
    asked, accepted = pushed.asked_at, pushed.accepted_at
    last = [(await fleet.acked(count, ACK_TIMEOUT_S)).last_at for fleet, count in side.fleets]
    ended = max(last, default=accepted)
    spent_s = await quiet(side.server.cpu_s) - before_s
    generator_s = _generator_s(side) - generator_s
    received = _received(side) - received
    return Round(spent_s, accepted - asked, max(0.0, ended - accepted), ended - asked, generator_s, received)


async def alternate(sides: Sequence[AnySide], change: Change, rounds: int, warm: int = WARM_ROUNDS) -> Figures:
    """The figures of each side: a round of each in turn; the first ``warm`` are not kept."""
    figures: Figures = {side.kind: {} for side in sides}
    for number in range(warm + rounds):
        for side in sides:
            found = (await push_once(side, change)).figures(side.streams)
            for name, value in found.items() if number >= warm else ():
                figures[side.kind].setdefault(name, []).append(value)
    return figures


async def push_alone(side: AnySide, change: Change, streams: int, rounds: int) -> dict[str, list[float]]:
    """The same push while nobody is connected, spread over as many streams as there will be."""
    found = [await push_once(side, change) for _ in range(1 + rounds)][1:]
    return {"alone_us": [one.cpu_s / streams * US for one in found]}


def _generator_s(side: AnySide) -> float:
    """CPU of the load generator so far."""
    return float(sum(fleet.cpu_s() for fleet, _ in side.fleets))


def _received(side: AnySide) -> int:
    """Bytes that came to the clients so far."""
    return sum(fleet.stats()["bytes_in"] for fleet, _ in side.fleets)
