"""The set-up of a measurement: both servers, their fleets behind the tap, and the load."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.envoys import fleet, kinds
from bench.envoys.fleet import Fleet, Start
from bench.envoys.kinds import Kind, Ports, Push
from bench.envoys.scale import Scale
from bench.envoys.sides import Side, expected
from bench.peers.child import Child

ACK_TIMEOUT_S = 60.0
Json = dict[str, Any]


class Tap:
    """`bench.envoys.tap` as a process."""

    def __init__(self, child: Child) -> None:
        self._child = child

    def listen(self, side: str, target: int, variant: str) -> int:
        """A port that leads to the target."""
        asked = {"side": side, "target": target, "variant": variant}
        return int(self._child.ask({"listen": asked})["port"])

    def expect(self, side: str, wanted: Json) -> int:
        """Look for what is wanted from now on."""
        return int(self._child.ask({"expect": {"side": side, **wanted}})["expected"])

    def acked(self, number: int, count: int, timeout_s: float) -> dict[str, float]:
        """Who has ACKed what is expected, and when, once there are so many or when the time is over."""
        asked = {"id": number, "count": count, "timeout_s": timeout_s}
        return dict(self._child.ask({"acked": asked})["acked"])

    def forget(self) -> list[str]:
        """Look for nothing any more; who refused what."""
        return list(self._child.ask({"forget": True})["refused"])


class Traffic:
    """`bench.envoys.traffic` as a process."""

    def __init__(self, child: Child) -> None:
        self._child = child
        first, second = child.ask({"upstreams": 2})["ports"]
        self.upstreams: Ports = (first, second)

    def load(self, side: str, ports: Sequence[int], scale: Scale) -> None:
        """Put the load of a side on these listeners."""
        asked = {"side": side, "ports": list(ports), "connections": scale.connections, "rps": scale.rps}
        self._child.ask({"load": asked})

    def stop(self) -> dict[str, Json]:
        """End all load; by side ``requests``, ``lost`` and ``samples`` of these."""
        return dict(self._child.ask({"stop": True})["counts"])


class Site:
    """Both servers with their fleets in step, nothing pushed yet but the first set."""

    def __init__(self, sides: Sequence[Side], fleets: dict[str, Fleet], tap: Tap, traffic: Traffic) -> None:
        self.sides = tuple(sides)
        self.fleets = fleets
        self.tap = tap
        self.traffic = traffic
        self._pushed: dict[str, int] = {}

    def change(self, kind: Kind) -> Push:
        """The next push of a kind, the same for all sides."""
        number = self._pushed[kind.name] = self._pushed.get(kind.name, 0) + 1
        return kind.push(self.traffic.upstreams, number)

    def start(self, scale: Scale, variant: str, start: Start) -> None:
        """Push the first set, and start the fleets one after the other."""
        first = Push(tuple(kinds.first_set(self.traffic.upstreams, scale.fillers)))
        for side in self.sides:
            prepared = side.prepare(first)
            side.push(prepared)
            number = self.tap.expect(side.name, expected(prepared))
            own = self.fleets[side.name]
            own.start(start, self.tap.listen(side.name, side.port, variant), variant)
            acked = self.tap.acked(number, len(own.names), ACK_TIMEOUT_S)
            assert len(acked) == len(own.names), f"{side.name}: {len(acked)} Envoys have the first set"
        self.tap.forget()


@contextmanager
def running(sides: Sequence[Side], scale: Scale, count: int, variant: str, start: Start) -> Iterator[Site]:
    """The site with fleets of so many Envoys; all but the servers is ended afterwards."""
    with (
        _child("bench.envoys.tap") as tap,
        _child("bench.envoys.traffic") as traffic,
        tempfile.TemporaryDirectory() as folder,
        fleet.running(Path(folder), [side.name for side in sides], count) as fleets,
    ):
        site = Site(sides, fleets, Tap(tap), Traffic(traffic))
        site.start(scale, variant, start)
        yield site


@contextmanager
def _child(module: str) -> Iterator[Child]:
    child = Child([sys.executable, "-m", module])
    try:
        yield child
    finally:
        child.kill()
        child.close()
