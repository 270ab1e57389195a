"""Random stories of a rollout: never onward without facts, never two ways out, a restart changes no outcome."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.examples import examples
from xds.model.node import Node
from xds.rollouts.decide import LATE_S, STEP_LIMIT_S, Facts, RequestCount, decide
from xds.rollouts.plan import RolloutPlan, read_plan
from xds.rollouts.rollout import Progress, Rollout, RolloutState, begin, decode, encode

GROUP = "edge"
FLEET = tuple(f"edge-{at}" for at in range(8))
NODES = st.sampled_from(FLEET)
PLANS = st.builds(
    lambda waves, hold_s, nacks, errors, failure, selector: read_plan(
        {
            "waves": waves,
            "hold_s": hold_s,
            "timeout_s": 60,
            "max_nacks": nacks,
            "max_errors": errors,
            "on_failure": failure,
            "selector": selector,
        }
    ),
    st.sampled_from(["1", "1,10%,50%", "3,60%", "100%", "25%,50%,75%"]),
    st.sampled_from([0, 5, 20]),
    st.integers(0, 2),
    st.sampled_from([None, 0.05]),
    st.sampled_from(["rollback", "hold"]),
    st.sampled_from(["", 'node.id == "edge-7"', "node.id == nobody"]),
)
COUNTS = st.sampled_from([None, RequestCount(0, 0), RequestCount(0, 500), RequestCount(400, 500), RequestCount(9, 10)])


class Rollouts(RuleBasedStateMachine):
    """One group, its nodes, the server that decides, and what people do."""

    @initialize(plan=PLANS, connected=st.sets(NODES))
    def start(self, plan: RolloutPlan, connected: set[str]) -> None:
        self.now_s = 1_000_000.0
        self.connected = set(connected)
        self.left: set[str] = set()
        self.acked: set[str] = set()
        self.nacked: dict[str, str] = {}
        self.unaffected: set[str] = set()
        self.requests: RequestCount | None = RequestCount(0, 500)
        self.others: RequestCount | None = RequestCount(0, 500)
        self.is_complete = True
        self.head = 2
        self.ends: list[RolloutState] = []
        self.restarted_s = self.now_s
        # Since the wave is watched: who had not ACKed, with the time that counts.
        self.looks: list[tuple[float, set[str]]] = []
        self.looked_s = self.now_s
        self.rollout = begin(GROUP, plan, 1, self.head, dict.fromkeys(self.connected, ""), self.now_s)

    def inside(self) -> set[str]:
        return {id for id in self.connected if self.rollout.in_wave(Node(id))}

    def facts(self) -> Facts:
        inside, connected = self.inside(), dict.fromkeys(sorted(self.connected), "")
        unaffected = inside & self.unaffected
        acked = (inside & self.acked) - self.nacked.keys() - unaffected
        counts = self.requests, self.others
        return Facts(connected, inside, acked, self.nacked, {}, *counts, self.is_complete, unaffected, self.left)

    @rule(node=NODES)
    def connect(self, node: str) -> None:
        self.connected.add(node)
        self.left.discard(node)
        self.acked.discard(node)

    @rule(node=NODES)
    def disconnect(self, node: str) -> None:
        self.connected.discard(node)
        self.left.discard(node)

    @rule(node=NODES)
    def move_to_another_group(self, node: str) -> None:
        if node in self.inside():
            self.left.add(node)
        self.connected.discard(node)

    @rule()
    def ack(self) -> None:
        self.acked |= self.inside()

    @rule(node=NODES)
    def nack(self, node: str) -> None:
        if node in self.inside():
            self.nacked[node] = "no"

    @rule(nodes=st.sets(NODES))
    def subscribe(self, nodes: set[str]) -> None:
        """These nodes subscribe to nothing that the push changes, all others to some of it."""
        self.unaffected = nodes

    @rule(requests=COUNTS, others=COUNTS)
    def report(self, requests: RequestCount | None, others: RequestCount | None) -> None:
        self.requests, self.others = requests, others

    @rule(is_complete=st.booleans())
    def ask_the_other_servers(self, is_complete: bool) -> None:
        self.is_complete = is_complete

    @rule(jump_s=st.sampled_from([-500.0, 500.0]))
    def set_the_clock(self, jump_s: float) -> None:
        self.now_s += jump_s
        self.restarted_s += jump_s - (STEP_LIMIT_S if jump_s > 0.0 else 0.0)  # a jump ahead counts for as much

    @rule()
    def restart(self) -> None:
        self.rollout = decode(GROUP, encode(self.rollout))
        self._watch_anew()

    def _watch_anew(self) -> None:
        self.restarted_s, self.looks, self.left = self.now_s, [], set()

    @precondition(lambda self: self.rollout.is_open)
    @rule()
    def pause(self) -> None:
        self.rollout = self.rollout.pause("me", "", self.now_s)

    @precondition(lambda self: self.rollout.is_open)
    @rule()
    def resume(self) -> None:
        self.rollout = self.rollout.resume("me", "", self.now_s)
        self._watch_anew()

    @precondition(lambda self: self.rollout.is_open)
    @rule()
    def promote(self) -> None:
        self.rollout = self.rollout.promote("me", "", self.now_s)

    @precondition(lambda self: self.rollout.is_open)
    @rule()
    def abort(self) -> None:
        self.rollout = self.rollout.end(RolloutState.ROLLED_BACK, "aborted", self.now_s, "me")
        self.ends.append(RolloutState.ROLLED_BACK)

    @rule(plan=PLANS)
    def push(self, plan: RolloutPlan) -> None:
        had = {id for id in FLEET if self.rollout.had_head(Node(id))}
        was_promoted = self.rollout.state is RolloutState.PROMOTED
        self.head += 1
        connected = dict.fromkeys(sorted(self.connected), "")
        self.rollout = begin(GROUP, plan, 1, self.head, connected, self.now_s, former=self.rollout)
        self.acked, self.nacked, self.ends = set(), {}, []
        self._watch_anew()
        assert was_promoted or all(self.rollout.had_head(Node(id)) for id in had)

    @rule(seconds=st.sampled_from([1, 7, 40]))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now_s += 1.0
            self._decide()

    def _decide(self) -> None:
        before, facts = self.rollout, self.facts()
        counted_s = min(max(self.now_s - self.looked_s, 0.0), STEP_LIMIT_S) if self.looks else 0.0
        self.looked_s = self.now_s
        self.looks.append((self.looks[-1][0] + counted_s if self.looks else 0.0, set(facts.behind)))
        in_before = {id for id in FLEET if before.in_wave(Node(id))}
        self.rollout = after = decide(before, facts, self.now_s)
        assert all(after.in_wave(Node(id)) for id in in_before)
        if before.is_open and not after.is_open:
            self.ends.append(after.state)
        is_promoted = after.state is RolloutState.PROMOTED and before.is_open
        if after.wave > before.wave or (is_promoted and not before.is_promoting):
            self._check_onward(before, facts)
        if after.progress == Progress(seen_s=self.now_s):
            self._watch_anew()
        if after.state is RolloutState.ROLLED_BACK and before.is_open:
            assert before.plan.on_failure == "rollback" and not before.is_promoting and after.reason

    def _check_onward(self, before: Rollout, facts: Facts) -> None:
        """A wave goes on only after its hold, with all facts, and without a failure."""
        plan = before.plan
        assert before.state is RolloutState.RUNNING and facts.is_complete
        assert facts.acked and len(facts.behind) * 2 < len(facts.inside)
        assert not set.intersection(*(behind for _, behind in self.looks)), "all who were there have ACKed"
        end_s = self.looks[-1][0]
        since = max((at for at, (seen_s, _) in enumerate(self.looks) if seen_s <= end_s - LATE_S), default=None)
        if since is not None:
            assert not set.intersection(*(behind for _, behind in self.looks[since:])), "nobody is late"
        assert len(facts.nacked) <= plan.max_nacks
        assert self.now_s - self.restarted_s >= plan.hold_s
        if plan.max_errors is not None:
            assert facts.requests is not None and facts.requests.attempted > 0
            others = (
                facts.others.failed_share if facts.others and facts.others.attempted >= 100 else before.usual_errors
            )
            assert facts.requests.failed_share - others <= plan.max_errors + 1e-9

    @invariant()
    def there_is_one_way_out(self) -> None:
        assert len(self.ends) == (not self.rollout.is_open)

    @invariant()
    def the_document_is_read_as_it_is_written(self) -> None:
        assert decode(GROUP, encode(self.rollout)) == self.rollout


TestRollouts = Rollouts.TestCase


def outcome(plan: RolloutPlan, known: dict[str, Any], restarts: set[int]) -> tuple[RolloutState, int, str]:
    """How a rollout ends, or where it stays, while the facts are always the same. Restarts in these seconds."""
    rollout = begin(GROUP, plan, 1, 2, dict.fromkeys(FLEET, ""), 1_000.0)
    first = {id for id in FLEET if rollout.in_wave(Node(id))}
    for second in range(0, 900, 3):
        if not rollout.is_open:
            break
        if second in restarts:
            rollout = decode(GROUP, encode(rollout))
        away = first if known.get("is_away") else set[str]()
        connected = dict.fromkeys((id for id in FLEET if id not in away), "")
        inside = {id for id in connected if rollout.in_wave(Node(id))}
        acked = set(sorted(inside)[known.get("behind_n", 0) + known.get("unaffected_n", 0) :])
        unaffected = set(sorted(inside)[: known.get("unaffected_n", 0)])
        nacked = dict.fromkeys(sorted(inside)[: known.get("nacked_n", 0)], "no")
        requests, others = known.get("requests"), RequestCount(0, 500)
        is_complete = known.get("is_complete", True)
        facts = Facts(connected, inside, acked - nacked.keys(), nacked, {}, requests, others, is_complete, unaffected)
        rollout = decide(rollout, facts, 1_000.0 + second)
    return rollout.state, rollout.wave, rollout.reason


@pytest.mark.parametrize(
    "known",
    [
        {},
        {"nacked_n": 1},
        {"behind_n": 1},
        {"is_away": True},
        {"is_complete": False},
        {"unaffected_n": 1},
        {"unaffected_n": 8},
        {"requests": RequestCount(0, 500)},
        {"requests": RequestCount(100, 500)},
        {"requests": RequestCount(0, 0)},
    ],
    ids=str,
)
@examples(10, in_soak=100)
@given(plan=PLANS, restarts=st.sets(st.integers(0, 15).map(lambda at: at * 60), max_size=4))
def test_a_restart_changes_no_outcome(known: dict[str, Any], plan: RolloutPlan, restarts: set[int]) -> None:
    assert outcome(plan, known, restarts) == outcome(plan, known, set())
