"""The document of a rollout."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from xds.model.errors import ValidationError
from xds.model.node import Node
from xds.rollouts.plan import read_plan
from xds.rollouts.rollout import MATTERS_S, Progress, Rollout, RolloutState, begin, decode, encode
from xds.rollouts.wave import everybody

GROUP = "edge"
CONNECTED = {f"edge-{at}": "envoy 1.40.0" for at in range(10)}


def begun(plan: object = "1,50%", head: int = 2, former: Rollout | None = None, now_s: float = 100.0) -> Rollout:
    return begin(GROUP, read_plan(plan), 1, head, CONNECTED, now_s, "ci", "try it", former)


def inside(rollout: Rollout) -> set[str]:
    return {id for id in CONNECTED if rollout.in_wave(Node(id))}


def test_a_rollout_begins_at_its_first_wave() -> None:
    rollout = begun()
    assert (rollout.state, rollout.wave, rollout.base, rollout.head) == (RolloutState.RUNNING, 0, 1, 2)
    assert len(inside(rollout)) == 1
    assert rollout.is_open and rollout.began_s == rollout.since_s == 100.0


def test_the_document_says_all_but_the_progress() -> None:
    rollout = begun({"waves": "2,50%", "selector": "node.cluster == a", "max_errors": 0.1})
    for each in (
        rollout,
        rollout.pause("me", "wait", 120.0),
        rollout.promote("me", "", 120.0),
        rollout.end(RolloutState.ROLLED_BACK, "edge-1 rejected it", 130.0),
        begun(former=rollout),
    ):
        assert decode(GROUP, encode(each)) == each
        assert decode(GROUP, encode(replace(each, progress=Progress(1.0, 2.0)))).progress.wave_s == 0.0


def test_a_restart_keeps_everybody_on_their_line() -> None:
    rollout = begun("30%")
    assert inside(decode(GROUP, encode(rollout))) == inside(rollout)
    assert len(inside(rollout)) == 3


def test_a_promotion_serves_the_head_to_all() -> None:
    promoting = begun().pause("me", "", 110.0).promote("me", "urgent", 120.0)
    assert promoting.is_promoting and promoting.state is RolloutState.RUNNING
    assert inside(promoting) == set(CONNECTED)
    assert promoting.nodes == everybody(GROUP)


def test_nodes_that_had_the_head_of_a_superseded_or_refused_rollout_are_remembered() -> None:
    first = begun("30%")
    second = begun("1", head=3, former=first)
    third = begun("2", head=4, former=second.end(RolloutState.ROLLED_BACK, "refused", 200.0), now_s=250.0)
    had = {id for id in CONNECTED if third.had_head(Node(id))}
    assert had == inside(first) | inside(second) | inside(third)
    assert inside(third) < had < set(CONNECTED)
    assert [each.has_superseded for each in (first, second, third)] == [False, True, False]


def test_nobody_is_remembered_of_a_promoted_or_old_rollout() -> None:
    first = begun("30%")
    assert begun("1", former=first.end(RolloutState.PROMOTED, "", 200.0)) == begun("1")
    ended = first.end(RolloutState.ROLLED_BACK, "refused", 200.0)
    later_s = 200.0 + MATTERS_S
    assert begun("1", former=ended, now_s=later_s) == begun("1", now_s=later_s)


def test_what_only_waves_had_is_known_after_the_end() -> None:
    third = begun(head=4)
    superseded = replace(third.end(RolloutState.SUPERSEDED, "", 200.0), last_head=5)
    hidden = [
        [revision for revision in range(1, 8) if each.is_hidden(revision)]
        for each in (third, superseded, third.end(RolloutState.PROMOTED, "", 200.0))
    ]
    assert hidden == [[2, 3, 4, 5, 6, 7], [2, 3, 4, 5], [2, 3]]


def test_what_was_superseded_is_known_in_later_rollouts() -> None:
    third = begun(head=3, former=begun(head=2)).end(RolloutState.PROMOTED, "", 200.0)
    rolled_back = begun(head=4, former=third).end(RolloutState.ROLLED_BACK, "", 300.0)
    assert (third.outdone, rolled_back.outdone, begun(head=6, former=rolled_back).outdone) == ((2,), (2,), (2,))
    promoting = begun(head=6, former=rolled_back).promote("me", "", 400.0)
    assert begun(head=7, former=promoting).outdone == (2,)
    latest = rolled_back
    for head in range(10, 200):
        latest = begun(head=head, former=latest)
    assert latest.outdone == tuple(range(99, 199))


def test_long_texts_are_cut() -> None:
    rollout = begun().end(RolloutState.ROLLED_BACK, "no " * 100_000, 130.0)
    assert decode(GROUP, encode(rollout)).reason == ("no " * 100_000)[:16_384]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"plan": {"waves": "0%"}}, "/plan/waves"),
        ({"plan": 1}, "/plan"),
        ({"base": -1}, "/base"),
        ({"head": 1.5}, "/head"),
        ({"head": 2**63}, "/head"),
        ({"state": "lost"}, "/state"),
        ({"state": ["running"]}, "/state"),
        ({"state": "promoted"}, "/ended_s"),
        ({"ended_s": 3}, "/ended_s"),
        ({"wave": 3}, "/wave"),
        ({"wave": None}, "/wave"),
        ({"nodes": []}, "/nodes"),
        ({"had": {"below": "x"}}, "/had/below"),
        ({"began_s": float("inf")}, "/began_s"),
        ({"since_s": True}, "/since_s"),
        ({"is_promoting": 1}, "/is_promoting"),
        ({"has_superseded": "no"}, "/has_superseded"),
        ({"reason": "x" * 20_000}, "/reason"),
        ({"outdone": 3}, "/outdone"),
        ({"outdone": [True]}, "/outdone"),
        ({"outdone": [1] * 200}, "/outdone"),
        ({"later_field": 1}, "/later_field"),
    ],
)
def test_a_document_that_is_not_one_is_refused(change: dict[str, Any], pointer: str) -> None:
    document = json.loads(encode(begun())) | change
    with pytest.raises(ValidationError) as refused:
        decode(GROUP, json.dumps(document).encode())
    assert pointer in [each.pointer for each in refused.value.violations]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b"{}", b'{"plan": {}}'])
def test_a_body_that_is_no_document_is_refused(body: bytes) -> None:
    with pytest.raises(ValidationError):
        decode(GROUP, body)
