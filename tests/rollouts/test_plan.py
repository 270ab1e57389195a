"""Reading plans: defaults, the short form, and the place of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from xds.model.errors import ValidationError
from xds.rollouts.plan import ALL, DEFAULT_PLAN, NAMED, OnFailure, RolloutPlan, Wave, plan_document, read_plan


def test_an_empty_plan_has_all_defaults() -> None:
    plan = read_plan({})
    assert plan == DEFAULT_PLAN
    assert list(map(str, plan.waves)) == ["1", "10%", "50%"]
    assert (plan.hold_s, plan.timeout_s, plan.max_nacks, plan.on_failure) == (60, 300, 0, OnFailure.ROLLBACK)


def test_the_last_step_is_always_everybody_and_named_nodes_come_first() -> None:
    assert [str(step) for step in read_plan("1, 10%, 50%").steps] == ["1", "10%", "50%", "100%"]
    assert read_plan("100%").steps == read_plan({"waves": [], "nodes": ["a"]}).steps[1:] == (ALL,)
    assert read_plan({"waves": ["5"], "selector": "node.cluster == x"}).steps == (NAMED, Wave(count=5), ALL)


def test_what_a_plan_leaves_out_comes_from_the_plan_of_the_group() -> None:
    of_group = read_plan({"waves": "2", "hold_s": 5, "max_errors": "5%", "on_failure": "hold"})
    assert read_plan({"hold_s": 7, "waves": None}, defaults=of_group) == RolloutPlan(
        (Wave(count=2),), hold_s=7.0, max_errors=0.05, on_failure=OnFailure.HOLD
    )


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"waves": [1, "12.345%", "99.999%", "100%"], "max_errors": 0},
        {"waves": [], "selector": 'node.id == "a"', "nodes": ["a", "b"], "max_nacks": 3, "max_errors": 1},
    ],
)
def test_a_plan_is_read_as_it_is_written(document: dict[str, Any]) -> None:
    plan = read_plan(document)
    assert read_plan(plan_document(plan)) == plan


@pytest.mark.parametrize(
    ("document", "pointer", "words"),
    [
        ("1,0%", "/rollout", "must be more than 0%"),
        ({"waves": ["0%"]}, "/rollout/waves/0", "must be more than 0%"),
        ({"waves": ["1", "100.001%"]}, "/rollout/waves/1", "at most 100%"),
        ({"waves": ["50%", "10%"]}, "/rollout/waves/1", "must be larger than the wave before, 50%"),
        ({"waves": ["10%", "10%"]}, "/rollout/waves/1", "must be larger"),
        ({"waves": ["100%", "100%"]}, "/rollout/waves/1", "must be larger"),
        ({"waves": ["10%", 20]}, "/rollout/waves/1", "must be a share"),
        ({"waves": [3, 2]}, "/rollout/waves/1", "must be larger than the wave before, 3"),
        ({"waves": [0]}, "/rollout/waves/0", "between 1 and 1000"),
        ({"waves": [1001]}, "/rollout/waves/0", "write a share for more"),
        ({"waves": ["few"]}, "/rollout/waves/0", "such as 10%"),
        ({"waves": [True]}, "/rollout/waves/0", "such as 10%"),
        ({"waves": [-1]}, "/rollout/waves/0", "such as 10%"),
        ({"waves": []}, "/rollout/waves", "at least one wave"),
        ({"waves": [str(one) for one in range(1, 22)]}, "/rollout/waves", "at most 20"),
        ({"waves": {}}, "/rollout/waves", "must be a list"),
        ("", "/rollout", "such as 10%"),
        ({"selector": "node.id =="}, "/rollout/selector", "column"),
        ({"selector": "nod.id == a"}, "/rollout/selector", "there is no field"),
        ({"hold_s": 301}, "/rollout/hold_s", "longer than timeout_s"),
        ({"hold_s": "60s"}, "/rollout/hold_s", "must be a number"),
        ({"hold_s": float("nan")}, "/rollout/hold_s", "between"),
        ({"hold_s": 10**400}, "/rollout/hold_s", "between"),
        ({"timeout_s": 0}, "/rollout/timeout_s", "between 1 and"),
        ({"max_nacks": -1}, "/rollout/max_nacks", "between"),
        ({"max_nacks": True}, "/rollout/max_nacks", "an integer"),
        ({"max_errors": "101%"}, "/rollout/max_errors", "must be a number"),
        ({"max_errors": 1.5}, "/rollout/max_errors", "between 0 and 1"),
        ({"on_failure": "panic"}, "/rollout/on_failure", "rollback or hold"),
        ({"nodes": ["a"] * 1001}, "/rollout/nodes", "1000 are allowed"),
        ({"nodes": [""]}, "/rollout/nodes", "strings"),
        ({"nodes": "a"}, "/rollout/nodes", "list"),
        ({"canary": 1}, "/rollout/canary", "unknown field"),
        ([], "/rollout", "must be an object"),
        (7, "/rollout", "must be an object"),
    ],
)
def test_a_wrong_plan_is_refused_with_its_place(document: object, pointer: str, words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read_plan(document)
    assert [(each.pointer, words in each.detail) for each in refused.value.violations] == [(pointer, True)]


def test_all_findings_are_told_at_once() -> None:
    with pytest.raises(ValidationError) as refused:
        read_plan({"waves": ["0%", "x"], "hold_s": 400, "on_failure": 1}, "")
    assert {each.pointer for each in refused.value.violations} == {
        "/waves/0",
        "/waves/1",
        "/hold_s",
        "/on_failure",
    }
