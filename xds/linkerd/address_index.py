"""The services of an IP address: those with this virtual address, and those with an instance at it.

The zones of machines are indexed too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from xds.linkerd.core.endpoint import shortest
from xds.model.names import NO_NAMES
from xds.services.core.index import ServiceInstance

NODES_LIMIT = 100_000
KEPT_SERVICES_LIMIT = 10_000  # services without instances whose virtual addresses are kept


@dataclass(frozen=True, slots=True)
class ServiceAddresses:
    """The addresses of a service: ``virtual`` ones, and those of its ``instances``.

    ``is_kept``: the virtual addresses are kept though no instance shows them any more.
    """

    virtual: frozenset[str] = NO_NAMES
    instances: frozenset[str] = NO_NAMES
    is_kept: bool = False


class AddressChanges(NamedTuple):
    """Addresses whose services may have changed, and machines whose zone has changed."""

    addresses: set[str]
    machines: set[str]


_NO_ADDRESSES = ServiceAddresses()


class AddressIndex:
    """Services by address, kept service by service. Addresses are in their shortest form.

    The virtual addresses of a service are kept when its last instance is removed: they still mean this service. They
    are kept until another service shows them, for ``KEPT_SERVICES_LIMIT`` services at most.
    """

    def __init__(self) -> None:
        self._of_service: dict[str, ServiceAddresses] = {}
        self._virtual: dict[str, set[str]] = {}
        self._instances: dict[str, set[str]] = {}
        self._kept_services: dict[str, None] = {}  # services with ``is_kept``, the longest kept one first
        self._zones: dict[str, str] = {}  # by machine

    def services_with_virtual(self, address: str) -> tuple[str, ...]:
        """The services whose virtual address this is, by name."""
        return tuple(sorted(self._virtual.get(address, ())))

    def services_at(self, address: str) -> tuple[str, ...]:
        """The services with an instance at an address, by name."""
        return tuple(sorted(self._instances.get(address, ())))

    def zone_of(self, machine: str) -> str:
        """The zone of a machine; empty if it is not known."""
        return self._zones.get(machine, "")

    def assign(self, service: str, instances: Iterable[ServiceInstance]) -> AddressChanges:
        """Replace the instances of a service. Returns what may have changed."""
        before, present = self._of_service.get(service, _NO_ADDRESSES), list(instances)
        now = self._without_shown(_addresses(present, before), service)
        self._enter(service, before, now)
        if not now.is_kept:
            self._end_keeping(now.virtual, service)
        while len(self._kept_services) > KEPT_SERVICES_LIMIT:
            longest = next(iter(self._kept_services))
            kept = self._of_service[longest]
            self._enter(longest, kept, ServiceAddresses(instances=kept.instances))
        machines = {one.instance.node for one in present if self._note_zone(one)}
        return AddressChanges({*before.virtual, *before.instances, *now.virtual, *now.instances}, machines)

    def _without_shown(self, now: ServiceAddresses, service: str) -> ServiceAddresses:
        """The addresses, without kept virtual ones that another service shows."""
        if not now.is_kept:
            return now
        remaining = frozenset(address for address in now.virtual if not self._is_shown(address, service))
        return ServiceAddresses(remaining, now.instances, bool(remaining))

    def _is_shown(self, address: str, by_other_than: str) -> bool:
        others = self._virtual.get(address, set()) - {by_other_than}
        return any(not self._of_service[other].is_kept for other in others)

    def _enter(self, service: str, before: ServiceAddresses, now: ServiceAddresses) -> None:
        _reindex(self._virtual, service, before.virtual, now.virtual)
        _reindex(self._instances, service, before.instances, now.instances)
        if now == _NO_ADDRESSES:
            self._of_service.pop(service, None)
        else:
            self._of_service[service] = now
        if now.is_kept:
            self._kept_services.setdefault(service)
        else:
            self._kept_services.pop(service, None)

    def _end_keeping(self, addresses: Iterable[str], service: str) -> None:
        """Remove these addresses, which ``service`` shows now, from other services that have no instance."""
        for address in addresses:
            for other in self._virtual[address] - {service}:
                kept = self._of_service[other]
                if kept.is_kept:
                    remaining = kept.virtual - {address}
                    self._enter(other, kept, ServiceAddresses(remaining, kept.instances, bool(remaining)))

    def _note_zone(self, one: ServiceInstance) -> bool:
        """Note the zone of the machine of an instance. Returns whether the zone has changed."""
        machine, zone = one.instance.node, one.instance.locality.zone
        if not (machine and zone) or self._zones.get(machine) == zone:
            return False
        if machine in self._zones or len(self._zones) < NODES_LIMIT:
            self._zones[machine] = zone
        return machine in self._zones


def _addresses(instances: list[ServiceInstance], before: ServiceAddresses) -> ServiceAddresses:
    """The addresses of a service. A draining instance shows no virtual address any more."""
    places = frozenset(shortest(one.instance.address) for one in instances)
    shown = [one for one in instances if one.drains_until is None]
    if shown:
        return ServiceAddresses(_virtual(shown), places)
    kept = before.virtual or _virtual(instances)
    return ServiceAddresses(kept, places, bool(kept))


def _virtual(instances: Iterable[ServiceInstance]) -> frozenset[str]:
    return frozenset(shortest(each) for one in instances for each in one.instance.virtual_addresses)


def _reindex(index: dict[str, set[str]], service: str, before: frozenset[str], now: frozenset[str]) -> None:
    for address in before - now:
        members = index.get(address, set())
        members.discard(service)
        if not members:
            index.pop(address, None)
    for address in now - before:
        index.setdefault(address, set()).add(service)
