"""Equal NACKs of several nodes as one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from xds.fleet.state import NackRecord, NackState
from xds.model.natural_order import natural_key


@dataclass(frozen=True, slots=True)
class MergedNack:
    """NACKs with the same type, group, state, message and rejected names: the latest record, and all their nodes.

    The record has the sum of the counts and the earliest ``first``. ``nodes`` are in natural order.
    """

    record: NackRecord
    nodes: tuple[str, ...]


def merge_by_message(records: Iterable[NackRecord]) -> list[MergedNack]:
    """Merge equal NACKs of several nodes. ``records`` are ordered, the latest first.

    Open NACKs come first, then those whose rejected resources are known, those of the most nodes, and the latest.
    """
    equal: dict[tuple[object, ...], list[NackRecord]] = {}
    for record in records:
        key = (record.type, record.group, record.state, record.message, record.guilty)
        equal.setdefault(key, []).append(record)
    merged = [_merged(each) for each in equal.values()]
    return sorted(merged, key=lambda one: (one.record.state != NackState.OPEN, not one.record.guilty, -len(one.nodes)))


def _merged(records: list[NackRecord]) -> MergedNack:
    latest = max(records, key=lambda record: record.last)
    nodes = sorted({record.node for record in records}, key=natural_key)
    first, count = min(record.first for record in records), sum(record.count for record in records)
    return MergedNack(replace(latest, count=count, first=first), tuple(nodes))
