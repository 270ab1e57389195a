"""What ``undo`` goes back to: never to what was undone or refused before (spec/first_hour.md A6).

What a group is served came about by a line of revisions, its rollbacks followed (`RevisionInfo.undone_by`). ``undo``
takes back the last of them that is a change of configuration; those that changed endpoints alone stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace

import structlog

from xds.control.content import Content, Key
from xds.control.policy_review import assignment_name
from xds.control.waiting import PushLog
from xds.fleet.fleet import Fleet
from xds.fleet.state import NackState
from xds.model.errors import NotFoundError
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT_TYPES
from xds.store.base import DELETE, RevisionInfo, Rollback, Store, StoreError

REFUSED_SHARE = 0.1
WATCH_S = 1.0
CANDIDATES_LIMIT = 10
PAGE = 100
PAGES_LIMIT = 100  # a history is looked through so far

_log = structlog.get_logger(logger_name="xds.control.undo")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A revision that could be gone back to; ``reason`` says why it is not chosen, empty for one that can be."""

    line: RevisionInfo
    reason: str


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """What taking the last change of configuration back comes to.

    ``takes_back`` is that change, ``to`` the revision to go back to; None where every earlier one was undone, or
    refused, or is not kept: then a person has to choose. ``candidates`` are the newest earlier ones.
    """

    group: str
    revision: int
    etag: str
    takes_back: RevisionInfo
    to: RevisionInfo | None
    candidates: tuple[Candidate, ...]


class Undo:
    """Plans, from a store's history and from how far pushes have come.

    A revision that more than ``refused_share`` of its nodes refused is not gone back to.
    """

    def __init__(self, store: Store, fleet: Fleet, pushes: PushLog, refused_share: float) -> None:
        self._store = store
        self._fleet = fleet
        self._pushes = pushes
        self._share = refused_share
        self._noted: dict[str, tuple[int, int]] = {}  # revision and refusals by group, as they were stored last

    async def plan(self, held: Content) -> UndoPlan:
        """What ``undo`` would do with a group that holds this.

        Raises ``NotFoundError`` where there is nothing before, ``StoreError``.
        """
        group = held.group
        await self.note_refusals(group)
        takes_back, chosen = None, None
        candidates: list[Candidate] = []
        follows = held.revision + 1
        async for line in self._configured(group, follows):
            if line.kind == DELETE and not line.undone_by:
                break
            if takes_back is not None:
                reason = self._reason(line)
                candidates.append(Candidate(line if reason else await self._latest(group, line, follows), reason))
                if not reason:
                    chosen = chosen or candidates[-1].line
            elif not line.undone_by and not line.content_of:
                takes_back = line
            follows = line.revision
            if chosen is not None and len(candidates) >= CANDIDATES_LIMIT:
                break
        if takes_back is None or not candidates:
            raise NotFoundError(f"group {group}: there is no revision before {held.revision} to go back to")
        shown = tuple(candidates[:CANDIDATES_LIMIT])
        return UndoPlan(group, held.revision, held.etag, takes_back, chosen, shown)

    async def note_refusals(self, group: str) -> None:
        """Store how many nodes refuse the latest push to a group, where some do. Raises ``StoreError``."""
        revision = self._pushes.latest(group)
        if not revision or not self._fleet.nack_log:  # most often: no refusal is open
            return
        found = await self._pushes.progress(group, revision)
        before = self._noted.get(group, (0, 0))
        if found is not None and found.nacked > (before[1] if before[0] == revision else 0):
            await self._store.tally(group, revision, found.total, found.nacked)
            self._noted[group] = (revision, found.nacked)

    async def watch_refusals(self) -> None:
        """Store, while nodes refuse something, how many do: after a restart that is all that is known of it."""
        while True:
            await asyncio.sleep(WATCH_S)
            if not self._fleet.nack_log:
                continue
            for group in sorted({record.group for record in self._fleet.nacks(state=NackState.OPEN)}):
                try:
                    await self.note_refusals(group)
                except StoreError as error:
                    _log.warning("undo.refusals_not_stored", group=group, error_message=str(error))

    def _reason(self, line: RevisionInfo) -> str:
        """Why a revision is not gone back to; empty where it can be."""
        if line.kind == DELETE:
            return "the group was deleted"
        if line.undone_by:
            return f"undone by revision {line.undone_by}"
        if line.refused > line.nodes * self._share:
            return f"refused by {line.refused} of {line.nodes} nodes"
        return "" if line.content else "its content is no longer kept"

    async def _latest(self, group: str, line: RevisionInfo, follows: int) -> RevisionInfo:
        """The revision with a line's configuration and the latest endpoints that were pushed before ``follows``."""
        for each in await self._store.history(group, before=follows, limit=1):
            if each.revision > line.revision and each.content and not each.undone_by:
                return each
        return line

    async def _configured(self, group: str, before: int) -> AsyncIterator[RevisionInfo]:
        """The history without pushes of endpoints alone, the newest first."""
        for _ in range(PAGES_LIMIT):
            lines = await self._store.history(group, before=before, limit=PAGE, endpoints=False)
            for line in lines:
                yield line
            if len(lines) < PAGE:
                return
            before = lines[-1].revision


def keeping(change: Rollback, held: Content | None, target: Content) -> Rollback:
    """A rollback that leaves the assignments of the present to clusters that are there before and after it.

    An assignment that is not there now comes back: a cluster without one never gets warm.
    """
    if not change.keeps_endpoints or held is None:
        return replace(change, keep=())
    clusters = [(key, resource) for key, resource in _clusters(target) if key in held.blob_ids]
    named = {name for _, resource in clusters if (name := assignment_name(resource))}
    keep = (key for key in held.blob_ids if key[0] in ENDPOINT_TYPES and (key in target.blob_ids or key[1] in named))
    return replace(change, keep=tuple(keep))


def _clusters(content: Content) -> Iterator[tuple[Key, Resource]]:
    for key in content.blob_ids:
        if key[0] == CLUSTER and (resource := content.get(key)) is not None:
            yield key, resource
