"""Groups: which nodes share a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xds.model.node import Node

DEFAULT_GROUP = "default"


@dataclass(frozen=True, slots=True)
class GroupMatch:
    """The group a node belongs to, and the rule that decided it (shown to operators)."""

    group: str
    rule: str


def candidate_groups(node: Node) -> Iterator[GroupMatch]:
    """The groups a node may belong to, best first: its id, its cluster, ``default`` (DESIGN 4.1)."""
    yield GroupMatch(node.id, "node.id")
    if node.cluster:
        yield GroupMatch(node.cluster, "node.cluster")
    yield GroupMatch(DEFAULT_GROUP, "default")


def match_group(node: Node, exists: Callable[[str], bool]) -> GroupMatch | None:
    """The first candidate group that exists; None leaves the node waiting for one to appear."""
    return next((match for match in candidate_groups(node) if exists(match.group)), None)
