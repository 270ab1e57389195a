"""What is told of traffic assignment: an event for every change of a source, with its reasons."""

from __future__ import annotations

from collections.abc import Iterator

from xds.assignment.assignment import (
    Assignment,
    SourceAssignment,
    SourceDecision,
    Standing,
)
from xds.assignment.reasons import describe_shares, locality_label
from xds.control.audit import NOBODY, Caller
from xds.control.policies import Key
from xds.control.steering import Outcome
from xds.fleet.event_log import EventLog, Kind

ACTIONS = CHANGED, HELD, FALLBACK = "changed", "held", "fallback"


def tell_policy(log: EventLog, key: Key, action: str, now: float, by: Caller = NOBODY) -> None:
    """A policy was put or deleted."""
    log.record(Kind.ASSIGNMENT, action, now, group=key[0], details={**by.names(), "cluster": key[1]})


def tell_decision(log: EventLog, key: Key, before: Assignment | None, outcome: Outcome) -> list[str]:
    """An event for each source that is served something else, or stands otherwise; returns their actions."""
    decision, told = outcome.decision, []
    earlier = before.sources if before is not None else {}
    for one in decision.sources:
        own = decision.assignment.sources[one.source]
        for action in _actions(one, earlier.get(one.source)):
            told.append(action)
            reasons = (*one.reasons, *decision.reasons)
            details = {
                "cluster": key[1],
                "source": str(one.source),
                "standing": str(one.standing),
                "reasons": ",".join(dict.fromkeys(str(reason.code) for reason in reasons)),
                "shares": describe_shares(own.shares()),
            }
            message = "; ".join(
                (
                    f"{locality_label(one.source)}: {describe_shares(own.shares())}",
                    *(reason.detail for reason in reasons),
                )
            )
            log.record(Kind.ASSIGNMENT, action, outcome.decided_at, group=key[0], message=message, details=details)
    return told


def _actions(decided: SourceDecision, before: SourceAssignment | None) -> Iterator[str]:
    stood = before.standing if before is not None else Standing.PUSHED
    if decided.standing is Standing.PUSHED:
        if stood is not Standing.PUSHED:
            yield FALLBACK
        return
    if decided.is_changed:
        yield CHANGED
    if decided.standing is Standing.HELD and stood is not Standing.HELD:
        yield HELD
