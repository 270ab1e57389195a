"""Which nodes of the fleet match a filter, in what order, and their counts, without a state of each node. Pure.

A list of thousands of nodes is read in batches, and only the nodes of one page get a state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from xds.fleet.node_records import WORST_FIRST, NodeRecord
from xds.fleet.state import Sync
from xds.model.node import Node

_TROUBLE = {state: place for place, state in enumerate(WORST_FIRST)}


class NodeOrder(StrEnum):
    """The order of a list of nodes: by id, or those with the worst state first, and by id among equals."""

    ID = "id"
    TROUBLE = "trouble"

    def rank(self, state: Sync) -> int:
        """What precedes the id in this order: nodes that need no look are equal."""
        return min(_TROUBLE[state], _TROUBLE[Sync.SYNCED]) if self is NodeOrder.TROUBLE else 0


def worst_of(states: Collection[Sync]) -> Sync:
    """The worst state; without any, that of a node that subscribes to nothing."""
    if len(states) == 1:
        return next(iter(states))
    return min(states, key=_TROUBLE.__getitem__, default=Sync.NOT_SUBSCRIBED)


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes are wanted; those that pass all parts.

    ``state``: with a type in this state. ``text``: with this text, whatever its case, in the id, cluster, locality or
    client's version, or in the message of an open NACK. ``user_agent``: exactly. ``selected`` are ids. ``is_on_line``
    decides by group and node.
    """

    group: str | None = None
    state: Sync | None = None
    text: str = ""
    user_agent: str | None = None
    selected: Container[str] | None = None
    is_on_line: Callable[[str, Node], bool] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every node passes."""
        return self == NodeFilter()

    def passes(self, record: NodeRecord, states: Collection[Sync]) -> bool:
        """Whether a node passes; ``states`` are those of its types."""
        if self.group is not None and record.group != self.group:
            return False
        if self.state is not None and self.state not in states:
            return False
        if self.user_agent is not None and record.node.user_agent != self.user_agent:
            return False
        if self.selected is not None and record.node.id not in self.selected:
            return False
        if self.is_on_line is not None and not self.is_on_line(record.group, record.node):
            return False
        return not self.text or _has_text(record, self.text.casefold(), Sync.NACKED in states)


def _has_text(record: NodeRecord, text: str, has_nacks: bool) -> bool:
    node, where = record.node, record.node.locality
    shown = (node.id, node.cluster, node.user_agent, where.region, where.zone, where.sub_zone)
    return any(text in each.casefold() for each in shown) or (
        has_nacks and any(text in message.casefold() for message in record.nack_messages())
    )


class ListedNode(NamedTuple):
    """A node of a list: its worst state, whether it is connected or polls, its client's version, and its group."""

    id: str
    state: Sync
    is_present: bool
    has_streams: bool
    user_agent: str
    group: str


def listed_node(record: NodeRecord, chosen: NodeFilter, now: float) -> ListedNode | None:
    """A node that passes the filter; None for others."""
    states = record.sync_states(now)
    if not chosen.passes(record, states):
        return None
    has_streams = bool(record.streams)
    is_present = has_streams or record.is_present(now)
    return ListedNode(record.node.id, worst_of(states), is_present, has_streams, record.node.user_agent, record.group)


class NodeTally:
    """Counts of listed nodes: each counts in its worst state, or as gone; one without types is not subscribed.

    ``numbers`` are of nodes that are alike: in the same state, present or not, of the same version and group.
    """

    def __init__(self) -> None:
        self.numbers: Counter[tuple[Sync, bool, str, str]] = Counter()

    def add(self, nodes: Iterable[ListedNode]) -> None:
        """Count nodes."""
        self.numbers.update([(node.state, node.is_present, node.user_agent, node.group) for node in nodes])

    @property
    def total(self) -> int:
        """The number of nodes."""
        return self.numbers.total()

    @property
    def connected(self) -> int:
        """The number of nodes that are connected or poll."""
        return sum(number for (_, is_present, *_), number in self.numbers.items() if is_present)

    def by_state(self) -> dict[Sync, int]:
        """The number of nodes that are connected or poll, in each state."""
        found = dict.fromkeys(Sync, 0)
        for (state, is_present, *_), number in self.numbers.items():
            found[state] += number if is_present else 0
        return found

    def by_version(self, limit: int) -> dict[str, int]:
        """The number of nodes of the most frequent versions."""
        return _largest(((version, number) for (_, _, version, _), number in self.numbers.items()), limit)

    def by_group(self, limit: int) -> dict[str, int]:
        """The number of nodes that are connected or poll, of the groups with the most; those of no group under ""."""
        numbers = self.numbers.items()
        return _largest(((group, number) for (_, is_present, _, group), number in numbers if is_present), limit)

    def nacked_by_group(self, limit: int) -> dict[str, int]:
        """As ``by_group``, of those with a NACKed type."""
        found = (
            (group, number)
            for (state, is_present, _, group), number in self.numbers.items()
            if is_present and state is Sync.NACKED
        )
        return _largest(found, limit)


def _largest(numbers: Iterable[tuple[str, int]], limit: int) -> dict[str, int]:
    """The sums by name, of the names with the largest ones."""
    found: Counter[str] = Counter()
    for name, number in numbers:
        found[name] += number
    return dict(found.most_common(limit))
