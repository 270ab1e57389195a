"""What reading an input may cost: regular expressions have a budget, and an abandoned input is not read on."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from tests.support import resources as r
from xds.codec.effort import AbandonedError, Effort, NotBoundedError, bounded_by
from xds.codec.resources import ResourceDecoder
from xds.filter.regular_expressions import effort_of
from xds.model.errors import ValidationError


def _routes(*regexes: str) -> bytes:
    listed = [{"match": {"safe_regex": {"regex": each}}, "route": {"cluster": "c"}} for each in regexes]
    hosts = [{"name": "v", "domains": ["*"], "routes": listed}]
    return json.dumps({"resources": [{"@type": r.ROUTE_TYPE, "name": "r", "virtual_hosts": hosts}]}).encode()


def _warnings(body: bytes, effort: Effort) -> Mapping[str, str]:
    with bounded_by(effort):
        found = ResourceDecoder().document(body).warnings
    return {one.pointer: one.code for one in found}


def test_regexes_beyond_the_budget_are_not_checked_and_said_to_be() -> None:
    regexes = [f"/of-a-budget/{number}" for number in range(3)]
    places = [f"/virtual_hosts/0/routes/{number}/match/safe_regex/regex" for number in range(3)]
    effort = Effort(regexes=2 * effort_of(regexes[0]))
    assert _warnings(_routes(*regexes), effort) == {places[2]: "regex_not_checked"}
    assert _warnings(_routes(*regexes), Effort()) == {}


def test_known_regexes_cost_nothing() -> None:
    body = _routes("/known/a", "/known/b")
    assert _warnings(body, Effort()) == {}
    assert _warnings(body, Effort(regexes=0)) == {}


def test_a_large_regex_is_warned_of_without_its_compilation() -> None:
    place = "/virtual_hosts/0/routes/0/match/safe_regex/regex"
    assert _warnings(_routes("(a|b|c){1,500}N"), Effort()) == {place: "regex_too_large"}


def test_a_regex_that_no_client_takes_is_an_error_within_a_budget() -> None:
    with bounded_by(Effort()), pytest.raises(ValidationError, match="invalid repetition size"):
        ResourceDecoder().document(_routes("((a{40}){40})"))


CLUSTER = {"@type": r.CLUSTER_TYPE, "name": "c", "connect_timeout": "1s"}


def _push(*resources: object) -> bytes:
    return json.dumps({"resources": resources}).encode()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_routes("/only-in-a-thread"), id="a regular expression"),
        pytest.param(_push({**CLUSTER, "conect_timeout": "1s"}), id="a hint for a field"),
        pytest.param(_push({**CLUSTER, "lb_policy": "ROUND_ROBBIN"}), id="a hint for a value"),
        pytest.param(_push({**CLUSTER, "@type": f"{r.CLUSTER_TYPE}s"}), id="a hint for a type"),
        pytest.param(_push(CLUSTER, CLUSTER), id="the same twice"),
        pytest.param(_push({**CLUSTER, "connect_timeout": "-1s"}), id="a broken rule"),
    ],
)
def test_an_input_leaves_the_loop_before_a_step_that_its_bytes_do_not_bound(body: bytes) -> None:
    """Twenty bytes of a pattern take milliseconds, and so does a hint: it compares a name with all that there are."""
    with bounded_by(Effort(is_on_loop=True)), pytest.raises(NotBoundedError):
        ResourceDecoder().document(body, "json")


def test_a_valid_input_is_read_on_the_loop() -> None:
    known = _routes("/known-on-the-loop")
    ResourceDecoder().document(known)
    with bounded_by(Effort(is_on_loop=True)):
        assert len(ResourceDecoder().document(_push(CLUSTER), "json").resources) == 1
        assert len(ResourceDecoder().document(known, "json").resources) == 1


@pytest.mark.parametrize("body", [_routes("/a"), b"resources: [{'@type': x, name: c}]\n"])
def test_an_abandoned_input_is_not_read_on(body: bytes) -> None:
    effort = Effort()
    effort.abandon()
    with bounded_by(effort), pytest.raises(AbandonedError):
        ResourceDecoder().document(body)
