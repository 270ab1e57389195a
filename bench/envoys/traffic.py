"""The load, and the upstreams behind the Envoys, in a process of their own.

    python -m bench.envoys.traffic

Commands are JSON objects on standard input, one per line; each is answered by a line:

    {"upstreams": 2}                                                            ->  {"ports": [PORT, ...]}
    {"load": {"side": S, "ports": [PORT, ...], "connections": N, "rps": RATE}}  ->  {"loading": S}
    {"counts": true}  ->  {"counts": {S: {"requests": N, "lost": N, "samples": [WORDS]}}}
    {"stop": true}    ->  the same, once the last requests have ended

``connections`` are those to each port, kept alive; ``rps`` is that of the side, spread evenly over its ports.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.background import Background
from tests.support.load import HttpLoad, LoadReport
from tests.support.upstream import Upstream

SAMPLES = 5

Json = dict[str, Any]


class Traffic:
    """What runs of both."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._loads: dict[str, list[HttpLoad]] = {}

    def upstreams(self, count: int) -> list[int]:
        """Start so many; their ports."""
        return [Upstream(self._background, f"upstream-{number}").port for number in range(count)]

    def load(self, side: str, ports: list[int], connections: int, rps: float) -> None:
        """Put load on the listeners of a side."""
        each = rps / len(ports)
        self._loads[side] = [HttpLoad(self._background, port, connections=connections, rps=each) for port in ports]

    def counts(self) -> dict[str, Json]:
        """So far, by side."""
        return {side: _summed([load.report for load in loads]) for side, loads in self._loads.items()}

    def stop(self) -> dict[str, Json]:
        """End all load; the final counts."""
        running = [load for loads in self._loads.values() for load in loads]
        with ThreadPoolExecutor(max(len(running), 1)) as pool:  # each waits for its last requests
            list(pool.map(HttpLoad.stop, running))
        counts = self.counts()
        self._loads.clear()
        return counts


def _summed(reports: list[LoadReport]) -> Json:
    samples = [sample for report in reports for sample in report.samples]
    return {
        "requests": sum(report.total for report in reports),
        "lost": sum(report.failed for report in reports),
        "samples": samples[:SAMPLES],
    }


def carry_out(command: Json, traffic: Traffic) -> Json:
    """Do what a line says; its answer."""
    match command:
        case {"upstreams": count}:
            return {"ports": traffic.upstreams(count)}
        case {"load": load}:
            traffic.load(**load)
            return {"loading": load["side"]}
        case {"counts": True}:
            return {"counts": traffic.counts()}
        case {"stop": True}:
            return {"counts": traffic.stop()}
    raise ValueError(f"no such command: {command}")


def main() -> None:
    """Carry out commands until there are no more."""
    with Background() as background:
        traffic = Traffic(background)
        for line in sys.stdin:
            print(json.dumps(carry_out(json.loads(line), traffic)), flush=True)


if __name__ == "__main__":
    main()
