"""The services of addresses: those that show one, else the one that showed it last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.linkerd_site import instance
from xds.linkerd import address_index
from xds.linkerd.address_index import AddressIndex
from xds.services.core.draining import ObservedInstance
from xds.services.core.index import ServiceInstance

SERVICES, ADDRESSES = ("web", "api", "db"), ("10.96.0.1", "10.96.0.2", "fd00::1")
EDITS = st.tuples(st.sampled_from(SERVICES), st.none() | st.frozensets(st.sampled_from(ADDRESSES)), st.booleans())


def shown(virtual: Iterable[str], *, drains: bool = False, **fields: Any) -> ServiceInstance:
    one = instance("10.0.0.1", virtual_addresses=tuple(virtual), **fields)
    return ServiceInstance("test", ObservedInstance(one, 0.0, 0.0), drains_until=1.0 if drains else None)


@given(st.lists(EDITS, max_size=12))
def test_an_address_belongs_to_the_service_that_shows_it_or_showed_it_last(
    edits: list[tuple[str, frozenset[str] | None, bool]],
) -> None:
    """None: the service has no instance left, or one that drains."""
    index = AddressIndex()
    shows: dict[str, frozenset[str]] = {}
    kept: dict[str, set[str]] = {address: set() for address in ADDRESSES}
    for service, addresses, drains in edits:
        before = {address: index.services_with_virtual(address) for address in ADDRESSES}
        last = shows.pop(service, frozenset())
        if addresses is None:
            moved = index.assign(service, [shown(last, drains=True)] if drains else [])
            for address in last:
                if not any(address in others for others in shows.values()):
                    kept[address].add(service)
        else:
            moved = index.assign(service, [shown(addresses)])
            shows[service] = addresses
            for address in ADDRESSES:
                kept[address] = set() if address in addresses else kept[address] - {service}
        for address in ADDRESSES:
            now = {one for one, others in shows.items() if address in others} or kept[address]
            assert index.services_with_virtual(address) == tuple(sorted(now))
            assert before[address] == tuple(sorted(now)) or address in moved.addresses


def test_addresses_of_services_without_instances_are_bounded() -> None:
    index = AddressIndex()
    for number in range(address_index.KEPT_SERVICES_LIMIT + 5):
        index.assign(f"s{number}", [shown([f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"])])
        index.assign(f"s{number}", [])
    assert index.services_with_virtual("10.0.0.0") == index.services_with_virtual("10.0.0.4") == ()
    assert index.services_with_virtual("10.0.0.5") == ("s5",)


def test_the_zone_of_a_machine_is_that_of_the_latest_instance() -> None:
    index = AddressIndex()
    assert index.assign("web", [shown([], node="n1", zone="z1")]).machines == {"n1"}
    assert index.assign("api", [shown([], node="n1", zone="z1")]).machines == set()
    assert index.assign("api", [shown([], node="n1", zone="z2")]).machines == {"n1"}
    assert index.zone_of("n1") == "z2" and index.zone_of("n2") == ""
