"""Decides what becomes of a rollout: it goes on, waits, is held, is promoted or is taken back.

| state | what is seen | next |
|---|---|---|
| RUNNING, wave i | every connected node of the wave has ACKed the head, at least one has, for ``hold_s`` without break; the error bound, where there is one, is kept | RUNNING, wave i+1 |
| RUNNING, last wave | the same; or no connected node is outside of the wave before | PROMOTED |
| RUNNING | a failure: more than ``max_nacks`` nodes NACK content of the head; half or more of the wave's nodes are away for `AWAY_S`; more requests fail than the error bound allows | ROLLED_BACK, or HELD if ``on_failure`` says so |
| RUNNING | a failure: ``timeout_s`` after the wave began, not all its connected nodes have ACKed without break since | the same |
| RUNNING | it cannot be judged for ``timeout_s``: no node of the wave was connected; the push concerns none of those that are; there is an error bound and no request was reported; a server did not answer | HELD |
| PAUSED, HELD | a failure, but not that of time | ROLLED_BACK, or HELD if ``on_failure`` says so |
| RUNNING, promoting | all connected nodes have ACKed, or ``timeout_s`` has passed; failures end it no more | PROMOTED |
| PROMOTED, ROLLED_BACK, SUPERSEDED | anything | the same |

People and pushes do the rest (`xds.rollouts.rollout`): ``pause``, ``resume``, ``promote``, an abort, and another push,
which supersedes. A resumed wave is watched anew.

A node that subscribes to nothing that the push changes has not ACKed it, and is not late with it: it proves nothing. A
wave needs another one that ACKs, and a counted wave takes one. Its absence counts as that of any other, since it may be
the first sign of a crash.

A node that comes to the wave after its beginning, or gets other endpoints, has `LATE_S` for its ACK; only then it breaks
the hold. So a large fleet, of which some node always starts, can be promoted. The clock stands while that is so of half
of the wave. When half of the wave is away the hold is broken at once, or proxies that crash again and again would pass.
When nodes of the wave have moved to another group, it is watched anew without them. A counted wave takes others in
their place, and when it is resumed also in place of those that are not connected any more.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from xds.rollouts.plan import ALL, OnFailure
from xds.rollouts.rollout import Progress, Rollout, RolloutState
from xds.rollouts.wave import next_wave, top_up

AWAY_S = 30.0
LATE_S = 10.0
STEP_LIMIT_S = 5.0  # the longest time between two decisions that counts
ATTEMPTS = 100  # of the wave, or of the others, below which their failed share proves nothing
_NAMED_IDS = 3  # in a reason


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Requests that load reports have counted since the wave began."""

    failed: float
    attempted: float

    @property
    def failed_share(self) -> float:
        """The fraction that failed; 0 without requests."""
        return self.failed / self.attempted if self.attempted else 0.0


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of the nodes of the group now.

    * ``connected``: the kinds of all connected nodes, by id; ``inside``: those of them in the wave;
    * ``left``: connected nodes that have left the wave since it is watched: they have moved to another group;
    * ``acked``: those in the wave that have ACKed all of the head; ``waiting``: what others wait for;
    * ``unaffected``: connected nodes that subscribe to nothing that differs between base and head; those outside of
      the wave are known while it is a counted one;
    * ``nacked``: nodes that NACKed content of the head, with their words, the first one first;
    * ``requests``, ``others``: those of the nodes in the wave and of the others; None if none of them reports load;
    * ``is_complete``: False if a server did not tell about its nodes.
    """

    connected: Mapping[str, str]
    inside: AbstractSet[str]
    acked: AbstractSet[str]
    nacked: Mapping[str, str] = field(default_factory=dict)
    waiting: Mapping[str, str] = field(default_factory=dict)
    requests: RequestCount | None = None
    others: RequestCount | None = None
    is_complete: bool = True
    unaffected: AbstractSet[str] = frozenset()
    left: AbstractSet[str] = frozenset()

    @property
    def behind(self) -> AbstractSet[str]:
        """The connected nodes of the wave that the head concerns, and that have neither ACKed nor NACKed it."""
        return self.inside - self.acked - self.nacked.keys() - self.unaffected

    @property
    def concern_nobody(self) -> bool:
        """Whether nodes of the wave are connected, and the head changes nothing for any of them."""
        return bool(self.inside) and self.inside <= self.unaffected


def decide(rollout: Rollout, facts: Facts, now_s: float) -> Rollout:
    """The rollout from ``now_s`` (epoch seconds) on. Call this when facts have changed, and each second.

    One that differs is to be stored, with the push that takes the head back if it is rolled back. If it equals the one
    before, only its progress has changed.
    """
    if not rollout.is_open:
        return rollout
    watched = replace(rollout, progress=_advance(rollout, facts, now_s))
    if rollout.is_promoting:
        return _finish_promotion(watched, facts, now_s)
    failure = _failure(watched, facts)
    if failure:
        return _fail(watched, failure, now_s)
    if rollout.state is not RolloutState.RUNNING:
        return _note_nodes(watched, facts, now_s)
    return _judge(watched, facts, now_s)


def usual_errors(facts: Facts, before: float) -> float:
    """The failed share of requests of the nodes outside of the wave; ``before`` if they had too few."""
    if facts.others is not None and facts.others.attempted >= ATTEMPTS:
        return facts.others.failed_share
    return before


def _errors(rollout: Rollout, facts: Facts) -> float | None:
    """How much more of the wave's requests fail than usual; None without requests."""
    if facts.requests is None or not facts.requests.attempted:
        return None
    # Rounded: as floats, 5% less 3% are more than 2%.
    return round(facts.requests.failed_share - usual_errors(facts, rollout.usual_errors), 9)


