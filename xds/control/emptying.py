"""What a change takes from connected nodes: an empty answer by accident wipes a fleet (DESIGN 5.2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from xds.control.groups import GroupSettings, GroupTable
from xds.control.push import Draft, EmptyingError, Step
from xds.control.runtime import off_loop
from xds.fleet.fleet import Fleet
from xds.model.node import Node
from xds.protocol.cache import SnapshotCache
from xds.protocol.membership import Membership
from xds.store.base import Drop

# Connected nodes by the group that they go to; the empty group: none matches.
Moves = Mapping[str, int]
NO_MOVES: Moves = MappingProxyType({})


class Emptying:
    """Looks at who would be left with nothing."""

    def __init__(self, cache: SnapshotCache, fleet: Fleet, settings: GroupTable) -> None:
        self._cache = cache
        self._fleet = fleet
        self._settings = settings

    async def moves(self, draft: Draft) -> Moves:
        """Where the connected nodes of a group go when it is deleted; nowhere by any other change."""
        if not isinstance(draft.change, Drop):
            return NO_MOVES
        found = [self._fleet.identity(node_id) for node_id in self._fleet.connected(draft.group)]
        nodes = [node for node in found if node is not None]
        return await off_loop(len(nodes), _moves, self._cache.membership, nodes, draft.group)

    def check(self, step: Step, moves: Moves) -> None:
        """Raises ``EmptyingError`` for a change that leaves connected nodes with nothing."""
        if isinstance(step.draft.change, Drop):
            self._check_moves(step.group, moves)
        elif not step.blob_ids:
            self._check_emptied(step.group)

    def check_selector(self, group: str, settings: GroupSettings) -> None:
        """Raises ``EmptyingError`` for a selector that takes nodes into an empty group."""
        if settings.selector and self._is_empty(group):
            detail = f"group {group!r} is empty: the nodes that the selector matches would lose everything"
            raise EmptyingError(detail)

    def _check_emptied(self, group: str) -> None:
        connected = len(self._fleet.connected(group))
        if self._settings.get(group).selector and self._cache.get(group) is None:
            detail = f"an empty group {group!r} would take everything from the nodes that its selector matches"
            raise EmptyingError(detail)
        if connected:
            raise EmptyingError(f"this leaves group {group!r} empty while {connected} nodes are connected")

    def _check_moves(self, group: str, moves: Moves) -> None:
        """ "Refuses only if one would get nothing"."""
        lost = [f"{counted(moves[''])} would belong to no group and get nothing any more"] if moves.get("") else []
        lost += [
            f"{counted(number)} would move to {other!r}, which is empty, and lose everything"
            for other, number in sorted(moves.items())
            if other and self._is_empty(other)
        ]
        if lost:
            raise EmptyingError(f"deleting group {group!r}: {'; '.join(lost)}")

    def _is_empty(self, group: str) -> bool:
        held = self._cache.get(group)
        return held is not None and not any(len(each) for each in held)


def counted(nodes: int) -> str:
    """So many nodes, in words."""
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _moves(membership: Membership, nodes: Iterable[Node], without: str) -> Moves:
    matches = (membership.match_without(node, without) for node in nodes)
    return Counter(match.group if match is not None else "" for match in matches)
