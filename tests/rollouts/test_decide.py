"""The state table of `xds.rollouts.decide`: a test for each row, named after it."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from tests.rollouts.decisions import Act, Decision, decision
from xds.model.node import Node
from xds.rollouts.decide import AWAY_S, LATE_S, Facts, RequestCount, decide
from xds.rollouts.plan import read_plan
from xds.rollouts.rollout import RolloutState, begin, decode, encode

FLEET = tuple(f"edge-{at}" for at in range(10))
GOOD, BAD = RequestCount(0, 1_000), RequestCount(200, 1_000)


class Story:
    """A rollout over time. ``watch`` decides each second until something is to be done, or the time is over."""

    def __init__(self, plan: Any = "1,50%", connected: Iterable[str] = FLEET, **given: Any) -> None:
        self.connected = list(connected)
        self.now_s = 1_000.0
        kinds = dict.fromkeys(self.connected, "")
        self.rollout = begin("edge", read_plan(plan), 1, 2, kinds, self.now_s, "ci", **given)
        self.canaries = self.inside()

    def inside(self) -> list[str]:
        return [id for id in self.connected if self.rollout.in_wave(Node(id))]

    def facts(self, acked: Iterable[str] | None = None, away: Iterable[str] = (), **known: Any) -> Facts:
        """The facts; all nodes of the wave that are connected have ACKed, unless ``acked`` says other."""
        connected = [id for id in self.connected if id not in set(away)]
        inside = {id for id in connected if self.rollout.in_wave(Node(id))}
        known["unaffected"] = frozenset(known.get("unaffected", ())) & frozenset(connected)
        done = inside if acked is None else inside & set(acked)
        done = done - known.get("nacked", {}).keys() - known["unaffected"]
        return Facts(dict.fromkeys(connected, ""), inside, done, **known)

    def watch(self, seconds: float = 0, step_s: float = 1.0, **known: Any) -> Decision:
        end_s = self.now_s + seconds
        while True:
            before, self.rollout = self.rollout, decide(self.rollout, self.facts(**known), self.now_s)
            done = decision(before, self.rollout)
            if done.act is not Act.NOTHING or self.now_s >= end_s:
                return done
            self.now_s += step_s

    def move(self, ids: Iterable[str], **known: Any) -> Decision:
        """Connected nodes of the wave move to another group, and the server sees it."""
        self.connected = [id for id in self.connected if id not in set(ids)]
        return self.watch(left=frozenset(ids), **known)

    def restart(self) -> None:
        """Lose what is not stored."""
        self.rollout = decode("edge", encode(self.rollout))


def test_running__all_acked_for_the_hold__next_wave() -> None:
    story = Story()
    assert story.watch(59).act is Act.NOTHING
    decision = story.watch(2)
    assert (decision.act, decision.reason) == (Act.WRITE, "wave 2 of 3 (50%)")
    assert story.rollout.wave == 1 and len(story.inside()) == 5
    assert story.now_s == 1_060.0 and story.rollout.since_s == 1_060.0


def test_running__last_wave_acked_for_the_hold__promoted() -> None:
    story = Story("100%")
    decision = story.watch(100)
    assert (decision.act, decision.reason, story.now_s) == (Act.PROMOTE, "all 10 nodes have ACKed", 1_060.0)
    assert story.rollout.state is RolloutState.PROMOTED and story.rollout.ended_s == 1_060.0


def test_running__ten_nodes_of_the_default_plan__promoted_after_four_waves() -> None:
    story = Story({})
    sizes = [len(story.inside())]
    while story.watch(100).act is Act.WRITE:
        sizes.append(len(story.inside()))
    assert sizes == [1, 2, 5, 10] and story.rollout.state is RolloutState.PROMOTED
    assert story.now_s == 1_240.0


def test_running__last_wave_adds_nobody__promoted_without_it() -> None:
    story = Story({}, connected=FLEET[:1])
    assert story.watch(100).act is Act.PROMOTE
    assert story.now_s == 1_060.0


def test_running__last_wave_is_judged_too() -> None:
    story = Story("1,50%")
    story.watch(100)
    story.watch(100)
    assert len(story.inside()) == 10 and story.rollout.is_open
    decision = story.watch(100, nacked={"edge-7": "port 80 is taken"})
    assert (decision.act, decision.reason) == (Act.ROLL_BACK, "edge-7 rejected it: port 80 is taken")


def test_running__not_all_acked__waits() -> None:
    story = Story("5")
    assert story.watch(299, acked=story.canaries[1:]).act is Act.NOTHING
    assert story.watch(61).act is Act.WRITE


def test_running__a_short_break_of_some__does_not_touch_the_hold() -> None:
    story = Story("5")
    story.watch(50)
    story.watch(LATE_S - 1, acked=story.canaries[1:])
    assert story.watch(1).reason == "wave 2 of 2 (100%)"


def test_running__a_short_break_of_half__stops_the_clock_of_the_hold() -> None:
    """As after a push of endpoints, which all nodes of the wave have to ACK."""
    story = Story("4")
    story.watch(50)
    story.watch(LATE_S - 1, acked=story.canaries[2:])
    assert story.watch(9).act is Act.NOTHING
    assert story.watch(2).act is Act.WRITE


def test_running__some_node_is_always_connecting__goes_on() -> None:
    story = Story("100%")
    decision = story.watch(1)
    for number in range(100):
        acked = list(story.connected)
        story.connected.append(f"new-{number}")
        decision = story.watch(1, acked=acked)
        if decision.act is not Act.NOTHING:
            break
    assert (decision.act, story.now_s) == (Act.PROMOTE, 1_060.0)
    assert decision.reason == f"all {len(story.connected) - 1} nodes have ACKed"


def test_running__who_is_there_when_a_silent_server_tells_again__has_to_ack() -> None:
    story = Story({"waves": "5", "hold_s": 0})
    story.watch(5, is_complete=False, acked=())
    assert story.watch(20, acked=story.canaries[2:]).act is Act.NOTHING
    assert story.watch(1).act is Act.WRITE


def test_running__a_node_that_connects_and_never_acks__is_late() -> None:
    story = Story("100%")
    story.watch(45)
    story.connected.append("new")
    decision = story.watch(400, acked=FLEET)
    assert (decision.act, story.now_s) == (Act.ROLL_BACK, 1_300.0)
    assert decision.reason == "1 of 11 nodes have not ACKed after 300 s; new"


def test_running__time_that_began_without_most_acks__does_not_count() -> None:
    story = Story({"waves": "5", "hold_s": 20})
    story.watch(0)
    for _ in range(20):
        story.watch(0, acked=story.canaries[3:])
        story.now_s += 4.0
        assert story.watch(0).act is Act.NOTHING


def test_running__a_long_break__begins_the_hold_anew() -> None:
    story = Story("5")
    story.watch(50)
    story.watch(LATE_S + 1, acked=story.canaries[1:])
    assert story.watch(59).act is Act.NOTHING
    assert story.watch(2).act is Act.WRITE


def test_running__the_canary_is_gone_for_a_moment__begins_the_hold_anew() -> None:
    story = Story("1")
    story.watch(50)
    story.watch(2, away=story.canaries)
    assert story.watch(59).act is Act.NOTHING
    assert story.watch(2).act is Act.WRITE


@pytest.mark.parametrize("state", ["running", "paused", "held"])
@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"nacked": {"edge-3": "no such filter"}}, "edge-3 rejected it: no such filter"),
        ({"nacked": {"edge-3": "no", "edge-4": "no"}}, "edge-3, and 1 more rejected it: no"),
        ({"away": FLEET}, "1 of 1 nodes of the wave (edge-0) are away for 30 s"),
        ({"requests": BAD, "others": GOOD}, "20.0% of 1000 requests failed, 5.0% above the usual 0.0% are allowed"),
    ],
)
def test_any_open_state__a_failure__rolled_back(state: str, known: dict[str, Any], words: str) -> None:
    story = Story({"waves": "1", "max_errors": 0.05})
    if state == "paused":
        story.rollout = story.rollout.pause("me", "", story.now_s)
    elif state == "held":
        assert story.watch(400, away=FLEET[:0]).act is Act.WRITE
    assert story.rollout.state == state
    decision = story.watch(60, **known)
    assert (decision.act, decision.reason) == (Act.ROLL_BACK, words)
    assert (story.rollout.state, story.rollout.reason) == (RolloutState.ROLLED_BACK, words)
    assert not story.rollout.is_open


@pytest.mark.parametrize("is_paused", [False, True])
def test_running_or_paused__a_failure_and_on_failure_hold__held(is_paused: bool) -> None:
    story = Story({"on_failure": "hold"})
    if is_paused:
        story.rollout = story.rollout.pause("me", "", story.now_s)
    decision = story.watch(1, nacked={"edge-3": "no"})
    assert (decision.act, story.rollout.state) == (Act.WRITE, RolloutState.HELD)
    assert story.rollout.reason == "edge-3 rejected it: no" and len(story.inside()) == 1
    assert story.watch(1_000, nacked={"edge-3": "no"}).act is Act.NOTHING


def test_running__a_nack_within_the_bound__goes_on_without_that_node() -> None:
    story = Story({"waves": "5", "max_nacks": 1})
    refused = dict.fromkeys(story.canaries[:1], "no")
    assert story.watch(61, nacked=refused).act is Act.WRITE
    only = Story({"waves": "1", "max_nacks": 1})
    assert only.watch(299, nacked=dict.fromkeys(only.canaries, "no")).act is Act.NOTHING


def test_running__a_nack_counts_when_its_node_is_away_and_a_server_is_silent() -> None:
    story = Story()
    assert story.watch(1, away=FLEET, nacked={"edge-3": "no"}, is_complete=False).act is Act.ROLL_BACK


def test_running__late__rolled_back_with_what_it_waits_for() -> None:
    story = Story("5")
    late = story.canaries[2]
    decision = story.watch(400, acked=set(story.canaries) - {late}, waiting={late: "listeners/web waits for shop-v2"})
    assert (decision.act, story.now_s) == (Act.ROLL_BACK, 1_300.0)
    assert decision.reason == f"1 of 5 nodes have not ACKed after 300 s; {late}: listeners/web waits for shop-v2"


def test_running__late_and_on_failure_hold__held() -> None:
    story = Story({"waves": "5", "on_failure": "hold", "timeout_s": 100})
    assert story.watch(400, acked=()).act is Act.WRITE
    assert (story.rollout.state, story.now_s) == (RolloutState.HELD, 1_100.0)


def test_running__a_canary_that_crashes_again_and_again__rolled_back() -> None:
    story = Story("1")
    decision = story.watch(0)
    while decision.act is Act.NOTHING:
        decision = story.watch(20) if story.now_s % 25 else story.watch(5, away=story.canaries)
    assert decision.reason == "the nodes of the wave did not stay connected for 300 s"
    assert decision.act is Act.ROLL_BACK


def test_running__half_of_the_wave_is_away__rolled_back() -> None:
    story = Story("4")
    assert story.watch(AWAY_S + 1, away=story.canaries[:1]).act is Act.NOTHING
    decision = story.watch(100, away=story.canaries[:2])
    names = ", ".join(sorted(story.canaries[:2]))
    assert decision.reason == f"2 of 4 nodes of the wave ({names}) are away for 30 s"


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("state", ["running", "paused"])
def test_any_open_state__nodes_that_move_to_another_group__are_not_away(state: str, is_restarted: bool) -> None:
    story = Story("50%")
    story.watch(10)
    if state == "paused":
        story.rollout = story.rollout.pause("me", "", story.now_s)
        story.watch(10)
    assert story.move(story.canaries[:3]).reason == "2 nodes in the wave"
    if is_restarted:
        story.restart()
    other = deepcopy(story)
    assert other.watch(100, away=story.canaries[3:]).reason == "2 of 2 nodes of the wave are away for 30 s"
    assert story.watch(59).act is Act.NOTHING
    if state == "paused":
        assert story.watch(1_000).act is Act.NOTHING
    else:
        assert story.watch(1).reason == "wave 2 of 2 (100%)"


def test_running__one_node_moves_while_others_are_away__these_are_not_forgotten() -> None:
    story = Story("50%")
    story.watch(1)
    assert story.move(story.canaries[:1], away=story.canaries[1:3]).act is Act.WRITE
    assert story.watch(100, away=story.canaries[1:3]).reason == "2 of 4 nodes of the wave are away for 30 s"


def test_running__a_canary_that_moves_to_another_group__another_one_takes_its_place() -> None:
    story = Story("1")
    story.watch(50)
    assert story.move(story.canaries).act is Act.WRITE
    assert len(story.inside()) == 1
    assert story.watch(59).act is Act.NOTHING
    assert story.watch(1).reason == "wave 2 of 2 (100%)"


def test_paused__a_canary_that_moves_to_another_group__another_one_takes_its_place_when_it_is_resumed() -> None:
    story = Story("1")
    story.watch(1)
    story.rollout = story.rollout.pause("me", "", story.now_s)
    story.watch(1)
    story.move(story.canaries)
    assert story.watch(1_000).act is Act.NOTHING and story.inside() == []
    story.rollout = story.rollout.resume("me", "", story.now_s)
    assert story.watch(1).act is Act.WRITE and len(story.inside()) == 1
    assert story.watch(100).reason == "wave 2 of 2 (100%)"


def test_held__its_canary_is_gone_for_good__another_one_takes_its_place_when_it_is_resumed() -> None:
    story = Story({"waves": "1", "on_failure": "hold"})
    story.connected = [id for id in FLEET if id not in story.canaries]
    assert story.watch(100).act is Act.WRITE and story.rollout.state is RolloutState.HELD
    assert story.watch(1_000).act is Act.NOTHING
    story.rollout = story.rollout.resume("me", "it was removed", story.now_s)
    assert story.watch(1, is_complete=False).act is Act.NOTHING, "it may be connected to the silent server"
    assert story.watch(1).act is Act.WRITE and len(story.inside()) == 1
    assert story.watch(100).reason == "wave 2 of 2 (100%)"


def test_running__a_canary_that_never_acked_is_away__rolled_back() -> None:
    story = Story("1")
    decision = story.watch(100, away=story.canaries)
    assert (decision.act, story.now_s) == (Act.ROLL_BACK, 1_000.0 + AWAY_S)


def test_running__a_share_of_which_half_is_away__rolled_back() -> None:
    story = Story("50%")
    assert story.watch(100, away=story.canaries[:3]).act is Act.ROLL_BACK


def test_running__nobody_of_the_wave_is_connected__held_after_the_timeout() -> None:
    story = Story({"selector": "node.cluster == nobody", "waves": "1"})
    decision = story.watch(1_000)
    assert (decision.act, story.rollout.state, story.now_s) == (Act.WRITE, RolloutState.HELD, 1_300.0)
    assert decision.reason == "could not be judged within 300 s: no node of the wave is connected"
    assert story.watch(1_000).act is Act.NOTHING


def test_running__a_counted_wave_takes_a_node_that_it_concerns() -> None:
    story = Story("2,50%")
    story.watch(unaffected=FLEET[:7])
    more = set(story.inside()) - set(story.canaries)
    assert len(set(story.inside()) - set(FLEET[:7])) == 2 and more <= set(FLEET[7:])
    assert story.watch(59, unaffected=FLEET[:7]).act is Act.NOTHING
    assert story.watch(2, unaffected=FLEET[:7]).reason == "wave 2 of 3 (50%)"


def test_running__the_push_concerns_no_node_of_the_wave__waits_then_held() -> None:
    story = Story("10%")
    assert story.watch(299, unaffected=story.canaries).act is Act.NOTHING
    assert story.rollout.progress.unknown == "the nodes of the wave subscribe to nothing that it changes"
    decision = story.watch(60, unaffected=story.canaries)
    assert (decision.act, story.rollout.state) == (Act.WRITE, RolloutState.HELD)
    assert (
        decision.reason
        == "could not be judged within 300 s: the nodes of the wave subscribe to nothing that it changes"
    )
    assert story.now_s == 1_300.0


def test_running__it_concerns_one_node_of_the_wave__that_one_decides() -> None:
    story = Story("30%")
    _, *unaffected = story.canaries
    assert story.watch(100, acked=(), unaffected=unaffected).act is Act.NOTHING
    assert story.watch(59, unaffected=unaffected).act is Act.NOTHING
    assert story.watch(2, unaffected=unaffected).reason == "wave 2 of 2 (100%)"
    decision = story.watch(100, unaffected=unaffected)
    assert (decision.act, decision.reason) == (Act.PROMOTE, "all 8 nodes that it concerns have ACKed")


def test_running__the_only_node_that_it_concerns_is_late__rolled_back() -> None:
    story = Story("30%")
    concerned, *unaffected = story.canaries
    decision = story.watch(400, acked=(), unaffected=unaffected, waiting={concerned: "listeners/web waits"})
    assert decision.act is Act.ROLL_BACK
    assert decision.reason == f"1 of 3 nodes have not ACKed after 300 s; {concerned}: listeners/web waits"


def test_running__the_only_node_that_acked_leaves__held_after_the_timeout() -> None:
    """The others prove nothing, and it is not half of the wave."""
    story = Story("30%")
    concerned, *unaffected = story.canaries
    story.watch(50, unaffected=unaffected)
    decision = story.watch(400, unaffected=unaffected, away=[concerned])
    assert (decision.act, story.rollout.state, story.now_s) == (Act.WRITE, RolloutState.HELD, 1_300.0)


def test_running__all_within_the_bound_of_nacks_nack__rolled_back_after_the_timeout() -> None:
    story = Story({"waves": "1", "max_nacks": 1})
    decision = story.watch(400, nacked=dict.fromkeys(story.canaries, "no"))
    assert (decision.act, decision.reason) == (Act.ROLL_BACK, "none of 1 nodes has ACKed after 300 s")


def test_promoting__it_concerns_no_node__promoted_at_once() -> None:
    story = Story()
    story.rollout = story.rollout.promote("me", "", story.now_s)
    assert story.watch(unaffected=FLEET).act is Act.PROMOTE


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        (None, "the nodes of the wave do not report load"),
        (RequestCount(0, 0), "the nodes of the wave have reported no requests"),
        (RequestCount(50, 60), "50 of only 60 requests failed"),
    ],
)
def test_running__a_bound_and_no_load__held_after_the_timeout(requests: RequestCount | None, words: str) -> None:
    story = Story({"max_errors": "2%"})
    decision = story.watch(1_000, requests=requests, others=GOOD)
    assert (decision.act, story.rollout.state, story.now_s) == (Act.WRITE, RolloutState.HELD, 1_300.0)
    assert decision.reason == f"could not be judged within 300 s: {words}"


def test_running__a_bound_of_everything__needs_no_load() -> None:
    assert Story({"max_errors": "100%"}).watch(61).act is Act.WRITE


def test_running__few_requests_that_succeed__next_wave() -> None:
    story = Story({"max_errors": "2%"})
    assert story.watch(61, requests=RequestCount(0, 3)).act is Act.WRITE


def test_running__a_server_is_silent__waits_then_held() -> None:
    story = Story()
    decision = story.watch(1_000, is_complete=False)
    assert (story.rollout.state, story.now_s) == (RolloutState.HELD, 1_300.0)
    assert decision.reason == "could not be judged within 300 s: a server does not tell about its nodes"


def test_running__a_server_falls_silent_for_good__held() -> None:
    story = Story()
    story.watch(30)
    decision = story.watch(1_000, is_complete=False)
    assert (decision.act, story.rollout.state, story.now_s) == (Act.WRITE, RolloutState.HELD, 1_300.0)


def test_running__a_server_is_silent_for_a_moment__the_hold_goes_on_after_it() -> None:
    story = Story()
    story.watch(30)
    story.watch(20, is_complete=False, away=FLEET)
    assert story.watch(28).act is Act.NOTHING
    assert story.watch(5).act is Act.WRITE


def test_running__as_many_errors_as_usual__next_wave() -> None:
    story = Story({"max_errors": "5%"})
    assert story.watch(61, requests=BAD, others=RequestCount(160, 1_000)).act is Act.WRITE


def test_running__errors_of_the_last_wave_are_compared_with_those_of_the_others_before() -> None:
    story = Story({"waves": "1", "max_errors": "5%"})
    assert story.watch(61, requests=BAD, others=RequestCount(160, 1_000)).act is Act.WRITE
    story.restart()
    assert story.rollout.usual_errors == 0.16
    assert story.watch(61, requests=BAD).act is Act.PROMOTE


def test_running__errors_of_a_single_wave_are_compared_with_those_before_it() -> None:
    story = Story({"waves": "100%", "max_errors": "5%"}, usual_errors=0.18)
    assert story.watch(61, requests=BAD).act is Act.PROMOTE
    assert Story({"waves": "100%", "max_errors": "5%"}).watch(61, requests=BAD).act is Act.ROLL_BACK


@pytest.mark.parametrize(("failed", "act"), [(5, Act.WRITE), (6, Act.ROLL_BACK)])
def test_running__as_many_errors_as_are_allowed__next_wave(failed: int, act: Act) -> None:
    """5% less the usual 3% are the 2% that are allowed, also as floats."""
    story = Story({"max_errors": "2%"})
    assert story.watch(61, requests=RequestCount(failed, 100), others=RequestCount(3, 100)).act is act


def test_running__few_requests_of_the_others_prove_nothing() -> None:
    story = Story({"max_errors": "5%"})
    assert story.watch(61, requests=BAD, others=RequestCount(50, 99)).act is Act.ROLL_BACK


def test_paused__time_is_no_failure() -> None:
    story = Story()
    story.rollout = story.rollout.pause("me", "lunch", story.now_s)
    assert story.watch(10_000, acked=()).act is Act.NOTHING
    assert story.rollout.state is RolloutState.PAUSED


@pytest.mark.parametrize("is_held", [False, True])
def test_paused_or_held__resume__running_with_clocks_anew(is_held: bool) -> None:
    story = Story({"timeout_s": 60, "hold_s": 30})
    story.watch(20)
    if is_held:
        story.watch(100, is_complete=False)
    else:
        story.rollout = story.rollout.pause("me", "", story.now_s)
        story.watch(100)
    story.rollout = story.rollout.resume("me", "go", story.now_s)
    assert (story.rollout.state, story.rollout.wave, story.rollout.reason) == (RolloutState.RUNNING, 0, "")
    began_s = story.now_s
    decisions = [story.watch(100) for _ in range(2)]
    assert [each.act for each in decisions] == [Act.WRITE, Act.WRITE]
    assert decisions[1].reason.startswith("wave 2")
    assert story.now_s == began_s + 30


def test_paused__resumed_after_half_of_the_wave_was_removed__goes_on() -> None:
    story = Story("4")
    story.watch(1)
    story.rollout = story.rollout.pause("me", "", story.now_s)
    story.connected = [id for id in FLEET if id not in story.canaries[:2]]
    story.rollout = story.rollout.resume("me", "", story.now_s)
    assert story.watch(1).reason == "4 nodes in the wave"
    assert story.watch(100).reason.startswith("wave 2")


def test_promoting__all_acked__promoted_at_once() -> None:
    story = Story()
    story.rollout = story.rollout.promote("me", "urgent", story.now_s)
    assert story.watch(10, acked=FLEET[:5]).act is Act.NOTHING
    decision = story.watch(0)
    assert (decision.act, story.rollout.state, story.rollout.by) == (Act.PROMOTE, RolloutState.PROMOTED, "me")


@pytest.mark.parametrize(
    "known",
    [
        {"acked": ()},
        {"nacked": {"edge-3": "no"}, "acked": ()},
        {"away": FLEET},
        {"is_complete": False},
        {"requests": BAD, "others": GOOD, "acked": ()},
    ],
)
def test_promoting__timeout__promoted_whatever_fails(known: dict[str, Any]) -> None:
    story = Story({"max_errors": "5%"})
    story.rollout = story.rollout.promote("me", "urgent", story.now_s)
    assert story.watch(1_000, **known).act is Act.PROMOTE
    assert story.now_s == 1_300.0


@pytest.mark.parametrize("state", [RolloutState.PROMOTED, RolloutState.ROLLED_BACK, RolloutState.SUPERSEDED])
def test_ended__anything__the_same(state: RolloutState) -> None:
    story = Story()
    story.rollout = story.rollout.end(state, "over", story.now_s)
    for known in ({}, {"nacked": {"edge-3": "no"}}, {"away": FLEET}):
        assert story.watch(1_000, **known).act is Act.NOTHING


def test_time_that_the_server_was_down_does_not_count_as_held() -> None:
    story = Story()
    story.watch(50)
    story.restart()
    story.now_s += 3_600
    assert story.watch(59).act is Act.NOTHING
    assert story.watch(1).act is Act.WRITE


def test_nodes_have_time_to_come_back_after_a_restart_of_the_server() -> None:
    story = Story("50%")
    story.watch(50)
    story.restart()
    story.now_s += 3_600
    assert story.watch(40, away=FLEET).act is Act.NOTHING
    assert story.watch(61).act is Act.WRITE


def test_nodes_that_do_not_come_back_after_a_restart_of_the_server_have_crashed() -> None:
    story = Story("50%")
    story.watch(1, away=story.canaries)
    story.restart()
    assert story.watch(100, away=story.canaries).act is Act.ROLL_BACK
    assert story.now_s == 1_001.0 + 2 * AWAY_S


@pytest.mark.parametrize("jump_s", [3_600.0, -3_600.0])
def test_a_clock_that_jumps_lengthens_the_hold_and_never_shortens_it(jump_s: float) -> None:
    story = Story()
    story.watch(30)
    story.now_s += jump_s
    assert story.watch(24).act is Act.NOTHING
    assert story.watch(10).act is Act.WRITE


def test_a_clock_that_jumps_makes_no_wave_late() -> None:
    story = Story()
    story.watch(30, acked=())
    story.now_s += 3_600
    assert story.watch(260, acked=()).act is Act.NOTHING


def test_a_counted_wave_takes_the_nodes_that_connect_later() -> None:
    story = Story("2", connected=())
    assert story.watch(10).act is Act.NOTHING
    story.connected = list(FLEET)
    assert (story.watch(1).act, len(story.inside())) == (Act.WRITE, 2)
    assert story.rollout.connected_n == 2
    assert story.watch(61).reason == "wave 2 of 2 (100%)"


def test_a_decision_without_an_act_leaves_the_document_as_it_is() -> None:
    story = Story()
    before = story.rollout
    story.watch(10)
    assert story.rollout == before and encode(story.rollout) == encode(before)
    assert replace(story.rollout, progress=before.progress) == before