def _advance(rollout: Rollout, facts: Facts, now_s: float) -> Progress:
    """The progress of the wave after the time since the decision before."""
    before = rollout.progress
    elapsed_s = 0.0 if before.seen_s is None else min(max(now_s - before.seen_s, 0.0), STEP_LIMIT_S)
    errors = _errors(rollout, facts)
    unknown = _unknown(rollout, facts, errors)
    seen = replace(before, seen_s=now_s, wave_s=before.wave_s + elapsed_s, errors=errors, unknown=unknown)
    if not facts.is_complete:
        return replace(seen, is_acked=False)
    most_n = max(before.most_n, rollout.connected_n, len(facts.inside))
    is_away = most_n > 0 and len(facts.inside) * 2 <= most_n
    came_s = seen.wave_s if before.most_n else -LATE_S  # who is there at the beginning has no time
    behind = {id: before.behind_since_s.get(id, came_s) for id in facts.behind}
    new_n = sum(seen.wave_s - since_s < LATE_S for since_s in behind.values())
    is_broken = is_away or new_n < len(behind) or not (facts.acked or new_n)
    is_acked = bool(facts.acked) and not is_broken and new_n * 2 < len(facts.inside)
    held_s = before.held_s + (elapsed_s if is_acked and before.is_acked else 0.0)
    return replace(
        seen,
        is_acked=is_acked,
        held_s=0.0 if is_broken else held_s,
        behind_since_s=behind,
        away_s=before.away_s + elapsed_s if is_away else 0.0,
        most_n=most_n,
    )


def _judge(rollout: Rollout, facts: Facts, now_s: float) -> Rollout:
    """Decide about a running wave without failures."""
    plan, progress = rollout.plan, rollout.progress
    has_held = progress.is_acked and progress.held_s >= plan.hold_s
    if has_held and not progress.unknown:
        return _go_on(rollout, facts, now_s)
    is_holding = facts.is_complete and (progress.is_acked or progress.held_s > 0.0)
    if progress.wave_s >= plan.timeout_s and (has_held or not is_holding):
        if not has_held and progress.most_n and facts.is_complete and not facts.concern_nobody:
            return _fail(rollout, _lateness(rollout, facts), now_s)
        return _hold(rollout, f"could not be judged within {plan.timeout_s:g} s: {progress.unknown}")
    return _note_nodes(rollout, facts, now_s)


def _finish_promotion(rollout: Rollout, facts: Facts, now_s: float) -> Rollout:
    is_done = facts.is_complete and (facts.concern_nobody or (facts.acked and not facts.behind))
    is_over = is_done or rollout.progress.wave_s >= rollout.plan.timeout_s
    if rollout.state is RolloutState.RUNNING and is_over:
        return rollout.end(RolloutState.PROMOTED, "promoted by hand", now_s)
    return rollout


def _fail(rollout: Rollout, reason: str, now_s: float) -> Rollout:
    if rollout.plan.on_failure is OnFailure.HOLD:
        return _hold(rollout, reason)
    return rollout.end(RolloutState.ROLLED_BACK, reason, now_s)


def _hold(rollout: Rollout, reason: str) -> Rollout:
    if rollout.state is RolloutState.HELD:
        return rollout
    return replace(rollout, state=RolloutState.HELD, reason=reason)


