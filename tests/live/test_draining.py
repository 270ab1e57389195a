"""Endpoints of an assignment that come, change, drain and go: what is wanted, and what is served meanwhile."""

from __future__ import annotations

import random
from time import thread_time
from typing import Any

import pytest

from tests.steering.core.test_load_assignment import A, B, entry, pushed
from xds.codec.load_assignment import decode_assignment, locality_of
from xds.codec.resources import resource_from_bytes
from xds.live.assignment_edits import (
    EndpointChange,
    addresses_of,
    change_endpoints,
    change_weights,
    check_priorities,
    empty_assignment,
    remove_endpoints,
)
from xds.live.draining import (
    DrainingEndpoint,
    EndpointState,
    drain_missing,
    endpoint_states,
    still_draining,
    undrain,
    with_draining,
)
from xds.model.drains import DRAINING_LIMIT
from xds.model.errors import ValidationError
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT

ONE, TWO, THREE = (f"10.0.0.1:{port}" for port in (81, 82, 83))


def rows(assignment: Resource) -> list[tuple[Locality, int, int, list[tuple[str, str]]]]:
    """Locality, priority, weight and the endpoints of each entry, in their order."""
    states = endpoint_states(assignment)
    return [
        (
            locality_of(each),
            each.priority,
            each.load_balancing_weight.value,
            [(s.address, s.health) for s in states if (s.locality, s.priority) == (locality_of(each), each.priority)],
        )
        for each in decode_assignment(assignment).endpoints
    ]


def weighed(locality: Locality, *ports: int, **fields: Any) -> dict[str, Any]:
    return entry(locality, ports, load_balancing_weight=3, **fields)


def states(assignment: Resource) -> dict[str, EndpointState]:
    return {state.address: state for state in endpoint_states(assignment)}


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ({"socket_address": {"address": "10.0.0.1", "port_value": 80}}, "10.0.0.1:80"),
        ({"socket_address": {"address": "::1", "port_value": 80}}, "[::1]:80"),
        ({"socket_address": {"address": "10.0.0.1", "port_value": 80, "protocol": "UDP"}}, "udp:10.0.0.1:80"),
        ({"pipe": {"path": "/tmp/web"}}, "unix:/tmp/web"),
        ({"envoy_internal_address": {"server_listener_name": "l", "endpoint_id": "7"}}, "internal:l/7"),
    ],
)
def test_every_endpoint_has_a_name_of_its_own(address: dict[str, Any], text: str) -> None:
    found = pushed({"lb_endpoints": [{"endpoint": {"address": address}}]})
    assert list(addresses_of(found)) == [text]
    assert list(addresses_of(remove_endpoints(found, [text]))) == []


# What is wanted


def test_a_new_endpoint_joins_the_only_locality() -> None:
    found = change_endpoints(pushed(weighed(A, 81)), [EndpointChange(TWO, weight=5, health=2, hostname="h")])
    assert rows(found) == [(A, 0, 3, [(ONE, "UNKNOWN"), (TWO, "UNHEALTHY")])]
    assert states(found)[TWO] == EndpointState(TWO, "UNHEALTHY", 5, A, 0, "h")
    assert states(found)[ONE].weight is None


def test_a_new_endpoint_among_several_localities_must_say_which() -> None:
    """Else it would come into one at random, or into a locality of its own that gets half of gRPC's requests."""
    base = pushed(weighed(A, 81), weighed(B, 82))
    with pytest.raises(ValidationError) as caught:
        change_endpoints(base, [EndpointChange(THREE)])
    (finding,) = caught.value.violations
    assert (finding.code, finding.pointer) == ("locality_needed", "/put/0/locality")
    found = change_endpoints(base, [EndpointChange(THREE, locality=B)])
    assert rows(found)[1] == (B, 0, 3, [(TWO, "UNKNOWN"), (THREE, "UNKNOWN")])


def test_a_known_endpoint_is_changed_where_it_is_and_nothing_else_of_it() -> None:
    base = pushed(weighed(A, 81), weighed(B, 82, priority=1))
    found = change_endpoints(base, [EndpointChange(TWO, weight=9)])
    assert states(found)[TWO] == EndpointState(TWO, "UNKNOWN", 9, B, 1)
    again = change_endpoints(found, [EndpointChange(TWO, health=1)])
    assert states(again)[TWO] == EndpointState(TWO, "HEALTHY", 9, B, 1)


