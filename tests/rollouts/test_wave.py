"""Who is in a wave: sticky, monotone, evenly spread, and never more nodes than the plan says."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds.model.errors import ValidationError
from xds.model.node import Locality, Node
from xds.rollouts.plan import RolloutPlan, read_plan
from xds.rollouts.wave import NodeSet, everybody, kind, next_wave, rank, read_node_set, top_up, waves_of

GROUP = "edge"


def fleet(nodes_n: int, zones_n: int = 1, versions_n: int = 1) -> list[Node]:
    return [
        Node(
            f"edge-{at}",
            locality=Locality("eu", f"eu-{at % zones_n}", str(at)),
            user_agent=f"envoy 1.{40 - at // zones_n % versions_n}.0",
        )
        for at in range(nodes_n)
    ]


def sizes(plan: RolloutPlan, nodes: list[Node]) -> list[tuple[str, int]]:
    """Each wave with the number of nodes that it adds."""
    selector = NodeSet(GROUP, selectors=frozenset((plan.selector,)) if plan.selector else frozenset())
    selected = {node.id for node in nodes if node in selector}
    return [(str(wave), len(added)) for wave, added in waves_of(plan, GROUP, kinds_of(nodes), selected)]


def kinds_of(nodes: list[Node]) -> dict[str, str]:
    return {node.id: kind(node) for node in nodes}


@pytest.mark.parametrize(
    ("plan", "nodes_n", "expected"),
    [
        ("1,10%,50%", 10, [("1", 1), ("10%", 1), ("50%", 3), ("100%", 5)]),
        ("1,10%,50%", 1000, [("1", 1), ("10%", 99), ("50%", 400), ("100%", 500)]),
        ("1,10%,50%", 3, [("1", 1), ("10%", 1), ("50%", 1), ("100%", 0)]),
        ("1,10%,50%", 1, [("1", 1), ("100%", 0)]),
        ("3,10%", 25, [("3", 3), ("10%", 1), ("100%", 21)]),
        ("5,9", 5, [("5", 5), ("100%", 0)]),
        ("0.1%", 7, [("0.1%", 1), ("100%", 6)]),
        ("1,10%", 0, [("1", 0), ("10%", 0), ("100%", 0)]),
    ],
)
def test_each_wave_has_exactly_its_share_of_the_connected_nodes(
    plan: str, nodes_n: int, expected: list[tuple[str, int]]
) -> None:
    assert sizes(read_plan(plan), fleet(nodes_n)) == expected


def test_named_nodes_are_a_wave_before_the_others_and_count_in_them() -> None:
    plan = read_plan({"selector": 'node.locality.zone == "eu-1"', "nodes": ["edge-0", "gone"], "waves": "2,50%"})
    assert sizes(plan, fleet(10, zones_n=5)) == [("named", 3), ("50%", 2), ("100%", 5)]


def test_named_nodes_that_nobody_is_are_an_empty_wave() -> None:
    plan = read_plan({"selector": "node.cluster == nobody", "waves": "1"})
    assert sizes(plan, fleet(2)) == [("named", 0), ("1", 1), ("100%", 1)]


def test_a_selector_that_fails_on_a_node_does_not_match_it() -> None:
    chosen = NodeSet(GROUP, selectors=frozenset(["node.metadata.canary == true"]))
    assert Node("a", metadata={"canary": True}) in chosen
    assert Node("a", metadata={"canary": {"x": 1}}) not in chosen


def test_the_first_nodes_are_one_of_each_version_and_zone_first() -> None:
    nodes = fleet(60, zones_n=3, versions_n=2)
    kinds = kinds_of(nodes)
    _, first = next(waves_of(read_plan("6"), GROUP, kinds))
    assert {kinds[id] for id in first} == set(kinds.values())
    assert kinds["edge-0"] == "envoy 1.40.0 in eu/eu-0"


def test_of_equal_nodes_those_of_the_lowest_ranks_are_first() -> None:
    nodes = fleet(30)
    (_, first), *_ = waves_of(read_plan("4"), GROUP, kinds_of(nodes))
    assert list(first) == sorted((node.id for node in nodes), key=lambda id: rank(GROUP, id))[:4]


def test_a_counted_wave_takes_nodes_that_connect_later_until_it_has_its_count() -> None:
    plan = read_plan("3")
    at, nodes, _ = next_wave(plan, -1, NodeSet(GROUP), {}, ())
    assert (at, nodes.ids) == (0, frozenset())
    nodes = top_up(plan, at, nodes, {"a": "", "b": ""}, set())
    assert nodes.ids == {"a", "b"}
    later = top_up(plan, at, nodes, {"b": "", "c": "", "d": ""}, {"b"})
    assert len(later.ids) == 3 and later.ids > nodes.ids
    assert top_up(plan, at, later, {"c": "", "e": "", "f": ""}, set()) == later


def test_a_counted_wave_takes_others_beside_nodes_that_the_push_does_not_concern() -> None:
    plan, connected = read_plan("1"), dict.fromkeys("abcdef", "")
    at, nodes, _ = next_wave(plan, -1, NodeSet(GROUP), connected, ())
    unaffected = frozenset("abcdef") - {"e"} | nodes.ids
    wider = top_up(plan, at, nodes, connected, nodes.ids, unaffected)
    assert wider.ids == nodes.ids | (frozenset("abcdef") - unaffected)
    assert top_up(plan, at, wider, connected, wider.ids, unaffected) == wider


def test_ranks_are_always_the_same_and_differ_by_group() -> None:
    assert rank("edge", "edge-1") == pytest.approx(0.988544, abs=0.000001)
    assert rank("edge", "edge-1") != rank("core", "edge-1")
    assert 0 <= rank("edge", "\ud800") < 1


def test_ranks_are_evenly_spread() -> None:
    ranks = [rank(GROUP, f"edge-{at}") for at in range(20_000)]
    for tenth in range(10):
        assert sum(tenth / 10 <= each < (tenth + 1) / 10 for each in ranks) == pytest.approx(2_000, rel=0.1)


def test_a_share_of_nodes_that_connect_later_is_close_to_the_share() -> None:
    connected = {node.id: "" for node in fleet(1_000)}
    _, nodes, _ = next_wave(read_plan("10%"), -1, NodeSet(GROUP), connected, ())
    assert nodes.below == pytest.approx(0.1, abs=0.03)
    assert sum(Node(f"new-{at}") in nodes for at in range(10_000)) == pytest.approx(1_000, rel=0.3)


@given(
    nodes_n=st.integers(0, 40),
    zones_n=st.integers(1, 4),
    counts=st.lists(st.integers(1, 20), max_size=3, unique=True),
    percents=st.lists(st.integers(1, 100), min_size=1, max_size=4, unique=True),
    arriving=st.lists(st.integers(0, 20), min_size=10, max_size=10),
)
def test_waves_only_grow_by_what_the_plan_says_while_nodes_come(
    nodes_n: int, zones_n: int, counts: list[int], percents: list[int], arriving: list[int]
) -> None:
    plan = read_plan({"waves": [*map(str, sorted(counts)), *(f"{each}%" for each in sorted(percents))]})
    nodes = fleet(nodes_n + sum(arriving), zones_n)
    connected, at, reached = nodes[:nodes_n], -1, NodeSet(GROUP)
    while at < len(plan.steps) - 1:
        inside = {node.id for node in connected if node in reached}
        before, reached_before = at, reached
        at, reached, connected_n = next_wave(plan, at, reached, {node.id: kind(node) for node in connected}, inside)
        assert at > before
        assert all(node in reached for node in nodes if node in reached_before)
        step, now_in = plan.steps[at], {node.id for node in connected if node in reached}
        if step.count:
            assert len(now_in) == min(step.count, len(connected))
        elif at < len(plan.steps) - 1:
            wanted = max(ceil(round(step.share * len(connected), 6)), len(inside) + 1)
            assert len(now_in) == min(wanted, len(connected))
        assert connected_n == len(now_in)
        restored = read_node_set(GROUP, reached.document(), "")
        assert restored == reached
        connected = nodes[: len(connected) + arriving[at % 10]]
    assert reached == everybody(GROUP)


def test_a_union_has_the_nodes_of_both() -> None:
    one = NodeSet(GROUP, frozenset("ab"), 0.1, frozenset(["node.id == x"]))
    other = NodeSet(GROUP, frozenset("bc"), 0.2, frozenset(["node.id == y"]))
    both = one | other
    assert all(Node(id) in both for id in "abcxy")
    assert both.below == 0.2
    assert (one | everybody(GROUP)) == (everybody(GROUP) | one) == everybody(GROUP)


def test_a_union_is_bounded_and_keeps_the_newest() -> None:
    union = NodeSet(GROUP)
    for at in range(30):
        newest = NodeSet(
            GROUP, frozenset(f"{at}-{each}" for each in range(1_000)), 0.0, frozenset([f"node.id == s{at}"])
        )
        union = newest | union
        assert newest.ids <= union.ids and newest.selectors <= union.selectors
    assert len(union.ids) == 5_000 and len(union.selectors) == 16
    assert read_node_set(GROUP, union.document(), "") == union


@pytest.mark.parametrize(
    ("document", "pointer"),
    [
        (None, "/nodes"),
        ({"ids": [1]}, "/nodes/ids"),
        ({"ids": ["a" * 20_000]}, "/nodes/ids"),
        ({"ids": ["a"] * 7_000}, "/nodes/ids"),
        ({"below": 2}, "/nodes/below"),
        ({"selectors": ["("]}, "/nodes/selectors"),
        ({"selectors": ["node.id == a"] * 17}, "/nodes/selectors"),
        ({"more": 1}, "/nodes/more"),
    ],
)
def test_a_set_that_is_not_one_is_refused(document: object, pointer: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read_node_set(GROUP, document, "/nodes")
    assert [each.pointer for each in refused.value.violations] == [pointer]
