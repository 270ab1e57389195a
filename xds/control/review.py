"""What a push means for the rest of its group. Pure.

What a change takes from connected nodes: an empty answer by accident wipes a fleet (DESIGN 5.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from xds.codec.crosscheck import check_references
from xds.codec.exclusive import LISTENERS
from xds.control.content import BlobIds, GroupContent, Key
from xds.control.groups import GroupSettings, GroupTable
from xds.control.policy_review import Find, assignment_name, review_policy
from xds.control.push import EmptyingError, PlannedChange, PushRequest, plan_change
from xds.control.threads import run_sized
from xds.fleet.fleet import Fleet
from xds.load.policy import Policy
from xds.model.errors import ERROR, ValidationError, Violation
from xds.model.node import Node
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.protocol.cache import SnapshotCache
from xds.protocol.membership import Membership
from xds.store.base import Delta, Drop, FullSet

_NOBODY: Mapping[str, Mapping[str, Resource]] = {}


def plan_reviewed(draft: PushRequest, held: GroupContent | None, target: GroupContent | None) -> PlannedChange:
    """Put a draft to what its group holds, with what a review finds in it. Raises as ``settle`` and ``review``."""
    step = plan_change(draft, held, target)
    return replace(step, warnings=review(step))


def review(step: PlannedChange) -> tuple[Violation, ...]:
    """What a step's resources, and those that go away, mean to each other and to the rest: the warnings.

    Raises ``ValidationError`` for what Envoy surely refuses. A rollback was looked at when it was pushed.
    """
    change = step.draft.change
    found: list[Violation] = []
    if isinstance(change, FullSet):
        held = step.held.blob_ids if step.held is not None else BlobIds()
        found = check_references(step.known.values(), removed=held.keys() - step.blob_ids.keys())
    elif isinstance(change, Delta):
        known = _NOBODY if step.held is None else {one.type.type_url: one.resources for one in step.held.snapshot}
        found = check_references(step.known.values(), removed=change.delete, known=known)
    errors = [one for one in found if one.severity == ERROR]
    if errors:
        raise ValidationError(errors)
    return tuple(found)


def review_policies(step: PlannedChange, policies: Mapping[str, Policy]) -> list[Violation]:
    """What a step means to the policies of its group whose clusters or endpoints it touches."""
    change = step.draft.change
    if not policies or isinstance(change, Drop):
        return []
    find = partial(_after, step)
    concerned = policies
    if isinstance(change, Delta):
        touched = {*step.known, *change.delete}
        concerned = {name: policy for name, policy in policies.items() if not touched.isdisjoint(_keys(name, find))}
    return [
        finding
        for policy in concerned.values()
        for finding in review_policy(policy, find, _names(step, CLUSTER), policies)
    ]


def _names(step: PlannedChange, wanted: str) -> Iterator[str]:
    return (name for type_url, name in step.blob_ids if type_url == wanted)


def _after(step: PlannedChange, type_url: str, name: str) -> Resource | None:
    """A resource of the content that a step leads to."""
    key = (type_url, name)
    if key not in step.blob_ids:
        return None
    known = step.known.get(key)
    return known if known is not None or step.held is None else step.held.get(key)


def _keys(cluster: str, find: Find) -> set[Key]:
    return {(CLUSTER, cluster), (ENDPOINT, assignment_name(find(CLUSTER, cluster)))}


def review_size(draft: PushRequest, held: GroupContent | None) -> int:
    """How many resources a review looks at: a listener is compared with the others, a removal asks everybody."""
    change, size = draft.change, len(draft.known)
    if (
        isinstance(change, Delta)
        and not change.delete
        and not any(type_url in LISTENERS for type_url, _ in draft.known)
    ):
        return size
    return size + (len(held) if held is not None else 0)


# Connected nodes by the group that they go to; the empty group: none matches.
Moves = Mapping[str, int]
NO_MOVES: Moves = MappingProxyType({})


class EmptyGroupGuard:
    """Looks at who would be left with nothing."""

    def __init__(self, cache: SnapshotCache, fleet: Fleet, settings: GroupTable) -> None:
        self._cache = cache
        self._fleet = fleet
        self._settings = settings

    async def moves(self, draft: PushRequest) -> Moves:
        """Where the connected nodes of a group go when it is deleted; nowhere by any other change."""
        if not isinstance(draft.change, Drop):
            return NO_MOVES
        found = [self._fleet.identity(node_id) for node_id in self._fleet.connected(draft.group)]
        nodes = [node for node in found if node is not None]
        return await run_sized(_moves, self._cache.membership, nodes, draft.group, resources=len(nodes))

    def check(self, step: PlannedChange, moves: Moves) -> None:
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
        lost = [f"{node_count(moves[''])} would belong to no group and get nothing any more"] if moves.get("") else []
        lost += [
            f"{node_count(number)} would move to {other!r}, which is empty, and lose everything"
            for other, number in sorted(moves.items())
            if other and self._is_empty(other)
        ]
        if lost:
            raise EmptyingError(f"deleting group {group!r}: {'; '.join(lost)}")

    def _is_empty(self, group: str) -> bool:
        held = self._cache.get(group)
        return held is not None and not any(len(each) for each in held)


def node_count(nodes: int) -> str:
    """So many nodes, in words."""
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _moves(membership: Membership, nodes: Iterable[Node], without: str) -> Moves:
    matches = (membership.match_without(node, without) for node in nodes)
    return Counter(match.group if match is not None else "" for match in matches)