def test_an_endpoint_moves_as_it_is_and_leaves_no_empty_locality() -> None:
    base = change_endpoints(pushed(weighed(A, 81), weighed(B, 82)), [EndpointChange(TWO, weight=9)])
    found = change_endpoints(base, [EndpointChange(TWO, locality=A)])
    assert rows(found) == [(A, 0, 3, [(ONE, "UNKNOWN"), (TWO, "UNKNOWN")])]
    assert states(found)[TWO].weight == 9
    assert states(change_endpoints(found, [EndpointChange(TWO, priority=1)]))[TWO].priority == 1


def test_a_new_locality_gets_a_weight() -> None:
    """gRPC drops a locality without one."""
    found = change_endpoints(pushed(weighed(A, 81)), [EndpointChange(TWO, locality=B)])
    assert rows(found)[1] == (B, 0, 1, [(TWO, "UNKNOWN")])
    first = change_endpoints(empty_assignment("web"), [EndpointChange("[::1]:80")])
    assert rows(first) == [(Locality(), 0, 1, [("[::1]:80", "UNKNOWN")])]


def test_priorities_keep_no_gap() -> None:
    base = pushed(weighed(A, 81), weighed(B, 82, priority=1))
    emptied = remove_endpoints(base, [ONE])
    assert rows(emptied) == [(A, 0, 3, []), (B, 1, 3, [(TWO, "UNKNOWN")])], "priority 0 stays, and is empty"
    assert rows(remove_endpoints(base, [TWO])) == [(A, 0, 3, [(ONE, "UNKNOWN")])]
    assert rows(remove_endpoints(emptied, [TWO])) == []
    with pytest.raises(ValidationError, match="no locality has priority 1"):
        change_endpoints(pushed(weighed(A, 81)), [EndpointChange(TWO, locality=B, priority=2)])
    with pytest.raises(ValidationError, match="priorities have no gap"):
        check_priorities(pushed(weighed(A, 81, priority=1)))


def test_weights_of_localities_change_by_locality_and_priority() -> None:
    base = pushed(weighed(A, 81), weighed(B, 82, priority=1), weighed(A, 83, priority=1))
    found = change_weights(base, {(A, 1): 7})
    assert [(row[0], row[1], row[2]) for row in rows(found)] == [(A, 0, 3), (B, 1, 3), (A, 1, 7)]
    with pytest.raises(ValidationError, match="has no locality eu/b with priority 0; it has eu/a with priority 0"):
        change_weights(base, {(B, 0): 7})


def test_the_rest_of_an_assignment_is_untouched() -> None:
    policy = {"overprovisioning_factor": 120}
    base = pushed(weighed(A, 81, proximity=4), policy=policy)
    found = remove_endpoints(change_endpoints(base, [EndpointChange(TWO)]), [TWO])
    assert found.body == base.body and found.version == base.version


def test_the_result_is_checked_as_a_push_is() -> None:
    with pytest.raises(ValidationError):
        change_endpoints(pushed(weighed(A, 81)), [EndpointChange("10.0.0.1:82", weight=0)])


# What drains


def test_a_removed_endpoint_is_served_as_draining_in_its_locality() -> None:
    before, wanted = pushed(weighed(A, 81, 82), weighed(B, 83)), pushed(weighed(A, 81))
    draining = drain_missing(before, wanted, until_s=15.0)
    assert [one.address for one in draining] == [TWO, THREE]
    served = with_draining(wanted, draining)
    assert rows(served) == [(A, 0, 3, [(ONE, "UNKNOWN"), (TWO, "DRAINING")]), (B, 0, 3, [(THREE, "DRAINING")])]
    assert served.version != wanted.version
    assert resource_from_bytes(ENDPOINT, served.body) == served, "as if it were pushed: checked, and its references"
    assert with_draining(wanted, ()) is wanted


def test_draining_endpoints_leave_no_gap_either() -> None:
    before = pushed(weighed(A, 81), weighed(B, 82, priority=1), weighed(A, 83, priority=2))
    served = with_draining(pushed(weighed(A, 81)), drain_missing(before, pushed(weighed(A, 81)), 1.0))
    check_priorities(served)
    assert {state.address: state.priority for state in endpoint_states(served)} == {ONE: 0, TWO: 1, THREE: 2}
    lone = with_draining(empty_assignment("web"), drain_missing(before, empty_assignment("web"), 1.0))
    check_priorities(lone)
    assert all(health == "DRAINING" for row in rows(lone) for _, health in row[3])


