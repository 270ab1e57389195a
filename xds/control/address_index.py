"""Which services have an IP address, as their own virtual address or as that of an instance; the zones of machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from xds.catalog.service_index import ServiceInstance
from xds.destination.endpoint import shortest
from xds.model.names import NO_NAMES

NODES_LIMIT = 100_000
KEPT_LIMIT = 10_000  # services without instances whose virtual addresses are kept


@dataclass(frozen=True, slots=True)
class ServiceAddresses:
    """The addresses of a service: ``virtual`` ones, and those of its ``instances``.

    ``is_kept``: no instance shows the virtual ones any more.
    """

    virtual: frozenset[str] = NO_NAMES
    instances: frozenset[str] = NO_NAMES
    is_kept: bool = False


class Moved(NamedTuple):
    """Addresses for which the services may be others than before, and machines whose zone is another one."""

    addresses: set[str]
    machines: set[str]


_NOWHERE = ServiceAddresses()


class AddressIndex:
    """Services by address, kept service by service. Addresses are in their shortest form.

    The virtual addresses of a service outlive its instances: that none is left does not make the address another one.
    They are kept until another service shows them, of ``KEPT_LIMIT`` services at most.
    """

    def __init__(self) -> None:
        self._of_service: dict[str, ServiceAddresses] = {}
        self._virtual: dict[str, set[str]] = {}
        self._instances: dict[str, set[str]] = {}
        self._kept: dict[str, None] = {}  # the services that are, the longest kept one first
        self._zones: dict[str, str] = {}  # by machine

    def services_with_virtual(self, address: str) -> tuple[str, ...]:
        """The services whose virtual address this is, by name."""
        return tuple(sorted(self._virtual.get(address, ())))

    def services_at(self, address: str) -> tuple[str, ...]:
        """The services with an instance at an address, by name."""
        return tuple(sorted(self._instances.get(address, ())))

    def zone_of(self, machine: str) -> str:
        """The zone of a machine; empty where it is not known."""
        return self._zones.get(machine, "")

    def assign(self, service: str, instances: Iterable[ServiceInstance]) -> Moved:
        """The instances of a service now. Returns what may be other than before."""
        before, there = self._of_service.get(service, _NOWHERE), list(instances)
        now = self._without_shown(_addresses(there, before), service)
        self._enter(service, before, now)
        if not now.is_kept:
            self._end_keeping(now.virtual, service)
        while len(self._kept) > KEPT_LIMIT:
            longest = next(iter(self._kept))
            kept = self._of_service[longest]
            self._enter(longest, kept, ServiceAddresses(instances=kept.instances))
        machines = {one.instance.node for one in there if self._note_zone(one)}
        return Moved({*before.virtual, *before.instances, *now.virtual, *now.instances}, machines)

    def _without_shown(self, now: ServiceAddresses, service: str) -> ServiceAddresses:
        """Only what no other service shows can be kept."""
        if not now.is_kept:
            return now
        left = frozenset(address for address in now.virtual if not self._is_shown(address, service))
        return ServiceAddresses(left, now.instances, bool(left))

    def _is_shown(self, address: str, besides: str) -> bool:
        others = self._virtual.get(address, set()) - {besides}
        return any(not self._of_service[other].is_kept for other in others)

    def _enter(self, service: str, before: ServiceAddresses, now: ServiceAddresses) -> None:
        _move(self._virtual, service, before.virtual, now.virtual)
        _move(self._instances, service, before.instances, now.instances)
        if now == _NOWHERE:
            self._of_service.pop(service, None)
        else:
            self._of_service[service] = now
        if now.is_kept:
            self._kept.setdefault(service)
        else:
            self._kept.pop(service, None)

    def _end_keeping(self, addresses: Iterable[str], service: str) -> None:
        """A service shows these addresses: they are no longer those of others that have no instance."""
        for address in addresses:
            for other in self._virtual[address] - {service}:
                kept = self._of_service[other]
                if kept.is_kept:
                    left = kept.virtual - {address}
                    self._enter(other, kept, ServiceAddresses(left, kept.instances, bool(left)))

    def _note_zone(self, one: ServiceInstance) -> bool:
        """Whether the zone of its machine is another one than before."""
        machine, zone = one.instance.node, one.instance.locality.zone
        if not (machine and zone) or self._zones.get(machine) == zone:
            return False
        if machine in self._zones or len(self._zones) < NODES_LIMIT:
            self._zones[machine] = zone
        return machine in self._zones


def _addresses(instances: list[ServiceInstance], before: ServiceAddresses) -> ServiceAddresses:
    """The addresses of a service. What drains shows no virtual address any more."""
    places = frozenset(shortest(one.instance.address) for one in instances)
    shown = [one for one in instances if one.drains_until is None]
    if shown:
        return ServiceAddresses(_virtual(shown), places)
    kept = before.virtual or _virtual(instances)
    return ServiceAddresses(kept, places, bool(kept))


def _virtual(instances: Iterable[ServiceInstance]) -> frozenset[str]:
    return frozenset(shortest(each) for one in instances for each in one.instance.virtual_addresses)


def _move(index: dict[str, set[str]], service: str, before: frozenset[str], now: frozenset[str]) -> None:
    for address in before - now:
        members = index.get(address, set())
        members.discard(service)
        if not members:
            index.pop(address, None)
    for address in now - before:
        index.setdefault(address, set()).add(service)
