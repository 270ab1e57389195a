"""Assignments laid over pushed ClusterLoadAssignments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.resources import zoned_load_assignment
from xds.codec.load_assignment import PRIORITY_LIMIT, WEIGHT_SUM_LIMIT, decode_assignment, locality_of
from xds.codec.resources import decode_resource
from xds.model.node import Locality
from xds.model.resource import Resource, content_version
from xds.model.resource_type import ENDPOINT
from xds.steering.core.assignment import Allotment
from xds.steering.core.load_assignment import SHED_CATEGORY, PushedLocality, overlay_assignment, pushed_localities

A, B, C = (Locality("eu", zone) for zone in "abc")


def entry(locality: Locality, ports: tuple[int, ...] = (80,), **fields: Any) -> dict[str, Any]:
    """LocalityLbEndpoints in JSON."""
    place = {"region": locality.region, "zone": locality.zone, "sub_zone": locality.sub_zone}
    address = {"address": "10.0.0.1"}
    endpoints = [{"endpoint": {"address": {"socket_address": {**address, "port_value": port}}}} for port in ports]
    return {"locality": place, "lb_endpoints": endpoints, **fields}


def pushed(*entries: dict[str, Any], **fields: Any) -> Resource:
    return decode_resource({"@type": ENDPOINT, "cluster_name": "web", "endpoints": list(entries), **fields})


def laid(resource: Resource) -> list[tuple[Locality, int, int]]:
    """What is served: locality, priority, weight, entry by entry."""
    entries = decode_assignment(resource).endpoints
    return [(locality_of(each), each.priority, each.load_balancing_weight.value) for each in entries]


def test_localities_get_the_priorities_and_weights_of_their_source() -> None:
    found = overlay_assignment(
        pushed(entry(A), entry(B), entry(C)), [Allotment(A, 0, 7), Allotment(B, 0, 3), Allotment(C, 1, 1)]
    )
    assert laid(found) == [(A, 0, 7), (B, 0, 3), (C, 1, 1)]


def test_endpoints_and_the_rest_are_untouched() -> None:
    policy = {
        "overprovisioning_factor": 120,
        "drop_overloads": [{"category": "lb", "drop_percentage": {"numerator": 5}}],
    }
    one = entry(A, (80, 81), load_balancing_weight=9, priority=1, proximity=3)
    one["lb_endpoints"][0]["health_status"] = "UNHEALTHY"
    before = pushed(one, entry(B), policy=policy)
    after = overlay_assignment(before, [Allotment(A, 0, 1), Allotment(B, 0, 2)])
    assert (after.name, after.type_url, after.references) == (before.name, before.type_url, before.references)
    assert after.version == content_version(after.body) != before.version
    old, new = decode_assignment(before), decode_assignment(after)
    for message in (old, new):
        for each in message.endpoints:
            each.ClearField("priority")
            each.ClearField("load_balancing_weight")
    assert old == new


def test_another_fraction_to_drop_changes_the_weights_and_no_share() -> None:
    """Envoy ignores a changed ``drop_overload`` unless endpoints or locality weights change with it."""
    seen = set()
    for percent in range(100):
        allotments = [Allotment(A, 0, 7_000), Allotment(B, 0, 3_000), Allotment(C, 1, 1)]
        after = overlay_assignment(pushed(entry(A), entry(B), entry(C)), allotments, percent / 100)
        (_, _, first), (_, _, second), last = laid(after)
        assert (first * 3, last) == (second * 7, (C, 1, 1))
        seen.add(first)
        drops = decode_assignment(after).policy.drop_overloads
        dropped = sum(one.drop_percentage.numerator for one in drops)
        assert dropped == pytest.approx(percent * 10_000, abs=1)
    assert len(seen) == 100


def test_the_bytes_are_canonical() -> None:
    """The same decision over the same push gives the same bytes on every replica and after every restart."""
    resource, allotments = pushed(entry(A), entry(B)), [Allotment(A, 0, 1), Allotment(B, 1, 1)]
    first, second = overlay_assignment(resource, allotments), overlay_assignment(resource, reversed(allotments))
    assert first == second
    assert decode_assignment(first).SerializeToString(deterministic=True) == first.body


def test_a_locality_that_is_not_named_stays_reachable_last() -> None:
    found = overlay_assignment(pushed(entry(C, load_balancing_weight=5), entry(A), entry(B)), [Allotment(A, 0, 1)])
    assert laid(found) == [(C, 1, 5), (A, 0, 1), (B, 1, 1)]


def test_a_locality_that_is_pushed_no_more_leaves_no_gap() -> None:
    found = overlay_assignment(pushed(entry(B), entry(C)), [Allotment(A, 0, 1), Allotment(B, 1, 1), Allotment(C, 2, 1)])
    assert laid(found) == [(B, 0, 1), (C, 1, 1)]


@pytest.mark.parametrize("allotments", [[], [Allotment(B, 0, 1)]])
def test_without_applicable_weights_the_pushed_assignment_is_served(allotments: list[Allotment]) -> None:
    resource = pushed(entry(A, load_balancing_weight=3, priority=0))
    assert overlay_assignment(resource, allotments) is resource


def test_entries_of_one_locality_are_kept_with_those_of_the_best_priority_first() -> None:
    """A stand-by of the same zone stays a stand-by: no request goes there while the others of the split are healthy."""
    spare = entry(A, (81,), priority=1, load_balancing_weight=4)
    found = overlay_assignment(pushed(entry(A), spare, entry(B)), [Allotment(A, 0, 7), Allotment(B, 0, 3)])
    assert laid(found) == [(A, 0, 7), (A, 1, 4), (B, 0, 3)]


def test_two_entries_of_one_locality_and_priority_get_the_same() -> None:
    """Only Envoy takes that, and heeds the last weight for both."""
    found = overlay_assignment(pushed(entry(A), entry(A, (81,)), entry(B)), [Allotment(A, 0, 7), Allotment(B, 0, 3)])
    assert laid(found) == [(A, 0, 7), (A, 0, 7), (B, 0, 3)]


def test_priorities_end_where_envoy_ends() -> None:
    many = [Locality("eu", f"z{number}") for number in range(PRIORITY_LIMIT + 20)]
    allotments = [Allotment(locality, at, 1) for at, locality in enumerate(many)]
    found = laid(overlay_assignment(pushed(*map(entry, many)), allotments))
    assert [priority for _, priority, _ in found] == [*range(PRIORITY_LIMIT), *[PRIORITY_LIMIT] * 20]


def test_weights_that_come_together_fit() -> None:
    huge = WEIGHT_SUM_LIMIT - 1
    entries = [entry(A), *(entry(one, load_balancing_weight=huge) for one in (B, C))]
    weights = [
        weight for _, priority, weight in laid(overlay_assignment(pushed(*entries), [Allotment(A, 0, 1)])) if priority
    ]
    assert sum(weights) <= WEIGHT_SUM_LIMIT
    assert weights[0] == weights[1] > 1


def test_unreadable_bytes_are_served_as_they_are() -> None:
    broken = Resource(ENDPOINT, "web", b"\xff\xff", "v")
    assert overlay_assignment(broken, [Allotment(A, 0, 1)]) is broken
    assert pushed_localities(broken) == {}


def test_what_a_push_says_of_its_localities() -> None:
    marked = entry(A, (80, 81, 82, 83), load_balancing_weight=2)
    for endpoint, status in zip(marked["lb_endpoints"], ("HEALTHY", "UNHEALTHY", "DRAINING", "UNKNOWN"), strict=True):
        endpoint["health_status"] = status
    spare = entry(A, (84,), priority=1, load_balancing_weight=8)
    found = pushed_localities(pushed(marked, spare, entry(B, ())))
    assert len(found[A].addresses) == 5
    assert {name: replace(own, addresses=frozenset()) for name, own in found.items()} == {
        A: PushedLocality(5, 3, 0, 2, 3.0),
        B: PushedLocality(0, 0, 0, None, 0.0),
    }


def test_endpoints_count_by_their_weights() -> None:
    """Of two endpoints of the weights 8 and 1, the first is full when both serve 9/8 of its rate."""
    weighed = entry(A, (80, 81))
    weighed["lb_endpoints"][0]["load_balancing_weight"] = 8
    assert pushed_localities(pushed(weighed))[A].weighed == 1.125


@pytest.mark.parametrize(("before", "after"), [((), 250_000), ((20,), 400_000)])
def test_the_surplus_is_dropped_in_one_category(before: tuple[int, ...], after: int) -> None:
    """Envoy rejects two drop categories, so the pushed one drops more instead."""
    drops = [{"category": "lb", "drop_percentage": {"numerator": share}} for share in before]
    document = {**zoned_load_assignment("web", {"a": (80,)}), "policy": {"drop_overloads": drops}}
    here = Locality("r", "a")
    laid = decode_assignment(overlay_assignment(decode_resource(document), [Allotment(here, 0, 10_000)], 0.25))
    (drop,) = laid.policy.drop_overloads
    assert drop.category == ("lb" if before else SHED_CATEGORY)
    assert (drop.drop_percentage.numerator, drop.drop_percentage.denominator) == (after, 2)


localities = st.sampled_from([A, B, C, Locality("us", "a", "x"), Locality()])
entries = st.lists(
    st.builds(
        entry,
        localities,
        priority=st.integers(0, 5),
        load_balancing_weight=st.integers(1, WEIGHT_SUM_LIMIT),
    ),
    max_size=8,
)
decisions = st.lists(
    st.builds(Allotment, localities, st.integers(0, 4), st.integers(1, 10_000)),
    max_size=5,
    unique_by=lambda one: one[0],
)


@given(entries, decisions)
def test_served_assignments_are_valid_and_as_decided(
    entries: list[dict[str, Any]], allotments: list[Allotment]
) -> None:
    """Rules of Envoy and gRPC hold, nothing gets lost, and who was allotted better is asked before who was not."""
    resource = pushed(*entries)
    found = laid(overlay_assignment(resource, allotments))
    before = laid(resource)
    assert [locality for locality, _, _ in found] == [locality for locality, _, _ in before]
    wanted = {one.locality: one for one in allotments}
    if not any(locality in wanted for locality, _, _ in found):
        assert found == before
        return
    priorities = {priority for _, priority, _ in found}
    assert priorities == set(range(len(priorities)))
    for priority in priorities:
        weights = [weight for _, at, weight in found if at == priority]
        assert min(weights) >= 1 and sum(weights) <= WEIGHT_SUM_LIMIT
    first = {locality: min(at for other, at, _ in found if other == locality) for locality, _, _ in found}
    named = [locality for locality in first if locality in wanted]
    for one in named:
        assert all((first[one] < first[other]) == (wanted[one][1] < wanted[other][1]) for other in named)
        assert all(first[one] < first[other] for other in first if other not in wanted)
