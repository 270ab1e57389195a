"""Assignments of lowered clusters: one priority for each target, each endpoint once."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.lowering import instance, lower_assignment, lower_instances
from xds.codec.load_assignment import decode_assignment
from xds.codec.resources import ResourceDecoder
from xds.mesh.core.lower.assignments import OVERPROVISIONING_FACTOR
from xds.mesh.core.lower.lowered import LoweredAssignment
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.services.core.binding import Binding
from xds.services.core.instance import Health, Instance

Selected = list[tuple[Instance, Health]]


def assignment(*bindings: Binding) -> LoweredAssignment:
    return LoweredAssignment("web", bindings)


def instances(*texts: str) -> Selected:
    return [(one, one.health) for one in map(instance, texts)]


def priorities(resource: Resource) -> list[list[str]]:
    """Addresses with their status by priority, from the first to the last."""
    found: dict[int, list[str]] = {}
    for entry in decode_assignment(resource).endpoints:
        held = found.setdefault(entry.priority, [])
        for one in entry.lb_endpoints:
            at = one.endpoint.address.socket_address
            held.append(f"{at.address} {'healthy' if one.health_status == 1 else 'unhealthy'}")
    assert list(found) == list(range(len(found)))
    return list(found.values())


WEB, BACKUP = Binding("web"), Binding("backup")


def test_the_assignment_of_one_target_equals_that_of_a_binding() -> None:
    given = instances("10.0.0.1:80", "10.0.0.2:80 critical zone=z1", "10.0.0.3:80 weight=300/1")
    found = lower_assignment(assignment(WEB), [given])
    assert found == lower_instances("web", given, Binding("web"))


def test_each_target_is_a_priority_that_counts_until_its_last_healthy_endpoint_is_gone() -> None:
    found = lower_assignment(assignment(WEB, BACKUP), [instances("10.0.0.1:80"), instances("10.0.0.2:80 critical")])
    assert priorities(found) == [["10.0.0.1 healthy"], ["10.0.0.2 unhealthy"]]
    assert decode_assignment(found).policy.overprovisioning_factor.value == OVERPROVISIONING_FACTOR


def test_a_member_of_an_aggregate_counts_until_its_last_healthy_endpoint_is_gone() -> None:
    member = replace(assignment(WEB), is_member=True)
    found = lower_assignment(member, [instances("10.0.0.1:80", "10.0.0.2:80 critical")])
    assert decode_assignment(found).policy.overprovisioning_factor.value == OVERPROVISIONING_FACTOR


def test_a_target_without_instances_keeps_its_priority_unless_it_is_the_last() -> None:
    three = assignment(WEB, Binding("none"), BACKUP)
    found = lower_assignment(three, [instances("10.0.0.1:80"), [], instances("10.0.0.2:80")])
    assert priorities(found) == [["10.0.0.1 healthy"], [], ["10.0.0.2 healthy"]]
    assert priorities(lower_assignment(three, [[], [], instances("10.0.0.2:80")])) == [[], [], ["10.0.0.2 healthy"]]
    found = lower_assignment(three, [instances("10.0.0.1:80"), [], []])
    assert priorities(found) == [["10.0.0.1 healthy"]]
    assert not decode_assignment(found).HasField("policy")
    assert priorities(lower_assignment(three, [[], [], []])) == []


def test_an_endpoint_of_two_targets_is_where_it_is_healthy_first() -> None:
    strict = Binding("web", only_passing=True)
    given = instances("10.0.0.1:80 warning", "10.0.0.2:80", "10.0.0.3:80 critical")
    found = lower_assignment(assignment(strict, WEB), [given, given])
    assert priorities(found) == [["10.0.0.2 healthy", "10.0.0.3 unhealthy"], ["10.0.0.1 healthy"]]


def test_weights_are_those_of_the_instances() -> None:
    found = lower_assignment(
        assignment(WEB, BACKUP), [instances("10.0.0.1:80 weight=1000/1"), instances("10.0.0.2:80 weight=5/1")]
    )
    entries = decode_assignment(found).endpoints
    assert [one.load_balancing_weight.value for entry in entries for one in entry.lb_endpoints] == [1000, 5]


_instances = st.lists(
    st.tuples(
        st.builds(
            Instance,
            id=st.just("a"),
            address=st.sampled_from(("10.0.0.1", "10.0.0.2", "::1")),
            port=st.integers(1, 3),
            weight=st.integers(0, 1000),
            warning_weight=st.integers(0, 5),
        ),
        st.sampled_from(list(Health)),
    ),
    max_size=5,
)


@given(st.lists(_instances, min_size=1, max_size=4), st.booleans())
@examples(100)
def test_every_assignment_is_canonical_and_valid_and_has_each_endpoint_once(
    selected: list[Selected], only_passing: bool
) -> None:
    targets = assignment(*(Binding("web", only_passing=only_passing and not at) for at in range(len(selected))))
    found = lower_assignment(targets, selected)
    message = decode_assignment(found)
    assert found.body == message.SerializeToString(deterministic=True)
    assert ResourceDecoder().message(ENDPOINT, found.body, name="web").version == found.version
    endpoints = [endpoint for entry in message.endpoints for endpoint in entry.lb_endpoints]
    places = [str(one.endpoint.address) for one in endpoints]
    assert sorted(places) == sorted({*places})
    assert len(places) == len({(one.address, one.port) for each in selected for one, _ in each})
    priorities(found)