def _go_on(rollout: Rollout, facts: Facts, now_s: float) -> Rollout:
    """The next wave, or the end. A last wave that adds no connected node has been judged already."""
    if rollout.step == ALL:
        return _promote(rollout, facts, now_s)
    at, nodes, connected_n = next_wave(rollout.plan, rollout.wave, rollout.nodes, facts.connected, facts.inside)
    if rollout.plan.steps[at] == ALL and len(facts.inside) == len(facts.connected):
        return _promote(rollout, facts, now_s)
    usual = usual_errors(facts, rollout.usual_errors)
    wider = replace(rollout, wave=at, nodes=nodes, connected_n=connected_n, usual_errors=usual)
    return wider.watched_anew(now_s)


def _promote(rollout: Rollout, facts: Facts, now_s: float) -> Rollout:
    concerned = " that it concerns" if facts.inside & facts.unaffected else ""
    return rollout.end(RolloutState.PROMOTED, f"all {len(facts.acked)} nodes{concerned} have ACKed", now_s)


def _note_nodes(rollout: Rollout, facts: Facts, now_s: float) -> Rollout:
    """Note how many nodes the wave has, and choose more for a counted wave that lacks some, unless it stands still.

    When nodes come or have left, the wave is watched anew.
    """
    if not facts.is_complete:
        return rollout
    nodes, gone = rollout.nodes, facts.left
    if not rollout.connected_n:  # as when it is resumed: who is not there is not waited for
        gone = gone | (nodes.ids - facts.connected.keys())
    if rollout.state is RolloutState.RUNNING:
        nodes = top_up(rollout.plan, rollout.wave, nodes, facts.connected, facts.inside, facts.unaffected | gone)
    chosen_n = len(nodes.ids) - len(rollout.nodes.ids)
    stayed_n = max(rollout.progress.most_n - len(facts.left), len(facts.inside))
    noted = replace(rollout, nodes=nodes, connected_n=stayed_n + chosen_n)
    if chosen_n or facts.left:
        return noted.watched_anew(now_s)
    return rollout if rollout.connected_n else noted


def _unknown(rollout: Rollout, facts: Facts, errors: float | None) -> str:
    """What is missing for a judgement; empty if nothing is. ``errors`` as in `Progress`."""
    bound, requests = rollout.plan.max_errors, facts.requests
    unknown = ""
    if not facts.is_complete:
        unknown = "a server does not tell about its nodes"
    elif not facts.inside:
        unknown = "no node of the wave is connected"
    elif facts.concern_nobody:
        unknown = "the nodes of the wave subscribe to nothing that it changes"
    elif bound is None or bound >= 1.0:
        pass
    elif requests is None:
        unknown = "the nodes of the wave do not report load"
    elif errors is None:
        unknown = "the nodes of the wave have reported no requests"
    elif errors > bound:
        unknown = f"{requests.failed:.0f} of only {requests.attempted:.0f} requests failed"
    return unknown


def _failure(rollout: Rollout, facts: Facts) -> str:
    """What has failed, but for lateness; empty if nothing has."""
    plan, progress, requests = rollout.plan, rollout.progress, facts.requests
    if len(facts.nacked) > plan.max_nacks:
        node, words = next(iter(facts.nacked.items()))
        others = f", and {len(facts.nacked) - 1} more" if len(facts.nacked) > 1 else ""
        return f"{node}{others} rejected it: {words.strip()}"
    if progress.away_s >= AWAY_S:
        ids = sorted(rollout.nodes.ids - facts.connected.keys())[:_NAMED_IDS]
        names = f" ({', '.join(ids)})" if ids else ""
        away = f"{progress.most_n - len(facts.inside)} of {progress.most_n} nodes"
        return f"{away} of the wave{names} are away for {AWAY_S:.0f} s"
    if plan.max_errors is None or requests is None or requests.attempted < ATTEMPTS or not facts.is_complete:
        return ""
    if progress.errors is None or progress.errors <= plan.max_errors:
        return ""
    usual = f"{usual_errors(facts, rollout.usual_errors):.1%}"
    failed = f"{requests.failed_share:.1%} of {requests.attempted:.0f} requests failed"
    return f"{failed}, {plan.max_errors:.1%} above the usual {usual} are allowed"


def _lateness(rollout: Rollout, facts: Facts) -> str:
    progress, time = rollout.progress, f"{rollout.plan.timeout_s:g} s"
    late = [id for id, since_s in progress.behind_since_s.items() if progress.wave_s - since_s >= LATE_S]
    behind = sorted(late or facts.behind)
    if not behind and facts.inside:
        return f"none of {len(facts.inside)} nodes has ACKed after {time}"
    if not behind:
        return f"the nodes of the wave did not stay connected for {time}"
    waiting = next((id for id in behind if id in facts.waiting), behind[0])
    cause = f": {facts.waiting[waiting]}" if waiting in facts.waiting else ""
    return f"{len(behind)} of {len(facts.inside)} nodes have not ACKed after {time}; {waiting}{cause}"
