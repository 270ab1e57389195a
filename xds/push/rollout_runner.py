"""Takes the steps of rollouts: gathers facts, decides, and acts. Of several servers the holder of the lease does it.

A look at a group is taken when its nodes have answered something, and each second; never so often that looking takes
more than a tenth of the time.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from time import monotonic, time

import structlog

from xds.access.caller import SERVER, Caller
from xds.fleet.fleet import Fleet
from xds.model.errors import ConflictError, XdsError
from xds.push.rollout_facts import Gather
from xds.push.rollouts import Rollouts
from xds.rollouts.decide import decide
from xds.rollouts.rollout import Rollout, RolloutState
from xds.store.base import StoreError
from xds.tasks.lifecycle import BackgroundTask, HoldsLease, alone
from xds.tasks.threads import run_sized

TICK_S = 1.0
POLL_S = 0.05
_SHARE = 10  # looking takes at most this part of the time

_log = structlog.get_logger(logger_name="xds.push.rollouts")


class RolloutRunner:
    """The task that acts. ``failures`` counts steps that a bug has ended."""

    def __init__(self, rollouts: Rollouts, fleet: Fleet, gather: Gather, holds_lease: HoldsLease = alone) -> None:
        self.failures = 0
        self._rollouts = rollouts
        self._fleet = fleet
        self._gather = gather
        self._holds_lease = holds_lease
        self._refused: dict[str, str] = {}  # by group: what was served when its roll-back was refused
        self._task = BackgroundTask()

    def start(self) -> None:
        """Start."""
        self._task.start(self._run())

    async def close(self) -> None:
        """Stop. A step in progress may or may not be taken; the next start repeats the decision."""
        await self._task.stop()

    async def _run(self) -> None:
        while True:
            if not self._rollouts.open():
                self._rollouts.changed.clear()
                await self._rollouts.changed.wait()
            began_s, seen = monotonic(), self._fleet.changes
            self._rollouts.changed.clear()
            if self._holds_lease():
                await self.look()
            else:
                self._rollouts.forget_progress()
            await self._pause(began_s, seen)

    async def _pause(self, began_s: float, seen: int) -> None:
        """Wait until there is news, or a tick has passed."""
        earliest_s = monotonic() + max(POLL_S, (monotonic() - began_s) * _SHARE)
        while (now_s := monotonic()) < began_s + TICK_S or now_s < earliest_s:
            has_news = self._fleet.changes != seen or self._rollouts.changed.is_set()
            if has_news and now_s >= earliest_s:
                return
            await asyncio.sleep(POLL_S)

    async def look(self) -> None:
        """Take the next step of each open rollout, if it is due."""
        rollouts = self._rollouts.open()
        self._refused = {each.group: self._refused[each.group] for each in rollouts if each.group in self._refused}
        await asyncio.gather(*map(self._attempt, rollouts))

    async def _attempt(self, rollout: Rollout) -> None:
        try:
            await self._step(rollout)
        except (StoreError, ConflictError) as error:  # the next look decides again
            _log.warning("rollout.later", group=rollout.group, error_message=str(error))
        except Exception as error:  # a bug must not end the task
            self.failures += 1
            _log.exception("rollout.failed", group=rollout.group, error_message=str(error))

    async def _step(self, rollout: Rollout) -> None:
        gathered = await self._gather(rollout.group, "")
        present = self._rollouts.find(rollout.group)
        if present != rollout or present is None:
            return  # somebody has acted meanwhile
        size = len(gathered.facts.connected)  # the next wave of ten thousand nodes takes some tens of milliseconds
        after = await run_sized(decide, present, gathered.facts, time(), resources=size)
        if after == present:
            self._rollouts.note_progress(after)
        elif after.state is not RolloutState.ROLLED_BACK:
            await self._rollouts.step(present, after, _action(present, after))
        elif present.state is not RolloutState.HELD or self._refused.get(rollout.group) != gathered.serves:
            await self._roll_back(present, after, gathered.serves)

    async def _roll_back(self, before: Rollout, after: Rollout, serves: str) -> None:
        try:
            await self._rollouts.roll_back(before, replace(after, by=SERVER, message=""), Caller(SERVER))
        except (StoreError, ConflictError):
            raise
        except XdsError as error:  # such as a name of the base that a config entry has now: a person has to decide
            self._refused[before.group] = serves
            reason = f"{after.reason}; it cannot be taken back: {error}"
            held = replace(before, state=RolloutState.HELD, reason=reason)
            if before.state is not RolloutState.HELD:
                await self._rollouts.step(before, held, "held")


def _action(before: Rollout, after: Rollout) -> str:
    """What events call a step; empty for one that nobody needs to know."""
    if after.state is not before.state:
        return after.state.value
    return "wave" if after.wave != before.wave else ""
