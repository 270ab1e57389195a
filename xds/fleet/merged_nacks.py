"""Equal NACKs of several nodes as one: those of the records of a server, and of what several servers answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from xds.fleet.state import NackRecord, NackState
from xds.model.natural_order import natural_key

T = TypeVar("T")


class EqualNacks(NamedTuple, Generic[T]):
    """NACKs with the same type, group, state, message and rejected names (``guilty``).

    ``latest`` is the last of them, by its ``place``; ``times`` is how often all were NACKed. ``nodes`` are some or all
    of their ``nodes_total`` nodes, in natural order.
    """

    latest: T
    key: tuple[object, ...]
    is_open: bool
    is_known: bool
    place: tuple[Any, int]
    first: Any
    times: int
    nodes: Sequence[str]
    nodes_total: int


def equal_nacks_of(record: NackRecord) -> EqualNacks[NackRecord]:
    """A single one."""
    return EqualNacks(
        record,
        (record.type, record.group, record.state, record.message, record.guilty),
        record.state is NackState.OPEN,
        bool(record.guilty),
        (record.last, record.id),
        record.first,
        record.count,
        (record.node,),
        1,
    )


def merge_by_message(nacks: Iterable[EqualNacks[T]]) -> list[EqualNacks[T]]:
    """Merge those that are equal.

    Open NACKs come first, then those whose rejected resources are known, those of the most nodes, and the latest.
    """
    equal: dict[tuple[object, ...], list[EqualNacks[T]]] = {}
    for each in nacks:
        equal.setdefault(each.key, []).append(each)
    merged = sorted(map(_merged, equal.values()), key=lambda one: one.place, reverse=True)
    return sorted(merged, key=lambda one: (not one.is_open, not one.is_known, -one.nodes_total))


def _merged(equal: Sequence[EqualNacks[T]]) -> EqualNacks[T]:
    latest = max(equal, key=lambda each: each.place)
    nodes = sorted({node for each in equal for node in each.nodes}, key=natural_key)
    # A node that moved is counted once, as far as all nodes are listed.
    is_listed = all(each.nodes_total == len(each.nodes) for each in equal)
    return EqualNacks(
        latest.latest,
        latest.key,
        latest.is_open,
        latest.is_known,
        latest.place,
        min(each.first for each in equal),
        sum(each.times for each in equal),
        nodes,
        len(nodes) if is_listed else sum(each.nodes_total for each in equal),
    )
