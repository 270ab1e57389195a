"""The state table in the docstring of `xds.rollouts.decide`, compared with what it decides, in all states."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from xds.model.node import Node
from xds.rollouts import decide as module
from xds.rollouts.decide import AWAY_S, LATE_S, Facts, RequestCount, decide
from xds.rollouts.plan import read_plan
from xds.rollouts.rollout import Progress, Rollout, RolloutState, begin
from xds.rollouts.wave import everybody

FLEET = dict.fromkeys((f"edge-{at}" for at in range(10)), "")
PLAN = {"waves": "1,50%", "hold_s": 60, "timeout_s": 300, "max_errors": 0.05}
NOW_S = 1_000.0
RAN, LATE = 60.0, 300.0
GOOD, BAD = RequestCount(0, 1_000), RequestCount(200, 1_000)

# What is seen, by name: how long the wave has run, and what differs from a wave whose nodes have all ACKed.
Seen = tuple[float, dict[str, Any]]
FAILURES: dict[str, Seen] = {
    "rejected": (RAN, {"nacked": {"edge-0": "no"}}),
    "away": (RAN, {"away": FLEET}),
    "failing": (RAN, {"requests": BAD}),
}
UNKNOWN: dict[str, Seen] = {
    "nobody": (LATE, {"away": FLEET, "most_n": 0}),
    "concerns nobody": (LATE, {"unaffected": FLEET.keys()}),
    "no load": (LATE, {"requests": None}),
    "a silent server": (LATE, {"is_complete": False}),
}
SEEN: dict[str, Seen] = {
    "held": (RAN, {}),
    "not held yet": (RAN / 2, {}),
    "waits": (RAN, {"behind": True}),
    "late": (LATE, {"behind": True}),
    "no load yet": (RAN, {"requests": None}),
    **FAILURES,
    **UNKNOWN,
}
# What each row of the table is about, by the beginning of its second cell.
ROWS = {
    "every connected node of the wave": {"held"},
    "the same; or": {"held"},
    "a failure: more than": FAILURES.keys(),
    "a failure: ``timeout_s``": {"late"},
    "it cannot be judged": UNKNOWN.keys(),
    "a failure, but": FAILURES.keys(),
    # A node that has NACKed is not waited for, and nor is one that is away.
    "all connected nodes": SEEN.keys() - {"waits", "away"},
    "anything": SEEN.keys(),
}


def table() -> dict[tuple[str, str], str]:
    """The third cell of the docstring's table by state and what is seen."""
    found: dict[tuple[str, str], str] = {}
    outcome = ""
    for line in (module.__doc__ or "").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if not cells or cells[0] == "state":
            continue
        (seen,) = (names for text, names in ROWS.items() if cells[1].startswith(text))
        is_repeated = cells[2] == "the same" and cells[0] == "RUNNING"
        outcome = outcome if is_repeated else cells[2]
        plain = cells[0].split(", ")
        states = [cells[0]] if plain[-1] in {"wave i", "last wave", "promoting"} else plain
        for state in states:
            running = ["RUNNING, wave i", "RUNNING, last wave"] if state == "RUNNING" else [state]
            found.update({(each, name): outcome for each in running for name in seen})
    return found


def rollout_in(state: str, on_failure: str) -> Rollout:
    """A rollout in a state of the table. Its wave is one of half of the nodes, unless that says otherwise."""
    begun = begin("edge", read_plan({**PLAN, "on_failure": on_failure}), 1, 2, FLEET, NOW_S)
    half = replace(begun.nodes, ids=frozenset(list(FLEET)[:5]))
    name, _, which = state.partition(", ")
    rollout = replace(begun, state=RolloutState[name], wave=1, nodes=half, connected_n=0)
    if which in {"last wave", "promoting"}:
        rollout = replace(rollout, wave=2, nodes=everybody("edge"), is_promoting=which == "promoting")
    return rollout if rollout.is_open else replace(rollout, ended_s=NOW_S)


def decided(rollout: Rollout, seen: Seen) -> Rollout:
    wave_s, known = seen[0], dict(seen[1])
    gone = set(known.pop("away", ()))
    connected = {id: kind for id, kind in FLEET.items() if id not in gone}
    inside = {id for id in connected if rollout.in_wave(Node(id))}
    is_behind, most_n = known.pop("behind", False), known.pop("most_n", 5)
    facts = Facts(connected, inside, set(sorted(inside)[is_behind:]), **{"requests": GOOD, "others": GOOD, **known})
    facts = replace(facts, acked=facts.acked - facts.nacked.keys() - facts.unaffected)
    is_acked = bool(facts.acked) and not facts.behind and facts.is_complete
    progress = Progress(
        NOW_S,
        wave_s,
        is_acked,
        held_s=wave_s if is_acked else 0.0,
        behind_since_s=dict.fromkeys(facts.behind, -LATE_S),
        away_s=AWAY_S if gone and most_n else 0.0,
        most_n=most_n,
    )
    before = replace(rollout, progress=progress)
    after = decide(before, facts, NOW_S)
    assert decide(before, facts, NOW_S) == after  # it keeps no state of its own
    return after


STATES = sorted({state for state, _ in table()})


def test_the_table_has_all_states() -> None:
    assert {state.partition(", ")[0] for state in STATES} == {state.name for state in RolloutState}
    assert {name for _, name in table()} == SEEN.keys()


@pytest.mark.parametrize(("state", "on_failure"), list(product(STATES, ["rollback", "hold"])))
def test_what_is_decided_is_in_the_table(state: str, on_failure: str) -> None:
    """Each combination of a state and what is seen: its row says what comes next, and without one nothing changes."""
    rows = table()
    for name, seen in SEEN.items():
        before = rollout_in(state, on_failure)
        after = decided(before, seen)
        outcomes = re.findall(r"RUNNING|HELD|PROMOTED|ROLLED_BACK", rows.get((state, name), ""))
        expected = RolloutState[outcomes[-1 if on_failure == "hold" else 0]] if outcomes else before.state
        assert after.state is expected, (name, after.reason)
        assert after.wave == before.wave + (outcomes == ["RUNNING"]), name
