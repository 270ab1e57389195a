"""Decides what a push does to the rollout of its group.

Endpoints and derived resources are facts: they go to all nodes at once. Other content is rolled out where the push or
its group has a plan.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from time import time

from xds.model.errors import GuardedError
from xds.model.resource_type import ENDPOINT_TYPES
from xds.model.units import span_text
from xds.push.content import BlobIds, Key
from xds.push.derived import DerivedResource
from xds.push.groups import GroupTable
from xds.push.request import PlannedChange, PushOptions
from xds.push.rollout_facts import Gather
from xds.push.rollout_step import NO_STEP, ChangedRolloutError, Effect, RolloutStep
from xds.push.rollouts import Rollouts
from xds.rollouts.decide import Facts, usual_errors
from xds.rollouts.plan import DEFAULT_MAX_ERRORS, DEFAULT_PLAN, NAMED, RolloutPlan, read_plan
from xds.rollouts.rollout import Rollout, RolloutState, begin
from xds.store.base import Commit, Drop, Rollback
from xds.tasks.threads import run_sized

WHOLE_REPORTS = 2  # of so many reports that follow each other, the last one measures nothing from before the first
_HASH_BYTES = 16
_FOR_ALL = "endpoints and derived resources go to all nodes at once"


class TakenBackError(GuardedError):
    """The content was taken back by a rollout of the group, and nothing else was pushed since."""

    override = "retry"


class UnknownNodesError(Exception):
    """A rollout would begin, and nobody has asked yet which nodes the group has on all servers.

    Another server may be silent for a second, so nobody asks while a lock is held.
    """

    def __init__(self, group: str, selector: str) -> None:
        super().__init__(f"the nodes of group {group!r} are not known")
        self.group = group
        self.selector = selector


class RolloutPushes:
    """Decides what pushes do to the rollouts of their groups. ``gather`` asks all servers for the nodes of a group.

    ``reports_s`` tells the interval of load reports.
    """

    def __init__(self, rollouts: Rollouts, settings: GroupTable, gather: Gather) -> None:
        self.gather = gather
        self.reports_s: Callable[[], float] = lambda: 0.0
        self._rollouts = rollouts
        self._settings = settings

    async def step(self, planned: PlannedChange, options: PushOptions) -> RolloutStep:
        """What a planned push does. The caller holds the lock of the group.

        Raises ``TakenBackError``, ``ValidationError`` for a plan that cannot be read, ``ChangedRolloutError`` for the
        roll-back of a rollout that is not as it was, and ``UnknownNodesError`` if a rollout begins and its nodes are
        not among the options.
        """
        present = self._rollouts.find(planned.group)
        request = planned.request
        if isinstance(request.change, Drop):
            return NO_STEP
        if request.ends is not None:
            return self._roll_back(planned, present, *request.ends)
        if request.changes_derived_only or not _configures(planned):
            return self._continue(planned, present, options)
        return await self._configure(planned, present, options)

    def replayed(self, commit: Commit) -> RolloutStep:
        """What a push did that was committed before, as far as the last rollout of its group tells."""
        rollout = self._rollouts.find(commit.group)
        if rollout is None:
            return NO_STEP
        if commit.changed and commit.revision == rollout.head:
            return RolloutStep(_beginning(rollout), _load_note(rollout.plan), rollout)
        if rollout.is_open and commit.revision > rollout.head:
            return RolloutStep(Effect.CONTINUES, _FOR_ALL, rollout)
        if rollout.last_head and commit.revision == rollout.last_head + commit.changed:
            return RolloutStep(Effect.ENDED, rollout.reason, rollout)
        return NO_STEP

    def _roll_back(
        self, planned: PlannedChange, present: Rollout | None, before: Rollout, after: Rollout
    ) -> RolloutStep:
        if present != before:
            raise ChangedRolloutError(
                f"the rollout of group {planned.group!r} has changed", planned.expect, planned.group
            )
        return self._written(Effect.ENDED, after.reason, replace(after, last_head=planned.expect))

    def _continue(self, planned: PlannedChange, present: Rollout | None, options: PushOptions) -> RolloutStep:
        """Endpoints, derived resources, or the same content again."""
        if present is None or not present.is_open:
            is_asked = options.rollout is not None and not options.all_at_once and bool(planned.difference)
            return RolloutStep(Effect.ALL_AT_ONCE, "only endpoints change", present) if is_asked else NO_STEP
        if options.all_at_once:
            return self._end(planned, present, options, RolloutState.PROMOTED, "the push is to all nodes at once")
        if planned.difference:
            return RolloutStep(Effect.CONTINUES, _FOR_ALL, present)
        return RolloutStep(rollout=present)

    async def _configure(self, planned: PlannedChange, present: Rollout | None, options: PushOptions) -> RolloutStep:
        running = present if present is not None and present.is_open else None
        plan = await self._plan(planned.group, running, options)
        if plan is None and (present is None or not (present.is_open or present.content)):
            return NO_STEP
        derived = planned.request.derived.after.records
        content = await run_sized(content_of, planned.blob_ids, derived, resources=len(planned.blob_ids))
        if present is not None and (taken_back := _taken_back(present, content)):
            if not options.retry:
                raise TakenBackError(taken_back)
            if not options.all_at_once:
                plan = plan or present.plan
        if running is not None:
            end = self._end_by(planned, running, content, options)
            if end is not None:
                return end
        if plan is None:
            return self._to_all(present)
        return await self._begin(planned, plan, content, present, options)

    def _to_all(self, last: Rollout | None, effect: Effect = Effect.NONE, detail: str = "") -> RolloutStep:
        """Other content for all nodes: what was taken back before may be pushed again."""
        if last is None or not last.content:
            return RolloutStep(effect, detail, last)
        return self._written(effect, detail, replace(last, content=""))

    def _end_by(
        self, planned: PlannedChange, running: Rollout, content: str, options: PushOptions
    ) -> RolloutStep | None:
        """The end of the rollout by a push to all nodes; None for one that is rolled out in its place."""
        change, base = planned.request.change, self._rollouts.served_base(planned.group)
        if isinstance(change, Rollback) and change.to == running.base:
            detail = f"rolled back to revision {change.to}"
            return self._end(planned, running, options, RolloutState.ROLLED_BACK, detail)
        if isinstance(change, Rollback):
            detail = f"rolled back to revision {change.to}, for all nodes"
        elif options.all_at_once:
            detail = "another push is to all nodes at once"
        elif base is not None and content == content_of(base.blob_ids, planned.request.derived.after.records):
            detail = "the content of the base was pushed again"
        else:
            return None
        return self._end(planned, running, options, _outdone(running), detail)

    async def _begin(
        self,
        planned: PlannedChange,
        plan: RolloutPlan,
        content: str,
        present: Rollout | None,
        options: PushOptions,
    ) -> RolloutStep:
        running = present if present is not None and present.is_open else None
        if planned.current is None:
            return self._to_all(present, Effect.ALL_AT_ONCE, "it is the first push to the group")
        nodes = options.nodes.get(planned.group)
        if nodes is None:
            raise UnknownNodesError(planned.group, plan.selector)
        if not nodes.is_followed:
            detail = "no node of the group was seen within the hour"
            if running is not None:
                return self._end(planned, running, options, RolloutState.SUPERSEDED, detail)
            return self._to_all(present, Effect.ALL_AT_ONCE, detail)
        was_judged = running is not None and running.plan.max_errors is not None
        if plan.max_errors is None and (was_judged or _report_requests(nodes.facts)):
            plan = replace(plan, max_errors=DEFAULT_MAX_ERRORS)
        if plan.max_errors is not None and plan.max_errors < 1.0:
            hold_s = max(plan.hold_s, WHOLE_REPORTS * self.reports_s())
            plan = replace(plan, hold_s=hold_s, timeout_s=max(plan.timeout_s, hold_s))
        base = planned.current.revision
        if running is not None and not running.is_promoting and self._rollouts.served_base(planned.group) is not None:
            base = running.base  # else all have the head: somebody has promoted it, or the base is lost
        by, message = _who(options), options.meta.message
        head, connected = planned.expect + 1, nodes.facts.connected
        usual = usual_errors(nodes.facts, running.usual_errors if running is not None else 0.0)
        asked = (planned.group, plan, base, head, connected, time(), by, message, present, usual)
        begun = await run_sized(begin, *asked, resources=len(connected))
        is_nobody = begun.step == NAMED and not begun.connected_n and not nodes.selected
        nobody = "no connected node is among those of the plan" if is_nobody else ""
        notes = (nobody, _endpoints_note(planned), _load_note(plan))
        step = self._written(_beginning(begun), "; ".join(filter(None, notes)), replace(begun, content=content))
        if running is None:
            return replace(step, nodes=nodes)
        superseded = running.end(_outdone(running), f"revision {head} follows", time(), by, message)
        return replace(step, nodes=nodes, superseded=superseded)

    async def _plan(self, group: str, running: Rollout | None, options: PushOptions) -> RolloutPlan | None:
        """The plan of a push: what it says, else that of the group, else that of the rollout that it supersedes.

        Content that was taken back, and is tried again without a plan, has the one that it was rolled out by.
        """
        own = self._settings.get(group).rollout
        if options.all_at_once:
            return None
        if options.rollout is not None:
            return await asyncio.to_thread(read_plan, options.rollout, "/rollout", own or DEFAULT_PLAN)
        return own or (running.plan if running is not None else None)

    def _end(
        self, planned: PlannedChange, running: Rollout, options: PushOptions, state: RolloutState, reason: str
    ) -> RolloutStep:
        ended = running.end(state, reason, time(), _who(options), options.meta.message)
        if state is not RolloutState.ROLLED_BACK:
            ended = replace(ended, content="")
        return self._written(Effect.ENDED, reason, replace(ended, last_head=planned.expect))

    def _written(self, effect: Effect, detail: str, rollout: Rollout) -> RolloutStep:
        return RolloutStep(effect, detail, rollout, self._rollouts.write(rollout))


def _outdone(running: Rollout) -> RolloutState:
    """How a rollout ends with another push. One that somebody has promoted has reached all nodes."""
    return RolloutState.PROMOTED if running.is_promoting else RolloutState.SUPERSEDED


def _beginning(rollout: Rollout) -> Effect:
    """What the push did that began a rollout."""
    return Effect.SUPERSEDED if rollout.has_superseded else Effect.STARTED


def _load_note(plan: RolloutPlan) -> str:
    """What an answer says of a rollout whose requests are not judged."""
    return "no node reports load: failing requests are not seen" if plan.max_errors is None else ""


def _endpoints_note(planned: PlannedChange) -> str:
    """What an answer says of endpoints that are pushed together with what is rolled out."""
    moved = sorted(
        name for url in ENDPOINT_TYPES & planned.difference.keys() for name in planned.difference[url].changed
    )
    more = f" and {len(moved) - 1} more" if len(moved) > 1 else ""
    return f"endpoints of {moved[0]}{more} go to all nodes at once" if moved else ""


def content_of(ids: BlobIds, derived: Mapping[Key, DerivedResource]) -> str:
    """Identifies the pushed configuration of a group: without endpoints and the ``derived`` resources."""
    pushed = (item for item in ids.items() if item[0][0] not in ENDPOINT_TYPES and item[0] not in derived)
    lines = sorted(f"{type_url} {name} {blob}\n" for (type_url, name), blob in pushed)
    return blake2b("".join(lines).encode("utf-8", "surrogatepass"), digest_size=_HASH_BYTES).hexdigest()


def _taken_back(last: Rollout, content: str) -> str:
    """Why content is refused that the last rollout of its group has taken back; empty if it is not."""
    now_s = time()
    if last.content != content or not last.refuses(now_s):
        return ""
    age = span_text(max(now_s - (last.ended_s or 0.0), 0.0))
    return f"this content was taken back {age} ago, from revision {last.head}: {last.reason}"


def _report_requests(facts: Facts) -> bool:
    """Whether proxies report load, and have had requests at all: those without could never be judged."""
    return any(count is not None and count.attempted > 0 for count in (facts.requests, facts.others))


def _configures(planned: PlannedChange) -> bool:
    """Whether a change is more than one of endpoints."""
    return any(type_url not in ENDPOINT_TYPES for type_url in planned.difference)


def _who(options: PushOptions) -> str:
    return options.meta.actor or options.meta.author
