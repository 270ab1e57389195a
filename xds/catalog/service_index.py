"""All services with their instances by source: the served instances, the changes, the state of the sources. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from xds.catalog.draining import Place, SeenInstance, place_of
from xds.catalog.holding import HoldRule, ServiceHolding
from xds.catalog.instance import Health, Instance, check_instance, check_service_name
from xds.catalog.source import Instances
from xds.model.errors import Violation

FINDINGS_LIMIT = 20  # of one service
SERVICES_WITH_FINDINGS = 1_000  # of one source
REUSED_FROM = 200  # instances: what is served of so large a service is made from what was served before


@dataclass(frozen=True, slots=True)
class CatalogLimits:
    """What is kept at most; the rest is left out and reported. The last is per source."""

    services: int = 20_000
    instances_per_service: int = 10_000
    instances_per_source: int = 200_000


@dataclass(frozen=True, slots=True)
class ServiceInstance:
    """An instance as it is served.

    ``is_kept``: its source no longer shows it, but the loss is held. ``drains_until`` (epoch seconds): it is about to
    go.
    """

    source: str
    seen: SeenInstance
    is_kept: bool = False
    drains_until: float | None = None

    @property
    def instance(self) -> Instance:
        """The instance as its source showed it last."""
        return self.seen.instance

    @property
    def health(self) -> Health:
        """The health that is served to proxies."""
        return Health.DRAINING if self.drains_until is not None else self.seen.instance.health


@dataclass(slots=True)
class SourceHoldings:
    """What one source has shown. ``is_retired``: it was taken out of the settings."""

    name: str
    rule: HoldRule
    by_service: dict[str, ServiceHolding] = field(default_factory=dict)
    instances_n: int = 0
    is_retired: bool = False
    findings: dict[str, tuple[Violation, ...]] = field(default_factory=dict)  # by service
    held: set[str] = field(default_factory=set)  # the services with a loss that is held


class ServiceIndex:
    """Services by name. Times are epoch seconds.

    ``changed`` are the services with possibly changed instances, ``unsaved`` the sources and services with an unsaved
    holding; the caller removes them.
    """

    def __init__(self, limits: CatalogLimits, first_revision: int = 1, reused_from: int = REUSED_FROM) -> None:
        self.limits = limits
        self._reused_from = reused_from
        self.revision = first_revision  # grows with each change
        self._revisions: dict[str, int] = {}  # of the last change, by service
        self._forgotten_at = first_revision  # the revision at which a service went last
        self.changed: set[str] = set()
        self.unsaved: set[tuple[str, str]] = set()
        self.wanted: frozenset[str] = frozenset()
        self._sources: dict[str, SourceHoldings] = {}
        self._services: dict[str, dict[str, ServiceHolding]] = {}  # by service and source
        self._served: dict[str, tuple[ServiceInstance, ...]] = {}
        self._outdated: dict[str, tuple[ServiceInstance, ...]] = {}  # what was served of large services that changed
        self._ends: list[tuple[float, str, str]] = []  # of draining instances: when, source, service

    # Reading

    def __contains__(self, service: str) -> bool:
        return service in self._services

    def __iter__(self) -> Iterator[str]:
        return iter(self._services)

    def __len__(self) -> int:
        return len(self._services)

    def sources(self) -> list[SourceHoldings]:
        """What each source has shown, by name."""
        return [self._sources[name] for name in sorted(self._sources)]

    def of_source(self, source: str) -> SourceHoldings | None:
        """What a source has shown."""
        return self._sources.get(source)

    def holding(self, source: str, service: str) -> ServiceHolding | None:
        """What a source has shown of a service."""
        return self._services.get(service, {}).get(source)

    def served(self, service: str) -> tuple[ServiceInstance, ...]:
        """The instances of a service by address and port; each place once: the first source by name has it."""
        found = self._served.get(service)
        if found is None:
            before = self._outdated.pop(service, ())
            found = self._served[service] = _united(self._services.get(service, {}), before)
        return found

    def is_known(self, service: str) -> bool:
        """Whether a source has ever shown an instance of a service, so that having none means that all are gone.

        It is remembered while a source has the service, or something uses it.
        """
        return any(holding.was_shown for holding in self._services.get(service, {}).values())

    def revision_of(self, service: str) -> int:
        """The revision of the last change of a service; for an unknown one, of the last service that went."""
        return self._revisions.get(service, self._forgotten_at)

    # Changing

    def add_source(self, name: str, rule: HoldRule) -> SourceHoldings:
        """Add a source, or change the rule of one that is there."""
        source = self._sources.setdefault(name, SourceHoldings(name, rule))
        source.rule, source.is_retired = rule, False
        return source

    def show(self, source: SourceHoldings, service: str, instances: Instances, now: float) -> None:
        """Take over what a source shows of a service now. What cannot be used is left out, with findings."""
        holding, found = source.by_service.get(service), check_service_name(service)
        if holding is None and not found and service not in self._services and len(self) >= self.limits.services:
            detail = f"more than {self.limits.services} services: {service!r} is left out"
            found = [Violation("too_many_services", detail)]
        if found:
            self._report(source, service, found)
            return
        usable, found = self._usable(source, holding, instances)
        self._report(source, service, found)
        holding = holding if holding is not None else self._add(source, service)
        self._mark(source, service, holding, is_gone=False)
        before_n = len(holding)
        if holding.put(usable, now, source.rule):
            source.instances_n += len(holding) - before_n
            self._note(source, service, holding)

    def drop(self, source: SourceHoldings, service: str, now: float) -> None:
        """A source no longer has a service."""
        source.findings.pop(service, None)
        if service in source.by_service:
            self.show(source, service, (), now)
            self._mark(source, service, source.by_service[service], is_gone=True)
            self._forget_gone(source, service)

    def restore(self, source: SourceHoldings, service: str, holding: ServiceHolding) -> None:
        """Take over a holding from before a restart."""
        source.by_service[service] = holding
        source.instances_n += len(holding)
        self._services.setdefault(service, {})[source.name] = holding
        self._note(source, service, holding)

    def accept(self, source: SourceHoldings, services: Collection[str], now: float) -> dict[str, int]:
        """Accept the losses that are held of these services. Returns the number of removed instances, by service."""
        accepted = {}
        for service in sorted(source.held.intersection(services)):
            holding = source.by_service[service]
            accepted[service] = holding.accept(now, source.rule)
            source.instances_n -= accepted[service]
            self._note(source, service, holding)
            self._forget_gone(source, service)
        return accepted

    def forget_source(self, name: str, now: float) -> None:
        """A source was taken out of the settings: what it has shown drains."""
        source = self._sources.get(name)
        if source is None:
            return
        source.rule, source.is_retired = HoldRule(1.0, drain_s=source.rule.drain_s), True
        for service in list(source.by_service):
            self.drop(source, service, now)
        if not source.by_service:
            del self._sources[name]

    def use(self, wanted: frozenset[str]) -> None:
        """Set the services that something uses. An unused service without instances in a source is not stored."""
        dropped, self.wanted = self.wanted - wanted, wanted
        for source in list(self._sources.values()):
            for service in dropped & source.by_service.keys():
                self._forget_gone(source, service)

    def end_drains(self, now: float) -> None:
        """Remove the instances that have drained."""
        while self._ends and self._ends[0][0] <= now:
            _, name, service = heappop(self._ends)
            source, holding = self._sources.get(name), self.holding(name, service)
            if source is not None and holding is not None and holding.draining.end(now):
                self._note(source, service, holding)
                self._forget_gone(source, service)

    @property
    def next_end(self) -> float | None:
        """When the next instance will have drained; None: none drains."""
        return self._ends[0][0] if self._ends else None

    def _usable(
        self, source: SourceHoldings, holding: ServiceHolding | None, instances: Instances
    ) -> tuple[dict[str, Instance], list[Violation]]:
        known = holding.present if holding is not None else {}
        left = max(self.limits.instances_per_source - source.instances_n, 0)  # the limit may be lower than before
        room = min(self.limits.instances_per_service, left + len(known))
        found: list[Violation] = []
        candidates: Iterable[tuple[int, Instance]] = enumerate(instances)
        if len(instances) > room:
            detail = f"{len(instances)} instances, {room} are taken over at most"
            found.append(Violation("too_many_instances", detail))
            candidates = _known_first(instances, known)
        usable: dict[str, Instance] = {}
        for index, instance in islice(candidates, room):
            id, held = instance.id, known.get(instance.id)
            if id in usable:
                detail = f"two instances have the id {id!r}: the first one counts"
                found.append(Violation("duplicate_id", detail, pointer=f"/{index}/id"))
            elif held is not None and (held.instance is instance or held.instance == instance):
                usable[id] = held.instance  # the same object says that nothing has changed
            elif wrong := check_instance(instance, f"/{index}"):
                found += wrong
            else:
                usable[id] = instance
        return usable, found

    def _report(self, source: SourceHoldings, service: str, found: list[Violation]) -> None:
        if not found:
            source.findings.pop(service, None)
        elif service in source.findings or len(source.findings) < SERVICES_WITH_FINDINGS:
            source.findings[service] = tuple(found[:FINDINGS_LIMIT])

    def _add(self, source: SourceHoldings, service: str) -> ServiceHolding:
        holding = source.by_service[service] = ServiceHolding()
        self._services.setdefault(service, {})[source.name] = holding
        self._note(source, service, holding)
        return holding

    def _mark(self, source: SourceHoldings, service: str, holding: ServiceHolding, is_gone: bool) -> None:
        if holding.is_gone is not is_gone:
            holding.is_gone = is_gone
            self.changed.add(service)  # whether there is a service is told, too
            self.unsaved.add((source.name, service))

    def _note(self, source: SourceHoldings, service: str, holding: ServiceHolding) -> None:
        """The holding has changed."""
        self._touch(source, service)
        (source.held.add if holding.is_held else source.held.discard)(service)
        ends = holding.draining.next_end
        if ends is not None:
            heappush(self._ends, (ends, source.name, service))

    def _touch(self, source: SourceHoldings, service: str) -> None:
        self.revision += 1
        self._revisions[service] = self.revision
        self.changed.add(service)
        self.unsaved.add((source.name, service))
        served = self._served.pop(service, ())
        if len(served) >= self._reused_from:
            self._outdated[service] = served

    def _forget_gone(self, source: SourceHoldings, service: str) -> None:
        """Forget the holding of a service that the source no longer has, when nothing of it is left.

        Of a service that something uses, it is remembered that there are no instances.
        """
        holding = source.by_service[service]
        if not (holding.is_gone and holding.is_empty) or (service in self.wanted and not source.is_retired):
            return
        del source.by_service[service]
        rest = self._services[service]
        del rest[source.name]
        self._touch(source, service)
        if not rest:
            del self._services[service]
            del self._revisions[service]
            self._outdated.pop(service, None)
            self._forgotten_at = self.revision
        if source.is_retired and not source.by_service:
            del self._sources[source.name]


def _known_first(instances: Instances, known: Collection[str]) -> Iterator[tuple[int, Instance]]:
    """The instances with their places, those with known ids first. Of a flood no more is looked at than is taken."""
    if known:
        yield from (each for each in enumerate(instances) if each[1].id in known)
    yield from (each for each in enumerate(instances) if each[1].id not in known)


def _united(holdings: Mapping[str, ServiceHolding], before: tuple[ServiceInstance, ...]) -> tuple[ServiceInstance, ...]:
    """Each place once: present before kept before draining, then by the name of the source.

    What is the same as ``before`` is the same object.
    """
    if len(holdings) == 1:
        (name, holding), *_ = holdings.items()
        if not holding.kept and not len(holding.draining):
            replaced = _replaced(name, holding.present, before)
            if replaced is not None:
                return replaced
    known = {(id(one.seen), one.is_kept, one.drains_until): one for one in before}
    found: dict[Place, ServiceInstance] = {}
    names = sorted(holdings)
    for name in names:
        _add_first(found, known, (ServiceInstance(name, seen) for seen in holdings[name].present.values()))
    for name in names:
        _add_first(found, known, (ServiceInstance(name, seen, is_kept=True) for seen in holdings[name].kept.values()))
    for name in names:
        drained = holdings[name].draining
        _add_first(found, known, (ServiceInstance(name, each.seen, drains_until=each.until) for each in drained))
    return tuple(found[place] for place in sorted(found))


def _replaced(
    source: str, present: Mapping[str, SeenInstance], before: tuple[ServiceInstance, ...]
) -> tuple[ServiceInstance, ...] | None:
    """``before`` with each instance as it is now; None if an instance has come, gone or moved."""
    if len(present) != len(before):
        return None
    after = []
    for one in before:
        seen = present.get(one.seen.instance.id)
        if seen is one.seen:  # what was kept or drained, and is present again, is another object
            after.append(one)
        elif seen is None or place_of(seen.instance) != place_of(one.seen.instance):
            return None
        else:
            after.append(ServiceInstance(source, seen))
    return tuple(after)


def _add_first(
    found: dict[Place, ServiceInstance],
    known: Mapping[tuple[int, bool, float | None], ServiceInstance],
    instances: Iterable[ServiceInstance],
) -> None:
    """Add the instances with an unused address and port.

    If two instances of a source have the same address and port, the one with the smaller id is added.
    """
    taken = set(found)
    for one in instances:
        place = place_of(one.instance)
        if place in taken:
            continue
        other = found.get(place)
        if other is None or one.instance.id < other.instance.id:
            found[place] = known.get((id(one.seen), one.is_kept, one.drains_until), one)