def test_a_draining_endpoint_that_is_wanted_again_does_not_drain() -> None:
    before, wanted = pushed(weighed(A, 81, 82)), pushed(weighed(A, 81))
    draining = drain_missing(before, wanted, 15.0)
    assert still_draining(draining, before) == ()
    assert still_draining(draining, wanted, now_s=14.9) == draining
    assert still_draining(draining, wanted, now_s=15.0) == ()
    taken = undrain(wanted, draining, [TWO])
    assert rows(taken) == rows(before), "as it was, in its place and not draining"


def test_the_number_of_draining_endpoints_is_bounded() -> None:
    one = drain_missing(pushed(weighed(A, 81)), empty_assignment("web"), 0.0)[0]
    many = [DrainingEndpoint(f"10.0.0.1:{number}", one.entry, float(number)) for number in range(1, DRAINING_LIMIT + 9)]
    kept = still_draining(many, empty_assignment("web"))
    assert len(kept) == DRAINING_LIMIT
    assert min(each.until_s for each in kept) == 9.0, "those that drain longest go first"


@pytest.mark.parametrize("seed", range(20))
def test_any_run_of_changes_is_valid_and_complete(seed: int) -> None:
    """Every endpoint that was ever served and is not wanted drains until its end, once, and priorities have no gap."""
    dice = random.Random(seed)
    wanted, draining = empty_assignment("web"), tuple[DrainingEndpoint, ...]()
    ends: dict[str, float] = {}
    for step in range(60):
        before = wanted
        address = f"10.0.0.1:{dice.randint(1, 8)}"
        if dice.random() < 0.5:
            place = dice.choice((A, B))
            highest = max((entry.priority for entry in decode_assignment(wanted).endpoints), default=-1)
            change = EndpointChange(address, dice.choice((None, 4)), None, place, dice.randint(0, highest + 1))
            try:
                wanted = change_endpoints(undrain(wanted, draining, [address]), [change])
            except ValidationError as error:
                assert [found.code for found in error.violations] == ["priority_gap"]
                continue
        else:
            wanted = remove_endpoints(wanted, [address])
        until_s = step + dice.randint(1, 6)
        ends |= dict.fromkeys(addresses_of(before).keys() - addresses_of(wanted).keys(), until_s)
        draining = still_draining((*draining, *drain_missing(before, wanted, until_s)), wanted, step)
        served = with_draining(wanted, draining)
        check_priorities(served)
        found = [state.address for state in endpoint_states(served)]
        leaving = {gone for gone, end in ends.items() if end > step and gone not in addresses_of(wanted)}
        assert sorted(found) == sorted([*addresses_of(wanted), *leaving])
        resource_from_bytes(ENDPOINT, served.body)


# What thousands of endpoints cost


def large(ports: int) -> Resource:
    return pushed(weighed(A, *range(1, ports + 1)))


def test_thousands_of_endpoints_are_changed_and_moved_at_once() -> None:
    """Looking for each of 5,000 among 5,000 took half a minute, in which nobody else had the interpreter."""
    before = large(5_000)
    began = thread_time()
    weights = change_endpoints(before, [EndpointChange(f"10.0.0.1:{port}", weight=7) for port in range(1, 5_001)])
    assert {state.weight for state in endpoint_states(weights)} == {7}
    moves = [EndpointChange(f"10.0.0.1:{port}", locality=B) for port in range(1, 5_001)]
    moved = change_endpoints(weights, [*moves, EndpointChange("10.0.0.1:1", weight=9)])
    found = states(moved)
    assert len(found) == 5_000 and {state.locality for state in found.values()} == {B}
    assert (found["10.0.0.1:1"].weight, found["10.0.0.1:2"].weight) == (9, 7)
    assert thread_time() - began < 10.0


def test_thousands_of_endpoints_drain_at_once() -> None:
    """Each was copied with its whole locality: deleting 100,000 endpoints would have taken hours."""
    before = large(10_000)
    began = thread_time()
    draining = drain_missing(before, empty_assignment("web"), until_s=15.0)
    assert len(draining) == 10_000
    assert thread_time() - began < 10.0
    assert rows(with_draining(empty_assignment("web"), draining[:2])) == [
        (A, 0, 3, [("10.0.0.1:1", "DRAINING"), ("10.0.0.1:2", "DRAINING")])
    ]
