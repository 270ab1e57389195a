"""Records the outcome of each push in the log, in the event log, and in counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from time import time
from typing import NoReturn

import structlog

from xds.access.caller import SERVER, UNKNOWN_CALLER, Caller
from xds.fleet.event_log import EventKind, EventLog
from xds.model.errors import ConflictError, NotFoundError, ValidationError, XdsError
from xds.model.snapshot import Change
from xds.push.request import ChangeError
from xds.rollouts.rollout import Rollout, RolloutState
from xds.store.base import Delta, Drop, FullSet, GroupChange, Meta, Rollback, StoreError

_log = structlog.get_logger(logger_name="xds.push.publisher")

_TRIGGERS: Mapping[type, str] = {FullSet: "snapshot", Delta: "resource", Rollback: "rollback", Drop: "delete_group"}
BY_HAND, BY_ROLLOUT = "manual", "rollout"  # reasons of rollbacks
RESULTS = ("committed", "unchanged", "invalid", "conflict", "not_found", "refused", "failed")


class PushJournal:
    """``commits`` counts by result, ``triggers`` by the cause of waking streams, ``rollbacks`` by reason:
    ``rollout`` for those of the server itself.

    ``rollouts`` counts those that ended, by result.
    """

    def __init__(self, events: EventLog) -> None:
        # Each result starts at 0: an alert sees no increase in a series that begins with 1.
        self.commits: Counter[str] = Counter(dict.fromkeys(RESULTS, 0))
        self.triggers: Counter[str] = Counter()
        self.rollbacks: Counter[str] = Counter({BY_HAND: 0, BY_ROLLOUT: 0})
        self.rollouts: Counter[str] = Counter({state.value: 0 for state in RolloutState if not state.is_open})
        self._events = events

    def committed(
        self,
        group: str,
        revision: int,
        change: GroupChange,
        meta: Meta,
        difference: Mapping[str, Change],
        resources_n: int,
        *,
        new: bool,
        is_derived: bool = False,
    ) -> None:
        """A push is committed. ``difference`` is by type label; ``new``: the push created the group.

        ``is_derived``: a change of documents of a feature changed the group, not a push.
        """
        self.commits["committed"] += not is_derived
        self.triggers["lowered" if is_derived else _TRIGGERS[type(change)]] += 1
        counts = {
            "added": sum(len(each.added) for each in difference.values()),
            "changed": sum(len(each.changed) for each in difference.values()),
            "removed": sum(len(each.removed) for each in difference.values()),
        }
        about = {"group": group, "revision": revision, "actor": meta.actor, "author": meta.author}
        _log.info("snapshot.committed", resources_n=resources_n, **about, **counts)
        if isinstance(change, Rollback):
            self.rollbacks[BY_ROLLOUT if meta.actor == SERVER else BY_HAND] += 1
            _log.info("rollback", to=change.to, **about)
        self._record_events(group, revision, change, meta, new, counts)

    def rolled_out(self, action: str, rollout: Rollout) -> None:
        """A careful rollout took a step, or has ended."""
        wave = {"wave": rollout.wave + 1, "waves": len(rollout.plan.steps)}
        details: dict[str, str | int] = {"base": rollout.base, **wave, **({"by": rollout.by} if rollout.by else {})}
        group, head, reason = rollout.group, rollout.head, rollout.reason or rollout.message
        self._events.record(
            EventKind.ROLLOUT, action, time(), group=group, revision=head, message=reason, details=details
        )
        _log.info(f"rollout.{action}", group=group, revision=head, base=rollout.base, **wave, reason=reason)
        if not rollout.is_open:
            self.rollouts[rollout.state.value] += 1

    def configured(self, group: str, now: float, by: Caller = UNKNOWN_CALLER) -> None:
        """The settings of a group changed, so that nodes may join or leave it."""
        self.triggers["settings"] += 1
        self._events.record(EventKind.GROUP, "configured", now, group=group, details=by.names())

    def released(self, group: str, node: str, nodes_n: int, counts: Mapping[str, int], by: Caller, now: float) -> None:
        """An operator removed the lingering resources of a node, or of a group (``node`` empty). ``counts`` by type."""
        details: dict[str, str | int] = {**by.names(), "nodes": nodes_n, **counts}
        self._events.record(EventKind.ORDER, "released", now, group=group, node=node, details=details)
        about = {"group": group, "node_id": node, "actor": by.actor, "author": by.author}
        _log.info("lingering.released", **about, nodes_n=nodes_n, resources=dict(counts))

    def files_refused(self, group: str, source: str, detail: str, findings_n: int, now: float) -> None:
        """Files of a watched directory cannot be applied. ``group`` is empty if the directory cannot be read."""
        details: dict[str, str | int] = {"source": source, "findings": findings_n}
        self._events.record(EventKind.WATCH, "refused", now, group=group, message=detail, details=details)
        _log.warning("watch.refused", group=group, source=source, error_message=detail, findings_n=findings_n)

    def files_applied(self, group: str, now: float) -> None:
        """Files of a watched directory that were refused before are now applied, or deleted."""
        self._events.record(EventKind.WATCH, "applied", now, group=group)

    def restored(
        self, counts: Mapping[str, int], release: str, watched: Collection[str], by: Caller, now: float
    ) -> None:
        """A backup made by ``release`` was restored. ``counts`` are records by kind.

        The files of the groups in ``watched`` are applied again.
        """
        self.triggers["restore"] += 1
        details: dict[str, str | int] = {**by.names(), "release": release, **counts}
        if watched:
            details["watched_groups"] = len(watched)
            _log.warning("directory.applied_again", groups=sorted(watched))
        self._events.record(EventKind.STORE, "restored", now, details=details)
        _log.info("backup.restored", **details)

    def unchanged(self, *, is_derived: bool = False) -> None:
        """A push changed nothing and made no revision."""
        self.commits["unchanged"] += not is_derived

    def caught_up(self, group: str, revision: int) -> None:
        """A commit whose acknowledgement was lost is now published."""
        self.triggers["catch_up"] += 1
        _log.info("snapshot.caught_up", group=group, revision=revision)

    def refused(self, group: str, error: XdsError, meta: Meta) -> NoReturn:
        """A push was rejected. Raises ``error`` again."""
        if isinstance(error, ValidationError):
            raise error  # the caller records it with ``invalid``, like invalid resources that are found before a push
        result = _result(error)
        self.commits[result] += 1
        about = {"group": group, "actor": meta.actor, "author": meta.author}
        cause = error.cause if isinstance(error, ChangeError) else error  # the text of the former repeats the group
        _log.info("snapshot.rejected", **about, error_code=result, error_message=str(cause))
        raise error

    def invalid(self, group: str, error: ValidationError) -> None:
        """The pushed resources are invalid. ``group`` is empty for a transaction."""
        self.commits["invalid"] += 1
        first = str(error.violations[0]) if error.violations else ""
        findings = {"findings_n": len(error.violations), "error_message": first}
        _log.info("snapshot.rejected", group=group, error_code="invalid", **findings)

    def _record_events(
        self, group: str, revision: int, change: GroupChange, meta: Meta, new: bool, counts: Mapping[str, int]
    ) -> None:
        record, at, text = self._events.record, meta.time_s, meta.message
        author: dict[str, str | int] = {**Caller(meta.actor, meta.author).names()}
        if isinstance(change, Drop):
            record(EventKind.GROUP, "deleted", at, group=group, revision=revision, message=text, details=author)
            return
        if new:
            record(EventKind.GROUP, "created", at, group=group, revision=revision, details=author)
        if isinstance(change, Rollback):
            to = author | {"to": change.to, **({"keeps_endpoints": 1} if change.keeps_endpoints else {})}
            record(EventKind.ROLLBACK, "done", at, group=group, revision=revision, message=text, details=to)
        details = {**author, **counts}
        record(EventKind.PUSH, "committed", at, group=group, revision=revision, message=text, details=details)


def _result(error: XdsError) -> str:
    if isinstance(error, ChangeError):
        return _result(error.cause)
    if isinstance(error, ConflictError):
        return "conflict"
    if isinstance(error, NotFoundError):
        return "not_found"
    return "failed" if isinstance(error, StoreError) else "refused"
