"""Finds the revision that ``undo`` goes back to. A revision that was undone or rejected before is never chosen.

The content of a group is the result of its revisions without those that were undone (`RevisionInfo.undone_by`).
``undo`` takes back the last change of configuration among these. Changes of endpoints alone stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog

from xds.fleet.fleet import Fleet
from xds.model.errors import NotFoundError
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT_TYPES
from xds.push.content import GroupContent, Key
from xds.push.group_names import CONFIG_ENTRIES_LINE
from xds.push.progress import rollout_status
from xds.rollouts.rollout import Rollout
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.resource_lookup import assignment_name
from xds.store.base import DELETE, DERIVED, RevisionInfo, Rollback, Store, StoreError
from xds.store.line import Line

REFUSED_SHARE = 0.1
WATCH_S = 1.0
CANDIDATES_LIMIT = 10

_log = structlog.get_logger(logger_name="xds.push.undo")


@dataclass(frozen=True, slots=True)
class UndoCandidate:
    """An earlier revision. ``reason`` says why ``undo`` does not go back to it; empty if it can."""

    line: RevisionInfo
    reason: str


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What ``undo`` would do.

    ``takes_back`` is the last change of configuration, ``to`` the revision to go back to. ``to`` is None if every
    earlier revision was undone, rejected or collected. An operator then has to choose among ``candidates``, the newest
    earlier revisions. ``last_undo`` is the rollback that made the present configuration, if a rollback did.
    """

    group: str
    revision: int
    etag: str
    takes_back: RevisionInfo
    to: RevisionInfo | None
    candidates: tuple[UndoCandidate, ...]
    last_undo: RevisionInfo | None = None


class Refusals(NamedTuple):
    """How many nodes a revision is for, and how many of these reject it."""

    nodes: int = 0
    refused: int = 0


# Counts the nodes of other servers, by group and revision.
CountElsewhere = Callable[[str, int], Awaitable[Refusals]]


async def nowhere(group: str, revision: int) -> Refusals:
    """Where a server is alone, no node is elsewhere."""
    return Refusals()


