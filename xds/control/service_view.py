"""Services as readers see them: instances that are not about to go, and a number that grows with each change.

The numbers begin at the time of the start, so that they are above all of an earlier process. Changes are applied before
each reading, and when the catalog notifies of them.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from xds.catalog.service_index import ServiceInstance
from xds.control.catalog import ServiceCatalog
from xds.control.waiting import Waiters

WAITERS_LIMIT = 5_000
GONE_REMEMBERED = 20_000
ALL_SERVICES = ""  # the subject of those who wait for names and tags; no service has this name


@dataclass(frozen=True, slots=True)
class ServiceState:
    """A service at ``revision``: its present instances, its tags in the order of the instances, its datacenters."""

    revision: int
    instances: tuple[ServiceInstance, ...]
    tags: tuple[str, ...]
    datacenters: frozenset[str]
    served: tuple[ServiceInstance, ...]  # as the catalog gave them: the same object says that nothing has changed


class ServiceView:
    """What the catalog serves, for readers.

    ``revision`` is the highest number given so far, ``names_revision`` that of the last change of a name or of tags.
    """

    def __init__(self, catalog: ServiceCatalog, first: int | None = None) -> None:
        self.revision = first if first is not None else time.time_ns() // 1_000
        self.names_revision = self.revision
        self.waiters = Waiters(WAITERS_LIMIT, "services")
        self._catalog = catalog
        self._suspected: set[str] = set()  # services that may have changed since the catalog told of it
        self._states: dict[str, ServiceState] = {}
        self._gone: OrderedDict[str, int] = OrderedDict()  # the number at which a service went
        self._forgotten = self.revision  # the highest number of a service that is neither there nor remembered
        self._datacenters: Counter[str] = Counter()
        catalog.listen(self._changed)

    # Reading

    def suspect(self, services: Collection[str]) -> None:
        """Update these services before the next reading, even without a notification from the catalog."""
        self._suspected.update(services)

    def names(self) -> list[str]:
        """The names of all services, ordered."""
        suspected, self._suspected = self._suspected, set()
        self.refresh(suspected | (self._states.keys() ^ set(self._catalog.names())))
        return sorted(self._states)

    def state(self, service: str) -> ServiceState | None:
        """A service now; None where it has no instance."""
        self.refresh((service,))
        return self._states.get(service)

    def service_revision(self, service: str) -> int:
        """The number of the last change of a service. It only decreases in a new process with a wrong clock."""
        found = self._states.get(service)
        return found.revision if found is not None else self._gone.get(service, self._forgotten)

    def datacenters(self) -> Collection[str]:
        """The datacenters of all instances; empty for that of this server."""
        return self._datacenters.keys()

    # Changes

    async def wait(self, subject: str, after: int, current: Callable[[], int], wait_s: float) -> None:
        """Wait for a change of a service, or of `ALL_SERVICES`, as `Waiters.wait`."""
        await self.waiters.wait(subject, after, current, wait_s)

    async def _changed(self, services: Collection[str]) -> None:
        self._suspected.difference_update(services)
        self.refresh(services)

    def refresh(self, services: Collection[str]) -> None:
        """Look whether these services have changed, and wake who waits for them."""
        before = self.names_revision
        self.waiters.wake([service for service in services if self._refresh(service)])
        if self.names_revision != before:
            self.waiters.wake((ALL_SERVICES,))

    def _refresh(self, service: str) -> bool:
        before, served = self._states.get(service), self._catalog.instances(service)
        if before is not None and before.served is served:
            return False
        there = tuple(one for one in served if one.drains_until is None)
        if before is None and not there:
            return False
        replaced = _replaced(before.instances, there) if before is not None else None
        if before is not None and replaced == []:
            self._states[service] = ServiceState(before.revision, there, before.tags, before.datacenters, served)
            return False
        self.revision += 1
        if before is not None and replaced is not None and all(map(_is_named_alike, replaced)):
            tags, datacenters = before.tags, before.datacenters
        else:
            tags = tuple(dict.fromkeys(tag for one in there for tag in one.instance.tags))
            datacenters = frozenset(one.instance.datacenter for one in there)
        if before is None or not there or set(before.tags) != set(tags):
            self.names_revision = self.revision
        self._datacenters.update(datacenters)
        self._datacenters.subtract(before.datacenters if before is not None else ())
        self._datacenters = +self._datacenters
        if there:
            self._gone.pop(service, None)
            self._states[service] = ServiceState(self.revision, there, tags, datacenters, served)
        else:
            del self._states[service]
            self._remember_gone(service)
        return True

    def _remember_gone(self, service: str) -> None:
        self._gone[service] = self.revision
        if len(self._gone) > GONE_REMEMBERED:
            _, self._forgotten = self._gone.popitem(last=False)


Replaced = tuple[ServiceInstance, ServiceInstance]  # an instance, and what is in its place


def _replaced(before: tuple[ServiceInstance, ...], there: tuple[ServiceInstance, ...]) -> list[Replaced] | None:
    """What readers see differently, one by one; None if there are more or fewer instances.

    Of a large service, most instances are the same objects as before.
    """
    if len(before) != len(there):
        return None
    pairs = zip(before, there, strict=True)
    return [(one, other) for one, other in pairs if one.observed is not other.observed and not _is_same(one, other)]


def _is_same(one: ServiceInstance, other: ServiceInstance) -> bool:
    return one.source == other.source and one.instance == other.instance


def _is_named_alike(pair: Replaced) -> bool:
    one, other = pair[0].instance, pair[1].instance
    return one.tags == other.tags and one.datacenter == other.datacenter
