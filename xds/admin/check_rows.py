"""The rows of a check of the server: what an operator would look at first, each with its state and the next command.

``ok`` needs nothing, ``warning`` a look, ``failed`` a hand. docs/operations.md has a section for each row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import islice
from time import time

from xds.access.caller import SERVER
from xds.admin.dependencies import Dependencies, ServerCheck
from xds.admin.failing_clusters import failure_text, find_failing_clusters, is_outage
from xds.admin.models.checks import CheckedRow
from xds.fleet.refused_streams import MINUTE_S, RECENT_S
from xds.fleet.state import NackState
from xds.model.units import span_text
from xds.push.certificates import PushedCertificate
from xds.push.directory import RefusedFiles
from xds.rollouts.rollout import Rollout, RolloutState
from xds.store.base import StoreError
from xds.tasks.lifecycle import Phase

OK, WARNING, FAILED = "ok", "warning", "failed"
NAMED_LIMIT = 3
EXPIRY_DAYS = 14
CLOCK_S = 10.0  # by which the clock of a server may differ from the database's
DAY_S = 86_400
GUIDE = "docs/operations.md#"  # of the repository; an installed package does not have it

Finding = tuple[str, str]
"""State and detail of a row."""


async def check(deps: Dependencies) -> list[CheckedRow]:
    """All rows, in their order. A row whose facts cannot be read has failed."""
    rows = []
    for name, (find, next_step) in _ROWS.items():
        if name == "members" and not deps.members().is_shared:
            continue  # there is only this one
        try:
            state, detail = await find(deps)
        except StoreError as error:
            state, detail = FAILED, str(error)
        rows.append(_row(name, state, detail, next_step))
    *others, certificates = rows
    return [*others, *(_of_feature(each) for feature in deps.features for each in feature.checks()), certificates]


def _of_feature(check: ServerCheck) -> CheckedRow:
    is_well, detail = check.find()
    return _row(check.name, OK if is_well else WARNING, detail, check.next)


def _row(name: str, state: str, detail: str, next_step: str) -> CheckedRow:
    return CheckedRow(check=name, state=state, detail=detail, next=next_step, see=f"{GUIDE}check-{name}")


async def _ready(deps: Dependencies) -> Finding:
    phase = deps.phase()
    return (OK if phase is Phase.READY else FAILED), phase.value


async def _store(deps: Dependencies) -> Finding:
    """Whether the store keeps what is pushed, and can be read: snapshots are served from memory. Raises."""
    condition = deps.condition()
    wrong = condition.wrong or str(deps.publisher.following.lag())
    if wrong:
        return FAILED, wrong
    groups = deps.publisher.groups.all()
    if not groups:
        return OK, "has no group yet"
    group = groups[0].group
    (head,) = await deps.publisher.history.lines(group, None, 1)
    if condition.copy:
        return WARNING, condition.copy
    return OK, f"reads: group {group} is at revision {head.revision}"


async def _members(deps: Dependencies) -> Finding:
    """Whether the servers of the database know each other, and one of them does what only one does."""
    known = deps.members()
    if known.problem:
        return FAILED, known.problem
    servers = sorted(each.id for each in (known.me, *known.others))
    if not known.holder:
        return WARNING, f"{', '.join(servers)}: none holds the lease"
    ahead_s = time() - known.now_s
    if abs(ahead_s) > CLOCK_S:
        text = f"the clock is {abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} that of the database"
        return WARNING, f"{text}: drains of endpoints end at another time than was asked for"
    return OK, f"{', '.join(servers)}: {known.holder} holds the lease"


async def _streams(deps: Dependencies) -> Finding:
    """Whether proxies reach the server and are turned away."""
    summary = deps.refused.summary(time())
    return (WARNING, summary) if summary else (OK, f"none refused in {RECENT_S // MINUTE_S} min")


async def _nacks(deps: Dependencies) -> Finding:
    records = list(deps.fleet.nack_log.select(state=NackState.OPEN))
    if not records:
        return OK, "none open"
    nodes = sorted({record.node for record in records})
    more = "" if len(nodes) <= NAMED_LIMIT else " ..."
    return WARNING, f"{len(records)} open, by {', '.join(nodes[:NAMED_LIMIT])}{more}"


async def _rollouts(deps: Dependencies) -> Finding:
    """Whether a careful rollout waits for a person, or the server took one back within a day."""
    rollouts, now = deps.publisher.rollouts.all(), time()
    waiting = [each for each in rollouts if each.state in (RolloutState.HELD, RolloutState.PAUSED)]
    waiting += [each for each in rollouts if each.by == SERVER and each.refuses(now)]
    if waiting:
        return WARNING, _listed([_rollout_text(each) for each in waiting[:NAMED_LIMIT]], len(waiting))
    running = [each for each in rollouts if each.is_open]
    return OK, _listed([_rollout_text(each) for each in running[:NAMED_LIMIT]], len(running)) or "none is going on"


def _rollout_text(rollout: Rollout) -> str:
    """``group edge: revision 43 held at wave 1 of 4: edge-3 rejected clusters/web``."""
    at = f" at wave {rollout.wave + 1} of {len(rollout.plan.steps)}" if rollout.is_open else ""
    why = f": {rollout.reason}" if rollout.reason else ""
    return f"group {rollout.group}: revision {rollout.head} {rollout.state.value.replace('_', ' ')}{at}{why}"


async def _load(deps: Dependencies) -> Finding:
    """Whether a cluster fails most of its requests; an outage has failed. Raises ``StoreError``."""
    failing = await find_failing_clusters(deps)
    if not failing:
        return OK, "no cluster fails most of its requests"
    texts = [await failure_text(deps, each) for each in failing[:NAMED_LIMIT]]
    return (FAILED if any(map(is_outage, failing)) else WARNING), _listed(texts, len(failing))


async def _endpoints(deps: Dependencies) -> Finding:
    """Whether a cluster that connected proxies use has an assignment without an endpoint that takes requests."""
    unserved = await asyncio.to_thread(deps.publisher.live.unserved.of, sorted(deps.fleet.connected_groups()))
    empty = [f"{group}/{cluster}" for group, clusters in unserved.items() for cluster in clusters]
    if not empty:
        return OK, "every cluster in use has an endpoint that serves"
    clusters = "cluster" if len(empty) == 1 else "clusters"
    return WARNING, f"{len(empty)} {clusters} in use without a serving endpoint: {_listed(empty, len(empty), ', ')}"


async def _watch(deps: Dependencies) -> Finding:
    watched = deps.watched()
    if watched is None:
        return OK, "no directory is watched"
    if not watched.holds_lease():
        return OK, f"{watched.root}: the server that holds the lease applies it (xds members), if it has this directory"
    if not watched.refused:
        return OK, f"{watched.root} is applied"
    texts = [_refused_text(each) for each in islice(watched.refused, 1)]
    return WARNING, _listed(texts, len(watched.refused))


def _refused_text(refused: RefusedFiles) -> str:
    """Files that cannot be applied, since when, and why."""
    at = refused.source or ", ".join(refused.files)
    others = f" (and {refused.findings - 1} more)" if refused.findings > 1 else ""
    return f"{at} refused {span_text(max(0.0, time() - refused.since_s))} ago: {refused.detail}{others}"


async def _certificates(deps: Dependencies) -> Finding:
    """Whether a certificate that was pushed expires soon."""
    certificates = sorted(await asyncio.to_thread(deps.publisher.certificates.all), key=lambda each: each.not_after)
    if not certificates:
        return OK, "none pushed"
    now = time()
    soon = [each for each in certificates if each.not_after - now < EXPIRY_DAYS * DAY_S]
    if not soon:
        first = span_text(certificates[0].not_after - now)
        return OK, f"none of the pushed certificates expires within {EXPIRY_DAYS}d; the first expires in {first}"
    return WARNING, _listed([_certificate_text(each, now) for each in soon[:NAMED_LIMIT]], len(soon))


def _certificate_text(certificate: PushedCertificate, now: float) -> str:
    """``group edge: secrets/web (web.example) expires in 5d``."""
    names = f" ({', '.join(certificate.names)})" if certificate.names else ""
    left_s = certificate.not_after - now
    left = f"expires in {span_text(left_s)}" if left_s > 0 else "has expired"
    return f"group {certificate.group}: {certificate.type}/{certificate.name}{names} {left}"


def _listed(texts: Sequence[str], total: int, between: str = "; ") -> str:
    """Some texts, and how many more there are."""
    more = f" (and {total - NAMED_LIMIT} more)" if total > NAMED_LIMIT else ""
    if len(texts) < min(total, NAMED_LIMIT):
        more = f" (and {total - len(texts)} more)"
    return between.join(texts[:NAMED_LIMIT]) + more


_ROWS: Mapping[str, tuple[Callable[[Dependencies], Awaitable[Finding]], str]] = {
    "ready": (_ready, "xds check --wait"),
    "store": (_store, "the server's log"),
    "members": (_members, "xds members"),
    "streams": (_streams, "xds watch --kinds auth --since 1h --no-follow"),
    "nacks": (_nacks, "xds nacks --state open"),
    "rollouts": (_rollouts, "xds rollout status GROUP"),
    "load": (_load, "xds load"),
    "endpoints": (_endpoints, "xds endpoints list"),
    "watch": (_watch, "xds watch --kinds watch --since 1h --no-follow"),
    "certificates": (_certificates, "xds describe group GROUP"),
}
