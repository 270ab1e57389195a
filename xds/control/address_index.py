"""Which services have an IP address, as their own virtual address or as that of an instance; the zones of machines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from xds.catalog.service_index import ServiceInstance

NODES_LIMIT = 100_000

_NONE: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ServiceAddresses:
    """The addresses of a service: ``virtual`` ones, and those of its ``instances``."""

    virtual: frozenset[str] = _NONE
    instances: frozenset[str] = _NONE


_NOWHERE = ServiceAddresses()


class AddressIndex:
    """Services by address, kept service by service. Addresses are in their shortest form.

    The virtual addresses of a service outlive its instances: that none is left does not make the address another one.
    """

    def __init__(self) -> None:
        self._of_service: dict[str, ServiceAddresses] = {}
        self._virtual: dict[str, set[str]] = {}
        self._instances: dict[str, set[str]] = {}
        self._zones: dict[str, str] = {}  # by machine

    def services_with_virtual(self, address: str) -> tuple[str, ...]:
        """The services whose virtual address this is, by name."""
        return tuple(sorted(self._virtual.get(address, ())))

    def services_at(self, address: str) -> tuple[str, ...]:
        """The services with an instance at an address, by name."""
        return tuple(sorted(self._instances.get(address, ())))

    def zone_of(self, node: str) -> str:
        """The zone of a machine; empty where it is not known."""
        return self._zones.get(node, "")

    def assign(self, service: str, instances: Iterable[ServiceInstance]) -> set[str]:
        """The instances of a service now. Returns the addresses for which anything may be others than before."""
        before, there = self._of_service.get(service, _NOWHERE), list(instances)
        now = _addresses(there)
        if there and not now.virtual and all(one.drains_until is not None for one in there):
            now = ServiceAddresses(before.virtual, now.instances)
        elif not there and before.virtual and not self._is_claimed(before.virtual, service):
            now = ServiceAddresses(before.virtual)
        for one in there:
            self._note_zone(one)
        _move(self._virtual, service, before.virtual, now.virtual)
        _move(self._instances, service, before.instances, now.instances)
        if now == _NOWHERE:
            self._of_service.pop(service, None)
        else:
            self._of_service[service] = now
        return {*before.virtual, *before.instances, *now.virtual, *now.instances}

    def _is_claimed(self, addresses: Iterable[str], service: str) -> bool:
        """Whether another service has one of these virtual addresses by now."""
        return any(self._virtual.get(each, set()) - {service} for each in addresses)

    def _note_zone(self, one: ServiceInstance) -> None:
        node, zone = one.instance.node, one.instance.locality.zone
        if node and zone and (node in self._zones or len(self._zones) < NODES_LIMIT):
            self._zones[node] = zone


def _addresses(instances: Iterable[ServiceInstance]) -> ServiceAddresses:
    present = [one.instance for one in instances]
    virtual = {_shortest(each) for one in present for each in one.virtual_addresses}
    return ServiceAddresses(frozenset(virtual), frozenset(_shortest(one.address) for one in present))


def _shortest(address: str) -> str:
    """Its shortest form, which an IPv4 address always has."""
    return address if ":" not in address else str(ip_address(address))


def _move(index: dict[str, set[str]], service: str, before: frozenset[str], now: frozenset[str]) -> None:
    for address in before - now:
        members = index.get(address, set())
        members.discard(service)
        if not members:
            index.pop(address, None)
    for address in now - before:
        index.setdefault(address, set()).add(service)
