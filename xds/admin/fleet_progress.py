"""How many nodes have a push, over all servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from time import monotonic
from typing import Any
from urllib.parse import quote

from fastapi import Request

from xds.admin.dependencies import Dependencies
from xds.admin.gathering import asks_others, gather, gathered_of, server_asked
from xds.admin.merged_pages import summed
from xds.admin.models.pushes import GroupRollout, PushProgress
from xds.admin.models.reading import read_object
from xds.admin.models.writing import document_of
from xds.admin.other_servers import OtherServers
from xds.fleet.convergence import SHOWN_LIMIT
from xds.fleet.state import Convergence
from xds.push.progress import PushShare, PushVerdict, verdict_of
from xds.push.undo import Refusals

Json = dict[str, Any]

ASK_EVERY_S = 0.25  # while a caller waits
COUNTS = ("synced", "pending", "nacked")
_SHARE = ("is_known", "is_behind")


async def progress_of_all(
    deps: Dependencies, request: Request, group: str, revision: int, wait_s: float
) -> PushProgress | None:
    """The progress of a push; waits until it is not pending any more, for ``wait_s`` at most.

    None for a push that no server knows, because it is too old, or older than the last restart of all.
    """
    pushes = deps.publisher.groups.pushes
    if not asks_others(deps, request):
        reached = await pushes.wait_for_verdict(group, revision, wait_s)
        return progress_of(reached) if reached is not None else None
    end = monotonic() + wait_s
    while True:
        own = document_of_share(await pushes.share(group, revision))
        others = await gather(deps, request, share_path(group, revision), "", read=_read_share)
        shares = {deps.others.me: own, **others.documents}
        if not any(each["is_known"] for each in shares.values()):
            return None
        progress = _merged(shares, others.partial)
        if progress.verdict != PushVerdict.PENDING or monotonic() >= end:
            return progress
        await asyncio.sleep(min(ASK_EVERY_S, max(0.0, end - monotonic())))


class NodesElsewhere:
    """Counts the nodes of the other servers; those of a silent one are left out."""

    def __init__(self, others: OtherServers) -> None:
        self._others = others

    async def refusals(self, group: str, revision: int) -> Refusals:
        """How many have a revision, or are to have it, and how many reject it."""
        if not self._others.names():
            return Refusals()
        asked = server_asked("GET", share_path(group, revision))
        answers = await gathered_of(await self._others.ask(asked), _read_share)
        shares = [share for share in answers.documents.values() if share["is_known"]]
        return Refusals(sum(share[name] for share in shares for name in COUNTS), sum(each["nacked"] for each in shares))


def share_path(group: str, revision: int) -> str:
    """The path, below the prefix, of what one server knows of a push."""
    return f"/groups/{quote(group, safe='')}/revisions/{revision}/share"


def document_of_share(share: PushShare) -> Json:
    """What one server knows of a push, for another one."""
    document: Json = document_of(progress_of(share.convergence))
    return {**document, "is_known": share.is_known, "is_behind": share.is_behind}


def _read_share(share: Json) -> Json:
    """Raises one of ``FORM_ERRORS`` for a document of another form."""
    _added((share, share))
    return {**share, **{name: bool(share[name]) for name in _SHARE}}


def progress_of(convergence: Convergence) -> PushProgress:
    """The progress of a push with its verdict."""
    return PushProgress.from_domain(convergence, verdict_of(convergence).value)


def _merged(shares: Mapping[str, Json], silent: Sequence[str]) -> PushProgress:
    """The progress over all servers: without what one of them would tell, it is not done."""
    partial = sorted((*silent, *(server for server, share in shares.items() if share["is_behind"])))
    merged = _added(shares.values())
    verdict = verdict_of(Convergence(*(merged[name] for name in COUNTS)))
    if partial and verdict is PushVerdict.DONE:
        verdict = PushVerdict.PENDING
    return read_object(PushProgress, {**merged, "verdict": verdict.value, "partial": partial})


def _added(documents: Iterable[Json]) -> Json:
    """Counts added up, and the beginning of the joined lists."""
    found = list(documents)
    added: Json = {name: sum(each[name] for each in found) for name in COUNTS}
    for name in ("pending_nodes", "nacks", "held"):
        added[name] = [item for each in found for item in each[name]][:SHOWN_LIMIT]
    return added


async def rollout_of_all(deps: Dependencies, request: Request, group: str) -> Json:
    """The rollout of a group. The nodes of a server that does not serve its latest revision yet are pending."""
    status, rollout = await deps.publisher.groups.rollout(group), deps.publisher.rollouts.find(group)
    own: Json = document_of(GroupRollout.from_domain(status, rollout))
    others = await gather(deps, request)
    if others.is_alone:
        return own
    found = [own, *others.documents.values()]
    revision = max(each["revision"] for each in found)
    found = [each if each["revision"] == revision else _all_pending(each) for each in found]
    types = sorted({alias for each in found for alias in each["types"]})
    added = {alias: summed(each["types"].get(alias, {}) for each in found) for alias in types}
    # The server with the lease knows these.
    judged: Json = {name: each[name] for each in found for name in ("errors", "unknown") if name in each}
    nodes = {"nodes": summed(each["nodes"] for each in found)} if all("nodes" in each for each in found) else {}
    return {**own, **_added(found), "revision": revision, "types": added, **nodes, **judged, **others.marks}


def _all_pending_of(counts: Json) -> Json:
    """The counts of a type when all its nodes are pending: none has ACKed the base either."""
    at_base = {"at_base": 0} if "at_base" in counts else {}
    return {**counts, **_pending(counts), **at_base}


def _all_pending(rollout: Json) -> Json:
    """The rollout of a server that serves an earlier revision."""
    return {
        **rollout,
        **_pending(rollout),
        "types": {alias: _all_pending_of(counts) for alias, counts in rollout["types"].items()},
        "nacks": [],
    }


def _pending(counts: Mapping[str, int]) -> dict[str, int]:
    return {"synced": 0, "nacked": 0, "pending": sum(counts[name] for name in COUNTS)}
