"""The options of careful rollouts: what they say to the server, and what is refused at once."""

from __future__ import annotations

import pytest

import xds.app.commands  # noqa: F401 - registers the commands
from tests.cli.conftest import Remote
from tests.cli.test_help import ROOT
from tests.support.commands import xds as command
from tests.support.resources import static_cluster
from xds.cli.errors import CommandError
from xds.cli.rollout_options import plan_text, rollout_options, wait_limit_s
from xds.rollouts.plan import plan_document, read_plan

OPTIONS = (
    "--canary",
    "--canary-selector",
    "--canary-nodes",
    "--hold",
    "--timeout",
    "--max-nacks",
    "--max-errors",
    "--on-failure",
)


@pytest.mark.parametrize("name", ["apply", "put", "delete"])
def test_commands_that_push_take_a_plan(name: str) -> None:
    options = {option for param in ROOT.commands[name].params for option in param.opts}
    assert {*OPTIONS, "--all-at-once", "--retry"} <= options


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        (["--canary"], "default"),
        (["--canary", "1,10%,50%"], "1,10%,50%"),
        (["--canary=20%"], "20%"),
        (["--canary", "5"], "5"),
        (["--canary", "-g", "edge"], "default"),
        ([], ""),
    ],
)
def test_a_plan_may_follow_its_option(words: list[str], seen: str) -> None:
    context = ROOT.commands["apply"].make_context("apply", [*words, "-f", "edge.yaml"])
    assert context.params["canary"] == seen


def test_options_become_members_of_a_plan() -> None:
    assert rollout_options() == {}
    assert rollout_options(timeout="30s") == {}  # how long to wait
    assert rollout_options(canary="default") == {"rollout": {}}
    assert rollout_options(canary="1, 50%", hold="2m", timeout="10m", max_errors="off", on_failure="hold") == {
        "rollout": {
            "waves": ["1", "50%"],
            "hold_s": 120,
            "timeout_s": 600,
            "max_errors": "100%",
            "on_failure": "hold",
        }
    }
    assert rollout_options(canary="5", canary_nodes="edge-1, edge-7", max_nacks=2) == {
        "rollout": {"waves": ["5"], "nodes": ["edge-1", "edge-7"], "max_nacks": 2}
    }
    assert rollout_options(all_at_once=True, retry=True) == {"rollout": "all_at_once", "retry": True}
    for wrong in (
        {"hold": "2m"},
        {"max_nacks": 0},
        {"canary_nodes": "a"},
        {"all_at_once": True, "canary": "1"},
        {"all_at_once": True, "max_errors": "1%"},
    ):
        with pytest.raises(CommandError):
            rollout_options(**wrong)


def test_a_timeout_is_of_the_plan_or_of_the_wait() -> None:
    assert wait_limit_s("30s", {}) == 30
    assert wait_limit_s("", {}) == 0
    assert wait_limit_s("30s", rollout_options(canary="1", timeout="30s")) == 0
    assert wait_limit_s("30s", rollout_options(all_at_once=True)) == 30


def test_a_plan_as_text_says_that_requests_are_not_judged() -> None:
    named = read_plan(rollout_options(canary="1", max_errors="off")["rollout"])
    assert plan_text(plan_document(named)) == "1, hold 60s, timeout 300s, errors off, on failure rollback"


def test_a_group_keeps_what_is_not_given_of_its_plan(remote: Remote) -> None:
    remote.server.push("planned", [static_cluster("a", 80)])
    first = remote.xds("group", "set", "planned", "--rollout", "1,10%", "--rollout-hold", "2m")
    shown = "1,10%, hold 120s, timeout 300s, on failure rollback"
    assert (first.code, first.out) == (0, f"group planned: rollout - -> {shown}\n")
    assert remote.xds("group", "set", "planned", "--rollout-on-failure", "hold", "--rollout-max-errors", "3%").code == 0
    item = remote.server.get("/groups/planned")["rollout"]
    assert (item["waves"], item["hold_s"], item["on_failure"], item["max_errors"]) == (["1", "10%"], 120, "hold", 0.03)
    assert plan_text(item) == "1,10%, hold 120s, timeout 300s, errors at most 0.03, on failure hold"
    named = remote.xds("group", "set", "planned", "--rollout-nodes", "edge-1,edge-7", "--rollout-max-nacks", "1")
    assert (named.code, "2 named nodes, 1,10%, hold 120s, timeout 300s, NACKs at most 1" in named.out) == (0, True)
    assert remote.server.get("/groups/planned")["rollout"]["nodes"] == ["edge-1", "edge-7"]
    assert remote.xds("group", "set", "planned", "--rollout", "default").code == 0
    assert remote.server.get("/groups/planned")["rollout"]["waves"] == ["1", "10%", "50%"]
    wrong = remote.xds("group", "set", "planned", "--rollout", "50%,10%")
    assert (wrong.code, "must be larger than the wave before, 50%" in wrong.err) == (3, True)
    assert remote.xds("group", "set", "planned", "--rollout", "none").code == 0
    assert remote.server.get("/groups/planned")["rollout"] is None


def test_a_group_is_not_deleted_in_waves(remote: Remote) -> None:
    refused = remote.xds("delete", "planned", "--canary", "1", "-y")
    assert (refused.code, "a group is deleted at once" in refused.err) == (2, True)


def test_help_names_the_options() -> None:
    shown = command("apply", "--help").out
    assert [option for option in OPTIONS if option not in shown] == []