class UndoPlanner:
    """Plans undo from the history of a group and from NACKs. ``find_content`` looks up the content of a group.

    ``find_rollout`` looks up its last rollout: undo goes back to no revision that only waves had, and takes an open one
    back to its base.

    A revision that more than ``refused_share`` of its nodes rejected is never chosen. ``elsewhere`` counts those that
    are connected to other servers.
    """

    def __init__(
        self,
        store: Store,
        cache: SnapshotCache,
        fleet: Fleet,
        find_content: Callable[[str], GroupContent | None],
        find_rollout: Callable[[str], Rollout | None],
        refused_share: float,
    ) -> None:
        self._store = store
        self._cache = cache
        self._fleet = fleet
        self._find_content = find_content
        self._find_rollout = find_rollout
        self._share = refused_share
        self.elsewhere: CountElsewhere = nowhere
        self._noted: dict[str, tuple[int, int, int]] = {}  # by group: revision, refusals and nodes stored last
        self._heard: dict[str, tuple[int, Refusals]] = {}  # by group: of a revision, from other servers

    async def plan(self, group: str) -> UndoPlan:
        """Plan ``undo`` for a group.

        Raises ``NotFoundError`` if there is no earlier revision, ``StoreError``. The deletion of a group is undone by a
        rollback to a named revision only; the error names one.
        """
        content = self._find_content(group)
        if content is None:
            raise await self._absent(group)
        await self.note_refusals([group])
        rollout = self._find_rollout(group)
        if rollout is not None and rollout.is_open and (plan := await self._plan_of(rollout, content)) is not None:
            return plan
        takes_back, chosen, last_undo = None, None, None
        candidates: list[UndoCandidate] = []
        follows = content.revision + 1
        derived: RevisionInfo | None = None
        async for line in Line(self._store, group).newest_first(follows, endpoints=False):
            if line.kind == DERIVED:  # derived resources follow the documents of a feature, and are undone with these
                derived = line
                continue
            if line.kind == DELETE and not line.undone_by:
                break
            if takes_back is not None:
                reason = self._reason(line, rollout)
                candidates.append(UndoCandidate(line if reason else await self._latest(group, line, follows), reason))
                if not reason:
                    chosen = chosen or candidates[-1].line
            elif not line.undone_by and not line.content_of:
                takes_back = line
            elif not line.undone_by and last_undo is None:
                last_undo = line
            follows = line.revision
            if chosen is not None and len(candidates) >= CANDIDATES_LIMIT:
                break
        if takes_back is not None and derived is not None and not candidates and derived.revision < follows:
            candidates.append(UndoCandidate(derived, self._reason(derived, rollout)))  # nothing was pushed before
            chosen = None if candidates[0].reason else derived
        if takes_back is None or not candidates:
            raise NotFoundError(await self._why_none(content, takes_back))
        shown = tuple(candidates[:CANDIDATES_LIMIT])
        return UndoPlan(group, content.revision, content.etag, takes_back, chosen, shown, last_undo)

    async def _plan_of(self, rollout: Rollout, content: GroupContent) -> UndoPlan | None:
        """Undo of an open rollout: its base, which all others have, whoever rejects it; None if that is lost."""
        line = Line(self._store, rollout.group)
        head, base = await line.find(rollout.head), await line.find(rollout.base)
        if head is None or base is None or not base.content:
            return None
        last_undo = head if head.content_of else None
        shown = (UndoCandidate(base, ""),)
        return UndoPlan(rollout.group, content.revision, content.etag, head, base, shown, last_undo)

    async def _absent(self, group: str) -> NotFoundError:
        lines = await self._store.history(group, limit=2) if group != CONFIG_ENTRIES_LINE else []
        if len(lines) == 2 and lines[0].kind == DELETE:
            hint = f"name a revision to go back to, such as {lines[1].revision}"
            return NotFoundError(f"group {group} was deleted in revision {lines[0].revision}; {hint}")
        return NotFoundError(f"no such group: {group!r}")

    async def note_refusals(self, groups: Iterable[str], *, asks_others: bool = True) -> None:
        """Store how many nodes reject the published content of these groups, if any do. Raises ``StoreError``.

        A push does not wait for other servers: they count as they answered last, a second ago.
        """
        for group in self._fleet.nack_log.open_groups().intersection(groups):  # usually none
            content = self._find_content(group)
            if content is None:
                continue
            wave = (await rollout_status(self._cache, self._fleet, content.group, content.revision)).wave.convergence
            refused, noted = wave.nacked, self._noted.get(group, (0, 0, 0))
            if asks_others:
                self._heard[group] = content.revision, await self.elsewhere(group, content.revision)
            revision, elsewhere = self._heard.get(group, (0, Refusals()))
            if revision != content.revision:
                elsewhere = Refusals()
            refused += elsewhere.refused
            nodes = refused + wave.synced + wave.pending + elsewhere.nodes - elsewhere.refused
            found = content.revision, refused, nodes
            # Also if more nodes accept it: those of a wave may be the first of many.
            if refused and (found > noted or found[0] != noted[0]):
                await self._store.record_outcome(group, content.revision, nodes, refused)
                self._noted[group] = found

    async def watch_refusals(self) -> None:
        """Store the number of rejecting nodes at intervals, since a restart forgets which nodes rejected a revision."""
        while True:
            await asyncio.sleep(WATCH_S)
            try:
                await self.note_refusals(self._fleet.nack_log.open_groups())
            except StoreError as error:
                _log.warning("undo.refusals_not_stored", error_message=str(error))

    def _reason(self, line: RevisionInfo, rollout: Rollout | None) -> str:
        """Why ``undo`` does not go back to a revision; empty if it can. ``rollout`` is the last one of the group."""
        if line.kind == DELETE:
            return "the group was deleted"
        if line.undone_by:
            return f"undone by revision {line.undone_by}"
        if rollout is not None and rollout.never_reached_all(line.revision):
            return "its rollout did not reach all nodes"
        if line.refused > line.nodes * self._share:
            return f"rejected by {line.refused} of {line.nodes} nodes"
        return "" if line.content else "its content is no longer kept"

    async def _latest(self, group: str, line: RevisionInfo, follows: int) -> RevisionInfo:
        """The revision with the same configuration and the latest endpoints that were pushed before ``follows``."""
        for each in await self._store.history(group, before=follows, limit=1):
            if each.revision > line.revision and each.content and not each.undone_by:
                return each
        return line

    async def _why_none(self, content: GroupContent, first: RevisionInfo | None) -> str:
        """Why there is no revision to go back to."""
        newest = await self._store.history(content.group, limit=1)
        if first is not None and newest and newest[0].endpoints_only:
            hint = "name a revision to go back to, endpoints included"
            return f"group {content.group}: only endpoints changed since revision {first.revision}; {hint}"
        return f"group {content.group}: there is no revision before {content.revision} to go back to"


def with_kept_endpoints(change: Rollback, current: GroupContent | None, target: GroupContent) -> Rollback:
    """A rollback in which clusters that exist before and after it keep their present assignments.

    An assignment that does not exist now is restored, since a cluster without an assignment never becomes warm.
    """
    if not change.keeps_endpoints or current is None:
        return change
    clusters = [(key, resource) for key, resource in _clusters(target) if key in current.blob_ids]
    used = {name for _, resource in clusters if (name := assignment_name(resource))}
    keep = (key for key in current.blob_ids if key[0] in ENDPOINT_TYPES and (key in target.blob_ids or key[1] in used))
    return replace(change, keep=tuple(dict.fromkeys((*change.keep, *keep))))


def _clusters(content: GroupContent) -> Iterator[tuple[Key, Resource]]:
    for key in content.blob_ids:
        if key[0] == CLUSTER and (resource := content.get(key)) is not None:
            yield key, resource
