"""An autoscaler of the zones: it scales up a minute late, and down after five minutes of less load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from bench.zones.fleet import Hosts
from xds.model.node import Locality

START_S, CALM_S = 60, 300
_AVERAGED_S = 10


class Autoscaler:
    """Keeps every zone at ``utilisation`` of its capacity, as far as it can follow."""

    def __init__(self, utilisation: float) -> None:
        self._utilisation = utilisation
        self._loads: dict[Locality, float] = {}
        self._wanted: dict[Locality, list[int]] = {}

    def hosts(self, pushed: Mapping[Locality, Hosts], second: int) -> dict[Locality, Hosts]:
        """The hosts that are there at a second."""
        return {name: replace(own, **_both(self._count(name, own))) for name, own in pushed.items()}

    def observe(self, loads: Mapping[Locality, float], hosts: Mapping[Locality, Hosts]) -> None:
        """A second's load."""
        for name, rps in loads.items():
            before = self._loads.get(name, rps)
            self._loads[name] = before + (rps - before) / _AVERAGED_S
            wanted = max(1, ceil(self._loads[name] / (self._utilisation * hosts[name].endpoint_rps)))
            self._wanted.setdefault(name, []).append(wanted)
            del self._wanted[name][: -(START_S + CALM_S)]

    def _count(self, name: Locality, own: Hosts) -> int:
        started = self._wanted.get(name, [])[:-START_S]
        return max(started, default=own.endpoints)


def _both(count: int) -> dict[str, int]:
    return {"endpoints": count, "healthy": count}
