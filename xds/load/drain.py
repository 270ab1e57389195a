"""Draining: who takes no share because too few of its endpoints are healthy, and for how long.

A locality that recovers must stay well for a while before it takes its share again, and each relapse doubles that
while: health that goes up and down moves traffic a few times, then no more.
"""

from __future__ import annotations

from collections.abc import Mapping

from xds.load.assignment import Code, Lapse, Memory, Reason, Target
from xds.load.policy import Policy
from xds.load.telling import named
from xds.model.node import Locality

# A locality that relapses again and again waits at most this many times the policy's dwell.
LONGEST_WAIT = 16
# After being well for so many times its wait, or the dwell where that is longer, its relapses are forgotten.
_FORGOTTEN = 10


def healthy_fraction(target: Target) -> float:
    """The part of the endpoints that is healthy; 0 without endpoints."""
    return min(max(target.healthy, 0), target.endpoints) / target.endpoints if target.endpoints > 0 else 0.0


def lapses(policy: Policy, targets: Mapping[Locality, Target], memory: Memory, now: float) -> dict[Locality, Lapse]:
    """Who was below the healthy fraction lately, and whether it is drained for that."""
    found = {}
    for name, target in targets.items():
        if target.endpoints > 0 and policy.drain.below > 0:
            lapse = _lapse(policy, healthy_fraction(target), memory.lapses.get(name), now)
            if lapse is not None:
                found[name] = lapse
    return found


def _lapse(policy: Policy, fraction: float, before: Lapse | None, now: float) -> Lapse | None:
    if before is None or not before.is_drained:
        if fraction < policy.drain.below:
            return Lapse(now, (before.times if before else 0) + 1, is_drained=True)
        is_forgotten = before is None or now - before.ill_at >= _FORGOTTEN * max(
            policy.dwell_s, _wait_s(policy, before)
        )
        return None if is_forgotten else before
    if fraction < policy.drain.restore:
        # A relapse while it waits: it was ill, well and is ill again.
        is_relapse = fraction < policy.drain.below and before.is_well
        return Lapse(now, before.times + is_relapse, is_drained=True)
    is_waiting = now - before.ill_at < _wait_s(policy, before)
    return Lapse(before.ill_at, before.times, is_drained=is_waiting, is_well=True)


def _wait_s(policy: Policy, lapse: Lapse) -> float:
    """How long a locality must be well; the first time it is back at once."""
    relapses = min(lapse.times - 1, LONGEST_WAIT)
    return policy.dwell_s * min(LONGEST_WAIT, (1 << relapses) - 1)


def told(
    policy: Policy, targets: Mapping[Locality, Target], before: Mapping[Locality, Lapse], now: Mapping[Locality, Lapse]
) -> list[Reason]:
    """Who began to drain, and who is restored."""
    reasons = []
    drained = {name for name, lapse in now.items() if lapse.is_drained}
    were = {name for name, lapse in before.items() if lapse.is_drained and name in targets}
    for name in sorted(drained ^ were, key=str):
        target = targets[name]
        counts = f"{target.healthy} of {target.endpoints} endpoints of {named(name)} are healthy"
        if name in drained:
            detail = f"{counts}, less than {policy.drain.below:.0%}: it takes no share"
            reasons.append(Reason(Code.DRAINED, detail, name))
        else:
            reasons.append(Reason(Code.RESTORED, f"{counts} again", name))
    return reasons
