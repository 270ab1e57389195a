"""The JSON of the history of decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired

from typing_extensions import TypedDict

from xds.api.shapes.assignments import ReasonItem, WantedItem, locality_item, reason_items
from xds.api.shapes.values import LocalityItem, timestamp
from xds.assignment.decision_history import DecisionChange
from xds.model.node import Locality


class DecisionChangeItem(TypedDict):
    """The change of one source by one decision.

    ``number`` grows by one with each change of the cluster. ``actions``: ``changed``, ``held`` (its reports are late),
    ``fallback`` (the pushed weights apply again). ``before`` and ``after`` are shares of its requests, largest first.
    """

    number: int
    time: str
    source: LocalityItem
    actions: list[str]
    standing: str
    demand_rps: float
    shed: float
    before: list[WantedItem]
    after: list[WantedItem]
    reasons: list[ReasonItem]


class DecisionChangePage(TypedDict):
    """A page of the decision history; ``next_page_token`` is missing on the last one."""

    items: list[DecisionChangeItem]
    next_page_token: NotRequired[str]


def decision_change_item(change: DecisionChange) -> DecisionChangeItem:
    """One change of a decision as a JSON value; times are in RFC 3339."""
    return {
        "number": change.number,
        "time": timestamp(change.decided_at),
        "source": locality_item(change.source),
        "actions": list(change.actions),
        "standing": str(change.standing),
        "demand_rps": round(change.demand_rps, 4),
        "shed": change.shed,
        "before": _share_items(change.before),
        "after": _share_items(change.after),
        "reasons": reason_items(change.reasons),
    }


def _share_items(shares: Mapping[Locality, float]) -> list[WantedItem]:
    return [{"locality": locality_item(name), "share": share} for name, share in shares.items()]
