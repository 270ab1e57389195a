"""The history of decisions for one cluster: which sources were served other shares, when and why.

The history is bounded. The latest changes are stored with the decision (`xds.steering.assignments`), so a restart keeps
them. Earlier changes are in memory only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any

from xds.model.errors import ValidationError, Violation
from xds.model.node import Locality
from xds.steering.core.assignment import (
    Assignment,
    Decision,
    Observation,
    Reason,
    ReasonCode,
    SourceAssignment,
    SourceDecision,
    Standing,
)
from xds.steering.core.weights import locality_key

ACTIONS = CHANGED, HELD, FALLBACK = "changed", "held", "fallback"

KEPT_LIMIT = 128  # changes of one cluster in memory
STORED_LIMIT = 32  # of these, the latest are stored
SHARES_LIMIT, REASONS_LIMIT, DETAIL_LIMIT = 16, 8, 300  # of one change

Shares = Mapping[Locality, float]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class DecisionChange:
    """The change of one source by one decision. ``number`` grows by one with each change of the cluster.

    ``before`` and ``after`` are the shares that the source was and is served, the ``SHARES_LIMIT`` largest.
    ``demand_rps`` and ``shed`` are figures of the decision. ``decided_at`` is epoch seconds. ``actions``: of `ACTIONS`.
    """

    decided_at: float
    source: Locality
    actions: tuple[str, ...]
    standing: Standing
    before: Shares
    after: Shares
    reasons: tuple[Reason, ...] = ()
    demand_rps: float = 0.0
    shed: float = 0.0
    number: int = 0


@dataclass(slots=True)
class DecisionHistory:
    """The latest changes of one cluster, at most ``KEPT_LIMIT``; the oldest are dropped first."""

    changes: deque[DecisionChange] = field(default_factory=lambda: deque(maxlen=KEPT_LIMIT))

    def record(self, changes: Iterable[DecisionChange]) -> None:
        """Append changes, in their order."""
        for change in changes:
            last = self.changes[-1].number if self.changes else 0
            self.changes.append(replace(change, number=last + 1))

    def latest(self, before: int | None = None) -> Iterator[DecisionChange]:
        """The changes, latest first; with ``before``, only changes with a lower number."""
        return (change for change in reversed(tuple(self.changes)) if before is None or change.number < before)

    def document(self) -> list[Json]:
        """The ``STORED_LIMIT`` latest changes as JSON for the store. `read_history` reads them back."""
        return [_document(change) for change in list(self.changes)[-STORED_LIMIT:]]


def read_history(document: Any) -> DecisionHistory:
    """The history in a stored document. Raises ``ValidationError`` for any other document."""
    try:
        return DecisionHistory(deque((_change(item) for item in document), maxlen=KEPT_LIMIT))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"not a stored history of decisions: {type(error).__name__}: {error!s:.80}"
        raise ValidationError([Violation("malformed", detail)]) from error


def decision_changes(
    before: Assignment | None, observed: Observation, decision: Decision, now: float
) -> list[DecisionChange]:
    """The changes of a decision at ``now``: one for each source with other shares, or newly held or at fallback."""
    earlier = before.sources if before is not None else {}
    changes = []
    for one in decision.sources:
        previous = earlier.get(one.source)
        actions = tuple(_actions(one, previous))
        if actions:
            changes.append(_build_change(one, previous, observed, decision, actions, now))
    return changes


def _build_change(
    one: SourceDecision,
    previous: SourceAssignment | None,
    observed: Observation,
    decision: Decision,
    actions: tuple[str, ...],
    now: float,
) -> DecisionChange:
    assigned, demand = decision.assignment.sources[one.source], observed.demand.get(one.source)
    reasons = tuple(
        replace(reason, detail=reason.detail[:DETAIL_LIMIT])
        for reason in (*one.reasons, *decision.reasons)[:REASONS_LIMIT]
    )
    return DecisionChange(
        now,
        one.source,
        actions,
        one.standing,
        _largest_shares(previous.shares() if previous is not None else {}),
        _largest_shares(assigned.shares()),
        reasons,
        demand.rps if demand is not None and isfinite(demand.rps) and demand.rps >= 0 else 0.0,
        assigned.shed,
    )


def _actions(decided: SourceDecision, before: SourceAssignment | None) -> Iterator[str]:
    previous_standing = before.standing if before is not None else Standing.PUSHED
    if decided.standing is Standing.PUSHED:
        if previous_standing is not Standing.PUSHED:
            yield FALLBACK
        return
    if decided.is_changed:
        yield CHANGED
    if decided.standing is Standing.HELD and previous_standing is not Standing.HELD:
        yield HELD


def _largest_shares(shares: Shares) -> Shares:
    ordered = sorted(shares.items(), key=lambda one: (-one[1], locality_key(one[0])))
    return {name: round(share, 4) for name, share in ordered[:SHARES_LIMIT] if share > 0}


# Documents. They are stored every few seconds while shares move, so a locality is a list of its three parts.


def _document(change: DecisionChange) -> Json:
    return {
        "number": change.number,
        "decided_at": change.decided_at,
        "source": _parts(change.source),
        "actions": list(change.actions),
        "standing": str(change.standing),
        "before": _shares_document(change.before),
        "after": _shares_document(change.after),
        "reasons": [
            {
                "code": str(reason.code),
                "detail": reason.detail,
                "target": _parts(reason.target) if reason.target is not None else None,
            }
            for reason in change.reasons
        ],
        "demand_rps": change.demand_rps,
        "shed": change.shed,
    }


def _shares_document(shares: Shares) -> list[list[Any]]:
    return [[*_parts(name), share] for name, share in shares.items()]


def _parts(locality: Locality) -> list[str]:
    return [locality.region, locality.zone, locality.sub_zone]


def _change(item: Any) -> DecisionChange:
    return DecisionChange(
        _figure(item["decided_at"]),
        _locality(item["source"]),
        tuple(action for action in item["actions"] if action in ACTIONS),
        Standing(item["standing"]),
        {_locality(parts): _figure(share) for *parts, share in item["before"]},
        {_locality(parts): _figure(share) for *parts, share in item["after"]},
        tuple(_reason(one) for one in item["reasons"]),
        _figure(item["demand_rps"]),
        _figure(item["shed"]),
        int(item["number"]),
    )


def _reason(item: Any) -> Reason:
    target = _locality(item["target"]) if item["target"] is not None else None
    return Reason(ReasonCode(item["code"]), str(item["detail"])[:DETAIL_LIMIT], target)


def _locality(parts: Any) -> Locality:
    region, zone, sub_zone = parts
    return Locality(str(region), str(zone), str(sub_zone))


def _figure(value: Any) -> float:
    if isinstance(value, bool) or not isfinite(value) or value < 0:
        raise ValueError(f"{value!r:.20} is not a figure")
    return float(value)
