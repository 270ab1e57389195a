"""Services for readers: instances that do not drain, and a revision that grows with each change.

Revisions begin at the time of the start, so that they are above all revisions of an earlier process. Changes of the
catalog are applied before each read, and when the catalog notifies of them.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from xds.model.compared_name import ComparedName, compared
from xds.services.catalog import ServiceCatalog
from xds.services.core.index import ServiceInstance
from xds.tasks.waiting import Waiters

WAITERS_LIMIT = 5_000
REMOVED_REMEMBERED = 20_000  # removed services
ALL_SERVICES = ""  # the subject of callers that wait for names and tags; no service has this name


@dataclass(frozen=True, slots=True)
class ServiceState:
    """A service at ``revision``: its present instances, and their datacenters.

    ``tags`` has the tags by name as sources write it, in the order of the instances.
    """

    revision: int
    instances: tuple[ServiceInstance, ...]
    tags: Mapping[str, tuple[str, ...]]
    datacenters: frozenset[str]
    served: tuple[ServiceInstance, ...]  # as the catalog returned them: the same object means no change


class ServiceView:
    """The services of the catalog, for readers.

    ``revision`` is the highest revision so far, ``names_revision`` that of the last change of a name or of tags.
    """

    def __init__(self, catalog: ServiceCatalog, first: int | None = None) -> None:
        self.revision = first if first is not None else time.time_ns() // 1_000
        self.names_revision = self.revision
        self.waiters = Waiters(WAITERS_LIMIT, "services")
        self._catalog = catalog
        self._states: dict[ComparedName, ServiceState] = {}
        self._removal_revisions: OrderedDict[ComparedName, int] = OrderedDict()  # of removed services
        self._forgotten_removal = self.revision  # the highest revision of a removal that is no longer remembered
        self._datacenters: Counter[str] = Counter()
        catalog.listen(self._changed)

    # Reading

    def names(self) -> list[ComparedName]:
        """The names of all services as they are compared, ordered."""
        present = set(self._catalog.compared_names())
        self.refresh(self._catalog.unannounced() | (self._states.keys() ^ present))
        return sorted(self._states)

    def state(self, service: str) -> ServiceState | None:
        """The present state of a service; None if it has no instance."""
        name = compared(service)
        self.refresh((name,))
        return self._states.get(name)

    def service_revision(self, service: str) -> int:
        """The revision of the last change of a service. It only decreases in a new process with a wrong clock."""
        name = compared(service)
        state = self._states.get(name)
        if state is not None:
            return state.revision
        return self._removal_revisions.get(name, self._forgotten_removal)

    def datacenters(self) -> Collection[str]:
        """The datacenters of all instances. The empty name is the datacenter of this server."""
        return self._datacenters.keys()

    # Changes

    async def wait(self, subject: str, after: int, current: Callable[[], int], wait_s: float) -> None:
        """Wait for a change of a service, or of `ALL_SERVICES`, as `Waiters.wait`."""
        await self.waiters.wait(compared(subject), after, current, wait_s)

    async def _changed(self, services: Collection[ComparedName]) -> None:
        self.refresh(services)

    def refresh(self, services: Collection[ComparedName]) -> None:
        """Apply the changes of these services, and wake the callers that wait for changed ones."""
        before = self.names_revision
        self.waiters.wake([service for service in services if self._refresh(service)])
        if self.names_revision != before:
            self.waiters.wake((ALL_SERVICES,))

    def _refresh(self, service: ComparedName) -> bool:
        before, served = self._states.get(service), self._catalog.instances(service)
        if before is not None and before.served is served:
            return False
        present = tuple(one for one in served if one.drains_until is None)
        if before is None and not present:
            return False
        replaced = _replaced(before.instances, present) if before is not None else None
        if before is not None and replaced == []:
            self._states[service] = ServiceState(before.revision, present, before.tags, before.datacenters, served)
            return False
        self.revision += 1
        if before is not None and replaced is not None and all(map(_is_named_alike, replaced)):
            tags, datacenters = before.tags, before.datacenters
        else:
            tags = tags_by_name(present)
            datacenters = frozenset(one.instance.datacenter for one in present)
        if before is None or not present or _unordered(before.tags) != _unordered(tags):
            self.names_revision = self.revision
        self._datacenters.update(datacenters)
        self._datacenters.subtract(before.datacenters if before is not None else ())
        self._datacenters = +self._datacenters
        if present:
            self._removal_revisions.pop(service, None)
            self._states[service] = ServiceState(self.revision, present, tags, datacenters, served)
        else:
            del self._states[service]
            self._remember_removal(service)
        return True

    def _remember_removal(self, service: ComparedName) -> None:
        self._removal_revisions[service] = self.revision
        if len(self._removal_revisions) > REMOVED_REMEMBERED:
            _, self._forgotten_removal = self._removal_revisions.popitem(last=False)


Replaced = tuple[ServiceInstance, ServiceInstance]  # an instance before and after


def _replaced(before: tuple[ServiceInstance, ...], present: tuple[ServiceInstance, ...]) -> list[Replaced] | None:
    """The instances that differ for readers, each before and after; None if the number of instances has changed.

    Most instances of a large service are the same objects as before.
    """
    if len(before) != len(present):
        return None
    pairs = zip(before, present, strict=True)
    return [(one, other) for one, other in pairs if one.observed is not other.observed and not _is_same(one, other)]


def _is_same(one: ServiceInstance, other: ServiceInstance) -> bool:
    return one.source == other.source and one.service == other.service and one.instance == other.instance


def _is_named_alike(pair: Replaced) -> bool:
    one, other = pair[0].instance, pair[1].instance
    return pair[0].service == pair[1].service and one.tags == other.tags and one.datacenter == other.datacenter


def tags_by_name(instances: Sequence[ServiceInstance]) -> dict[str, tuple[str, ...]]:
    """The tags of instances, by the name of their service as sources write it, in the order of the instances."""
    tags_of: dict[str, dict[str, None]] = {}
    for one in instances:
        tags_of.setdefault(one.service, {}).update(dict.fromkeys(one.instance.tags))
    return {name: tuple(tags) for name, tags in tags_of.items()}


def _unordered(tags: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    return {name: frozenset(each) for name, each in tags.items()}
