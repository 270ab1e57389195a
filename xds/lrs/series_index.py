"""How much of a fleet's load is kept. What a bound keeps out is counted under the bound's name.

A window of traffic takes some 5.5 kB: three counters, each with 120 seconds and 62 minutes of eight bytes. So all
windows take 360 MB at most, those of a thousand clusters between three localities and three 50 MB. A strip takes 260 to
460 bytes for each of its services: 55 MB at most.

All windows, by the group and the locality of who reports, by cluster and service name.

They are found, made as far as the bounds allow, and forgotten.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator, Sized
from typing import NamedTuple

from xds.lrs.figures import UNCATEGORISED
from xds.lrs.reporting import Reporter
from xds.lrs.series import Service, SourceServices
from xds.lrs.windows import Counter, Window, edge_of
from xds.model.node import Locality


class Bounds(NamedTuple):
    """``sources`` are localities by group, ``services`` (source, cluster, service name).

    ``windows`` are all of traffic, drops and metrics. ``made_by_stream`` is how many of both a stream may bring in an
    hour, so that one client cannot use up what is there for all. ``latest_bytes`` is of the latest reports, as they
    came, over all streams.
    """

    sources: int = 256
    services: int = 30_000
    windows: int = 65_536
    targets: int = 128  # of a service
    endpoints: int = 1_024  # likewise
    metrics: int = 256  # likewise
    categories: int = 32  # of drops, likewise; what is above has none
    made_by_stream: int = 25_000
    clusters: int = 20_000  # of one report
    pages: int = 64  # of one stream
    latest_bytes: int = 256 << 20
    nodes_gone: int = 1_000


IDLE_S = 3_600.0  # what nobody reported for so long is forgotten
IDLE_WHEN_FULL_S = 120.0  # likewise, where a bound is reached
SWEEP_S = 600.0
SWEEP_WHEN_FULL_S = 10.0


_MADE_IN_S = 3_600.0


class Shelf:
    """``left_out`` counts what a bound kept out, by the bound's name."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.left_out: Counts[str] = Counts()
        self.services = 0
        self.windows = 0
        self._sources: dict[tuple[str, Locality], SourceServices] = {}
        self._swept = 0.0

    def place(self, reporter: Reporter) -> None:
        """Show a reporter the services of its source, which is a locality in a group.

        Where there are too many sources it is that of the group's nodes without a locality.
        """
        group, locality = reporter.group, reporter.node.locality
        if (group, locality) not in self._sources and len(self._sources) >= self.bounds.sources:
            self.left_out["sources"] += 1
            locality = Locality()
        reporter.source = locality
        reporter.services = self._sources.setdefault((group, locality), SourceServices())

    def of_cluster(self, cluster: str) -> list[Service]:
        return [service for service in self if service.cluster == cluster]

    def __iter__(self) -> Iterator[Service]:
        """A copy: reports may come meanwhile."""
        for services in list(self._sources.values()):
            yield from list(services.by_key.values())

    def service(self, by: Reporter, cluster: str, service_name: str, now: float) -> Service | None:
        """None where a bound does not allow another one."""
        found = by.services.by_key.get((cluster, service_name))
        if found is None and self._has_room("services", self.services, by, now):
            found = Service(cluster, service_name, by.source, by.group)
            by.services.by_key[cluster, service_name] = found
            self.services += 1
        return found

    def target(self, by: Reporter, service: Service, target: Locality, now: float) -> Window | None:
        found = service.targets.get(target)
        if found is None and self._allows(by, "targets", service.targets, now):
            found = service.targets[target] = Window()
        return found

    def endpoint(self, by: Reporter, service: Service, key: tuple[Locality, str], now: float) -> Window | None:
        found = service.endpoints.get(key)
        if found is None and self._allows(by, "endpoints", service.endpoints, now):
            found = service.endpoints[key] = Window()
        return found

    def metric(self, by: Reporter, service: Service, key: tuple[Locality, str, str], now: float) -> Counter | None:
        found = service.metrics.get(key)
        if found is None and self._allows(by, "metrics", service.metrics, now):
            found = service.metrics[key] = Counter(2)
        return found

    def drop(self, by: Reporter, service: Service, category: str, now: float) -> Counter | None:
        """Beyond the bound, drops of a category have none."""
        found = service.drops.get(category)
        if found is None and category and len(service.drops) >= self.bounds.categories:
            self.left_out["categories"] += 1
            return self.drop(by, service, UNCATEGORISED, now)
        if found is None and self._has_room("windows", self.windows, by, now):
            found = service.drops[category] = Counter(1)
            self.windows += 1
        return found

    def sweep(self, now: float) -> None:
        """Forget from time to time what nobody reports any more."""
        if now - self._swept >= SWEEP_S:
            self._forget(now, IDLE_S)

    def _allows(self, by: Reporter, bound: str, windows: Sized, now: float) -> bool:
        if len(windows) >= getattr(self.bounds, bound):
            self.left_out[bound] += 1
            return False
        if not self._has_room("windows", self.windows, by, now):
            return False
        self.windows += 1
        return True

    def _has_room(self, bound: str, held: int, by: Reporter, now: float) -> bool:
        """Whether one more may be made, by this client too; makes room for it where that can be."""
        if now - by.made_since >= _MADE_IN_S:
            by.made, by.made_since = 0, now
        if by.made >= self.bounds.made_by_stream:
            self.left_out["made_by_stream"] += 1
            return False
        limit: int = getattr(self.bounds, bound)
        if held >= limit and now - self._swept >= SWEEP_WHEN_FULL_S:
            freed = self._forget(now, IDLE_WHEN_FULL_S)
            held -= freed[bound]
        if held >= limit:
            self.left_out[bound] += 1
            return False
        by.made += 1
        return True

    def _forget(self, now: float, idle_s: float) -> Counts[str]:
        self._swept = now
        before = Counts(services=self.services, windows=self.windows)
        for services in self._sources.values():
            services.forget(lambda service: service.pages == 0 and service.reported < now - idle_s)
            for service in services.by_key.values():
                service.forget_before(edge_of(now - max(idle_s, IDLE_S)))
        self._sources = {source: services for source, services in self._sources.items() if services.by_key}
        self.services = sum(len(services.by_key) for services in self._sources.values())
        self.windows = sum(service.windows for service in self)
        return before - Counts(services=self.services, windows=self.windows)
