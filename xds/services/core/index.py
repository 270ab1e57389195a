"""All services with their instances by source: served instances, changes, and what each source has observed. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import islice

from xds.model.compared_name import ComparedName, compared
from xds.model.errors import Violation
from xds.services.core.draining import ObservedInstance, SocketAddress, socket_address
from xds.services.core.holding import HoldRule, ServiceHolding
from xds.services.core.instance import Health, Instance, check_instance, check_service_name
from xds.services.core.source import Instances

FINDINGS_LIMIT = 20  # of one service
SERVICES_WITH_FINDINGS = 1_000  # of one source
REUSE_FROM = 200  # instances of a service from which the served tuple is made from the previous one


@dataclass(frozen=True, slots=True)
class CatalogLimits:
    """Upper limits. What exceeds them is left out and reported. The last one is per source."""

    services: int = 20_000
    instances_per_service: int = 10_000
    instances_per_source: int = 200_000


@dataclass(frozen=True, slots=True)
class ServiceInstance:
    """An instance as it is served.

    ``service`` is the name of the service as its source writes it. ``is_held``: its source no longer shows it, but the
    loss is held. ``drains_until`` is when a draining instance is removed (epoch seconds); None if it does not drain.
    """

    source: str
    observed: ObservedInstance
    is_held: bool = False
    drains_until: float | None = None
    service: str = ""

    @property
    def instance(self) -> Instance:
        """The instance as its source showed it last."""
        return self.observed.instance

    @property
    def health(self) -> Health:
        """The health that is served to proxies."""
        return Health.DRAINING if self.drains_until is not None else self.observed.instance.health


@dataclass(slots=True)
class SourceHoldings:
    """What one source has observed. ``is_retired``: the source was removed from the settings."""

    name: str
    rule: HoldRule
    by_service: dict[str, ServiceHolding] = field(default_factory=dict)
    instances_n: int = 0
    is_retired: bool = False
    findings: dict[str, tuple[Violation, ...]] = field(default_factory=dict)  # by service
    held_services: set[str] = field(default_factory=set)  # services with a held loss

    @property
    def lost_n(self) -> int:
        """The number of instances that are served though the source lost them. May be read in another thread."""
        held = (self.by_service.get(service) for service in list(self.held_services))
        return sum(len(holding.lost) for holding in held if holding is not None)


# A source, and the name of a service as it writes it.
HoldingKey = tuple[str, str]


class ServiceIndex:
    """Services by compared name: names that differ in case only are one service. Times are epoch seconds.

    What a source observes is kept under the name that it writes. ``changed`` has the services whose instances may have
    changed, ``unsaved`` the sources and services whose holding is not stored yet. The caller empties both.
    """

    def __init__(self, limits: CatalogLimits, reuse_from: int = REUSE_FROM) -> None:
        self.limits = limits
        self._reuse_from = reuse_from
        self.changed: set[ComparedName] = set()
        self.unsaved: set[HoldingKey] = set()
        self.wanted: frozenset[ComparedName] = frozenset()
        self._sources: dict[str, SourceHoldings] = {}
        self._services: dict[ComparedName, dict[HoldingKey, ServiceHolding]] = {}
        self._served: dict[ComparedName, tuple[ServiceInstance, ...]] = {}
        # Of large services that changed since.
        self._previously_served: dict[ComparedName, tuple[ServiceInstance, ...]] = {}
        self._ends: list[tuple[float, str, str]] = []  # when an instance has drained, its source and service

    # Reading

    def __contains__(self, service: str) -> bool:
        return compared(service) in self._services

    def __iter__(self) -> Iterator[ComparedName]:
        return iter(self._services)

    def __len__(self) -> int:
        return len(self._services)

    def sources(self) -> list[SourceHoldings]:
        """What each source has observed, by name."""
        return [self._sources[name] for name in sorted(self._sources)]

    def holding(self, source: str, service: str) -> ServiceHolding | None:
        """What a source has observed of a service under exactly this name."""
        return self._services.get(compared(service), {}).get((source, service))

    def holdings(self, service: str) -> list[tuple[str, ServiceHolding]]:
        """What the sources have observed of a service: source, and holding. A source has one for each name."""
        return [(source, holding) for (source, _), holding in self._services.get(compared(service), {}).items()]

    def written_name(self, service: str) -> str:
        """The name of a service as a source writes it: the first by alphabet, of those with instances if any."""
        names = ((holding.is_empty, name) for (_, name), holding in self._services.get(compared(service), {}).items())
        return min(names, default=(True, service))[1]

    def served(self, service: str) -> tuple[ServiceInstance, ...]:
        """The instances of a service, ordered by address and port. Each address is of the first source by name."""
        name = compared(service)
        served_service = self._served.get(name)
        if served_service is None:
            before = self._previously_served.pop(name, ())
            served_service = self._served[name] = _merge_sources(self._services.get(name, {}), before)
        return served_service

    def is_known(self, service: str) -> bool:
        """Whether a source has ever observed an instance of a service, so that an empty service has lost all instances.

        This is remembered while a source has the service, or something uses it.
        """
        return any(holding.was_shown for _, holding in self.holdings(service))

    # Changing

    def add_source(self, name: str, rule: HoldRule) -> SourceHoldings:
        """Add a source, or change the rule of an existing one."""
        source = self._sources.setdefault(name, SourceHoldings(name, rule))
        source.rule, source.is_retired = rule, False
        return source

    def show(self, source: SourceHoldings, service: str, instances: Instances, now: float) -> None:
        """Set the instances of a service that a source shows now. Unusable ones are left out, with findings."""
        holding, violations = source.by_service.get(service), check_service_name(service)
        if holding is None and not violations and self._is_full(source, service):
            detail = f"more than {self.limits.services} services: {service!r} is left out"
            violations = [Violation("too_many_services", detail)]
        if violations:
            self._report(source, service, violations)
            return
        usable, violations = self._usable(source, holding, instances)
        self._report(source, service, violations)
        holding = holding if holding is not None else self._add(source, service)
        self._set_gone(source, service, holding, is_gone=False)
        before_n = len(holding)
        if holding.put(usable, now, source.rule):
            source.instances_n += len(holding) - before_n
            self._on_changed(source, service, holding)

    def drop(self, source: SourceHoldings, service: str, now: float) -> None:
        """A source no longer has a service."""
        source.findings.pop(service, None)
        if service in source.by_service:
            self.show(source, service, (), now)
            self._set_gone(source, service, source.by_service[service], is_gone=True)
            self._forget_empty(source, service)

    def restore(self, source: SourceHoldings, service: str, holding: ServiceHolding) -> None:
        """Add a holding from before a restart."""
        source.by_service[service] = holding
        source.instances_n += len(holding)
        self._services.setdefault(compared(service), {})[source.name, service] = holding
        self._on_changed(source, service, holding)

    def accept(self, source: SourceHoldings, services: Collection[str], now: float) -> dict[str, int]:
        """Accept the held losses of these services. Returns the number of removed instances, by service."""
        accepted = {}
        for service in sorted(source.held_services.intersection(services)):
            holding = source.by_service[service]
            accepted[service] = holding.accept(now, source.rule)
            source.instances_n -= accepted[service]
            self._on_changed(source, service, holding)
            self._forget_empty(source, service)
        return accepted

    def forget_source(self, name: str, now: float) -> None:
        """Retire a source that was removed from the settings: its instances drain."""
        source = self._sources.get(name)
        if source is None:
            return
        source.rule, source.is_retired = HoldRule(1.0, drain_s=source.rule.drain_s), True
        for service in list(source.by_service):
            self.drop(source, service, now)
        if not source.by_service:
            del self._sources[name]

    def set_wanted(self, wanted: Iterable[str]) -> None:
        """Set the services that something uses. Unused ones without instances are forgotten."""
        before, self.wanted = self.wanted, frozenset(map(compared, wanted))
        for name in before - self.wanted:
            for source, service in list(self._services.get(name, ())):
                self._forget_empty(self._sources[source], service)

    def end_drains(self, now: float) -> None:
        """Remove the instances that have drained."""
        while self._ends and self._ends[0][0] <= now:
            _, name, service = heappop(self._ends)
            source, holding = self._sources.get(name), self.holding(name, service)
            if source is not None and holding is not None and holding.draining.end(now):
                self._on_changed(source, service, holding)
                self._forget_empty(source, service)

    @property
    def next_end(self) -> float | None:
        """When the next instance is to be removed; None if none drains."""
        return self._ends[0][0] if self._ends else None

    def _is_full(self, source: SourceHoldings, service: str) -> bool:
        """Whether there are too many services for a new one, or too many names of one source for another name."""
        limit = self.limits.services
        return len(source.by_service) >= limit or (service not in self and len(self) >= limit)

    def _usable(
        self, source: SourceHoldings, holding: ServiceHolding | None, instances: Instances
    ) -> tuple[dict[str, Instance], list[Violation]]:
        known = holding.present if holding is not None else {}
        free = max(self.limits.instances_per_source - source.instances_n, 0)  # the limit may be lower than before
        room = min(self.limits.instances_per_service, free + len(known))
        violations: list[Violation] = []
        candidates: Iterable[tuple[int, Instance]] = enumerate(instances)
        if len(instances) > room:
            detail = f"{len(instances)} instances, {room} are taken over at most"
            violations.append(Violation("too_many_instances", detail))
            candidates = _present_first(instances, known)
        usable: dict[str, Instance] = {}
        for index, instance in islice(candidates, room):
            id, existing = instance.id, known.get(instance.id)
            if id in usable:
                detail = f"two instances have the id {id!r}: the first one counts"
                violations.append(Violation("duplicate_id", detail, pointer=f"/{index}/id"))
            elif existing is not None and (existing.instance is instance or existing.instance == instance):
                usable[id] = existing.instance  # the same object means that nothing has changed
            elif wrong := check_instance(instance, f"/{index}"):
                violations += wrong
            else:
                usable[id] = instance
        return usable, violations

    def _report(self, source: SourceHoldings, service: str, violations: list[Violation]) -> None:
        if not violations:
            source.findings.pop(service, None)
        elif service in source.findings or len(source.findings) < SERVICES_WITH_FINDINGS:
            source.findings[service] = tuple(violations[:FINDINGS_LIMIT])

    def _add(self, source: SourceHoldings, service: str) -> ServiceHolding:
        holding = source.by_service[service] = ServiceHolding()
        self._services.setdefault(compared(service), {})[source.name, service] = holding
        self._on_changed(source, service, holding)
        return holding

    def _set_gone(self, source: SourceHoldings, service: str, holding: ServiceHolding, is_gone: bool) -> None:
        if holding.is_gone is not is_gone:
            holding.is_gone = is_gone
            self.changed.add(compared(service))  # readers also see whether the service exists
            self.unsaved.add((source.name, service))

    def _on_changed(self, source: SourceHoldings, service: str, holding: ServiceHolding) -> None:
        """Record that a holding has changed."""
        self._mark_changed(source, service)
        (source.held_services.add if holding.is_held else source.held_services.discard)(service)
        ends = holding.draining.next_end
        if ends is not None:
            heappush(self._ends, (ends, source.name, service))

    def _mark_changed(self, source: SourceHoldings, service: str) -> None:
        name = compared(service)
        self.changed.add(name)
        self.unsaved.add((source.name, service))
        served = self._served.pop(name, ())
        if len(served) >= self._reuse_from:
            self._previously_served[name] = served

    def _forget_empty(self, source: SourceHoldings, service: str) -> None:
        """Forget an empty holding of a service that the source no longer has.

        The holding of a used service stays, so that it is known to have lost all instances.
        """
        holding, name = source.by_service[service], compared(service)
        if not (holding.is_gone and holding.is_empty) or (name in self.wanted and not source.is_retired):
            return
        del source.by_service[service]
        others = self._services[name]
        del others[source.name, service]
        self._mark_changed(source, service)
        if not others:
            del self._services[name]
            self._previously_served.pop(name, None)
        if source.is_retired and not source.by_service:
            del self._sources[source.name]


def _present_first(instances: Instances, present: Collection[str]) -> Iterator[tuple[int, Instance]]:
    """The instances with their indices, those with ids in ``present`` first. Lazy: a flood costs only its limit."""
    if present:
        yield from (each for each in enumerate(instances) if each[1].id in present)
    yield from (each for each in enumerate(instances) if each[1].id not in present)


def _merge_sources(
    holdings: Mapping[HoldingKey, ServiceHolding], previous: tuple[ServiceInstance, ...]
) -> tuple[ServiceInstance, ...]:
    """Each address once: present instances count before lost ones, these before draining ones, then by source name.

    After that, the name that the source writes counts.

    An unchanged instance is the same object as in ``previous``.
    """
    if len(holdings) == 1:
        (key, holding), *_ = holdings.items()
        if not holding.lost and not len(holding.draining):
            replaced = _update_each(key, holding.present, previous)
            if replaced is not None:
                return replaced
    known = {(id(one.observed), one.is_held, one.drains_until): one for one in previous}
    by_address: dict[SocketAddress, ServiceInstance] = {}
    keys = sorted(holdings)
    for key in keys:
        source, name = key
        present = holdings[key].present.values()
        _add_first(by_address, known, (ServiceInstance(source, observed, service=name) for observed in present))
    for key in keys:
        source, name = key
        lost = holdings[key].lost.values()
        _add_first(by_address, known, (ServiceInstance(source, each, is_held=True, service=name) for each in lost))
    for key in keys:
        source, name = key
        _add_first(
            by_address,
            known,
            (ServiceInstance(source, one, False, until, name) for _, one, until in holdings[key].draining),
        )
    return tuple(by_address[place] for place in sorted(by_address))


def _update_each(
    key: HoldingKey, present: Mapping[str, ObservedInstance], previous: tuple[ServiceInstance, ...]
) -> tuple[ServiceInstance, ...] | None:
    """``previous`` with each instance as it is now; None if an instance was added, removed or moved."""
    if len(present) != len(previous):
        return None
    updated = []
    for one in previous:
        observed = present.get(one.observed.instance.id)
        if observed is one.observed:  # an instance that was lost or drained, and is present again, is another object
            updated.append(one)
        elif observed is None or socket_address(observed.instance) != socket_address(one.observed.instance):
            return None
        else:
            updated.append(ServiceInstance(key[0], observed, service=key[1]))
    return tuple(updated)


def _add_first(
    by_address: dict[SocketAddress, ServiceInstance],
    known: Mapping[tuple[int, bool, float | None], ServiceInstance],
    instances: Iterable[ServiceInstance],
) -> None:
    """Add the instances with an unused address and port.

    If two instances of a source have the same address and port, the one with the smaller id is added.
    """
    used = set(by_address)
    for one in instances:
        address = socket_address(one.instance)
        if address in used:
            continue
        other = by_address.get(address)
        if other is None or one.instance.id < other.instance.id:
            by_address[address] = known.get((id(one.observed), one.is_held, one.drains_until), one)
