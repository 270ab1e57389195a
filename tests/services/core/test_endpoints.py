"""Instances as ClusterLoadAssignments: health, weights, localities, ports, canonical bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.lowering import lower_instances
from xds.codec import schema
from xds.codec.load_assignment import decode_assignment
from xds.codec.resources import resource_from_bytes
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.services.core.binding import Binding
from xds.services.core.endpoints import ServedEndpoint, lower_endpoints, priorities_in
from xds.services.core.instance import WEIGHT_LIMIT, Health, Instance

ANY = Binding("web")
HEALTHY, UNHEALTHY, DRAINING = 1, 2, 3


def endpoints(resource: Resource) -> dict[tuple[str, int], tuple[int, int]]:
    """Address and port to health status and weight."""
    found = {}
    for entry in decode_assignment(resource).endpoints:
        for one in entry.lb_endpoints:
            at = one.endpoint.address.socket_address
            found[at.address, at.port_value] = one.health_status, one.load_balancing_weight.value
    return found


def lowered(*instances: tuple[Instance, Health], rule: Binding = ANY) -> dict[tuple[str, int], tuple[int, int]]:
    return endpoints(lower_instances("web", instances, rule))


def test_health_decides_the_status_and_warning_has_its_own_weight() -> None:
    def one(number: int, health: Health) -> tuple[Instance, Health]:
        return Instance(str(number), f"10.0.0.{number}", 80, weight=10, warning_weight=3), health

    found = lowered(*(one(n, health) for n, health in enumerate(Health, 1)))
    assert found == {
        ("10.0.0.1", 80): (HEALTHY, 10),
        ("10.0.0.2", 80): (HEALTHY, 3),
        ("10.0.0.3", 80): (UNHEALTHY, 10),
        ("10.0.0.4", 80): (DRAINING, 10),
    }


def test_an_entry_has_a_locality_even_if_the_instances_have_none() -> None:
    """gRPC rejects an entry without one (measured, C core 1.85)."""
    resource = lower_instances("web", [(Instance("1", "10.0.0.1", 80), Health.PASSING)], ANY)
    (entry,) = decode_assignment(resource).endpoints
    assert entry.HasField("locality") and not entry.locality.region


def test_only_passing_takes_requests_from_instances_that_warn() -> None:
    one = Instance("1", "10.0.0.1", 80), Health.WARNING
    assert lowered(one, rule=Binding("web", only_passing=True)) == {("10.0.0.1", 80): (UNHEALTHY, 1)}


def test_a_weight_below_1_means_unhealthy() -> None:
    """As Consul does it."""
    one = Instance("1", "10.0.0.1", 80, weight=500, warning_weight=0)
    assert lowered((one, Health.PASSING)) == {("10.0.0.1", 80): (HEALTHY, 500)}
    assert lowered((one, Health.WARNING)) == {("10.0.0.1", 80): (UNHEALTHY, 1)}


def test_a_weight_is_that_of_the_instance_whatever_the_others_have() -> None:
    """Cut at 128, as Consul does it, 1000 and 250 would share requests alike; scaled, each would change with others."""
    a, b = Instance("a", "10.0.0.1", 80, weight=65_535), Instance("b", "10.0.0.2", 80, weight=1)
    assert lowered((a, Health.PASSING), (b, Health.PASSING)) == {
        ("10.0.0.1", 80): (HEALTHY, 65_535),
        ("10.0.0.2", 80): (HEALTHY, 1),
    }


def test_weights_whose_sum_no_proxy_takes_are_divided() -> None:
    """Envoy and gRPC refuse an assignment whose weights sum up to 2^32 or more."""
    (template,) = priorities_in(lower_instances("web", [(Instance("a", "10.0.0.1", 80), Health.PASSING)], ANY))[
        0
    ].values()
    many = [
        ServedEndpoint.at((f"10.0.0.{n}", 80), HEALTHY, weight, template.locality)
        for n, weight in enumerate((2**31, 2**31, 2**30, 1))
    ]
    resource = lower_endpoints("web", many)
    assert [weight for _, weight in endpoints(resource).values()] == [2**30, 2**30, 2**29, 1]
    (entry,) = decode_assignment(resource).endpoints
    assert entry.load_balancing_weight.value == 2**31 + 2**29 + 1


def test_the_endpoints_in_an_assignment_are_those_it_was_made_of() -> None:
    instances = [
        (Instance("a", "10.0.0.1", 80, weight=7, locality=Locality("eu", "1")), Health.CRITICAL),
        (Instance("b", "::1", 81), Health.DRAINING),
    ]
    resource = lower_instances("web", instances, ANY)
    found = priorities_in(resource)[0]
    assert list(found) == [("::1", 81), ("10.0.0.1", 80)]
    assert lower_endpoints("web", found.values()) == resource
    assert [one.drains for one in found.values()] == [True, False]


def test_a_named_port_is_used_and_instances_without_it_are_left_out() -> None:
    a = Instance("a", "10.0.0.1", 80, ports={"grpc": 90})
    b = Instance("b", "10.0.0.2", 80)
    assert lowered((a, Health.PASSING), (b, Health.PASSING), rule=Binding("web", port="grpc")) == {
        ("10.0.0.1", 90): (HEALTHY, 1)
    }


def test_an_entry_has_the_weight_of_its_healthy_endpoints() -> None:
    """gRPC ignores an entry without a weight, so even one without healthy endpoints has one."""
    eu, us = Locality("eu", "1"), Locality("us")
    resource = lower_instances(
        "web",
        [
            (Instance("a", "10.0.0.1", 80, weight=5, locality=us), Health.PASSING),
            (Instance("b", "10.0.0.2", 80, weight=7, locality=us), Health.DRAINING),
            (Instance("c", "10.0.0.3", 80, weight=9, locality=eu), Health.CRITICAL),
        ],
        ANY,
    )
    entries = decode_assignment(resource).endpoints
    assert [(e.locality.region, e.locality.zone, e.load_balancing_weight.value, e.priority) for e in entries] == [
        ("eu", "1", 1, 0),
        ("us", "", 5, 0),
    ]


def test_no_instance_makes_an_empty_assignment() -> None:
    resource = lower_instances("web", (), ANY)
    assert decode_assignment(resource).cluster_name == "web"
    assert endpoints(resource) == {}


_localities = st.builds(Locality, st.sampled_from(("", "eu", "us")), st.sampled_from(("", "a")), st.just(""))
_instances = st.builds(
    Instance,
    id=st.text("abc", min_size=1, max_size=3),
    address=st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str),
    port=st.integers(1, 65_535),
    ports=st.dictionaries(st.sampled_from(("grpc", "admin")), st.integers(1, 65_535)),
    weight=st.integers(0, 65_535),
    warning_weight=st.integers(0, 65_535),
    locality=_localities,
)


@given(st.lists(st.tuples(_instances, st.sampled_from(Health)), max_size=8), st.booleans(), st.randoms())
@examples(200)
def test_any_assignment_is_canonical_valid_and_does_not_depend_on_the_order(
    instances: list[tuple[Instance, Health]], only_passing: bool, random: Any
) -> None:
    places = {(one.address, one.port): (one, health) for one, health in instances}
    rule = Binding("web", only_passing=only_passing)
    resource = lower_instances("web", places.values(), rule)
    message = schema.require(ENDPOINT)()
    message.ParseFromString(resource.body)
    assert message.SerializeToString(deterministic=True) == resource.body
    assert resource_from_bytes(ENDPOINT, resource.body).version == resource.version
    shuffled = list(places.values())
    random.shuffle(shuffled)
    assert lower_instances("web", shuffled, rule) == resource
    assert endpoints(resource).keys() == places.keys()
    assert all(1 <= weight <= WEIGHT_LIMIT for _, weight in endpoints(resource).values())
