"""Careful rollouts as text, and the wait for the end of one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from xds.calls import groups
from xds.cli.client import Client
from xds.cli.errors import CommandError, Exit
from xds.cli.output import counted, one_line, say
from xds.cli.table import Column, TableLayout
from xds.cli.wait import POLL_S, WAIT_S, held_lines, wait_for
from xds.model.units import span_text

Json = dict[str, Any]

OPEN = frozenset({"running", "paused", "held"})
NO_ROLLOUTS = "no careful rollout runs: `xds apply --canary` begins one"
PROMOTED, HELD, RUNNING = "promoted", "held", "running"

ROLLOUTS = TableLayout(
    name="group",
    columns=(
        Column("GROUP", "group"),
        Column("STATE", "state", lambda item: "bad" if item["state"] == HELD else ""),
        Column("WAVE", lambda item: f"{item['wave']} of {item['waves']} ({item['size']})"),
        Column("HEAD", "head"),
        Column("BASE", "base"),
        Column("AGE", "began", is_time=True),
        Column("BY", lambda item: item.get("by", "")),
        Column("REASON", lambda item: item.get("reason") or item.get("why", ""), is_prose=True),
    ),
    in_order="group",
)


def rollout_line(item: Json) -> str:
    """A rollout on a line: its revisions, its wave, the nodes of the wave, and what comes next."""
    head = f"group {item['group']}: revision {item['head']} in place of {item['base']}"
    if item["state"] not in OPEN:
        state, reason = item["state"].replace("_", " "), item.get("reason", "")
        return f"{head}: {reason if reason.startswith(state) else f'{state}: {reason}'}"
    parts = [f"{head}, wave {item['wave']} of {item['waves']} ({item['size']})", *_nodes(item)]
    state = "" if item["state"] == RUNNING else f"; {item['state']}{_because(item)}"
    unknown = f"; cannot be judged yet: {item['unknown']}" if item.get("unknown") else ""
    return f"{': '.join(parts)}{_time_left(item)}{_errors(item)}{unknown}{state}"


def is_told(status: Json) -> bool:
    """Whether the last rollout of a group is worth a line: it goes on, or is about the newest revision, or the last."""
    return status.get("state") in OPEN or ("head" in status and status["revision"] - status["head"] <= 1)


def _because(item: Json) -> str:
    reason = item.get("reason") or item.get("why")
    return f": {reason}" if reason else ""


def _nodes(item: Json) -> Iterator[str]:
    nodes = item.get("nodes")
    if nodes is None:
        return
    pending = nodes["wave"] - nodes["acked"] - nodes["nacked"]
    counts = ((nodes["acked"], "ACKed"), (nodes["nacked"], "NACKed"), (pending, "pending"))
    texts = [f"{count} {state}" for count, state in counts if count]
    waiting = [*held_lines(item), *item.get("pending_nodes", ())][:1] if pending else []
    why = f" ({waiting[0]})" if waiting else ""
    yield f"{', '.join((counted(nodes['wave'], 'node'), *texts))}{why}"


def _errors(item: Json) -> str:
    """How much more of the wave's requests fail than of the others, and how much may: ``errors +0.1% (bound 2%)``."""
    bound = item["plan"]["max_errors"]
    is_judged = bound is not None and bound < 1 and "errors" in item
    return f"; errors {item['errors']:+.1%} (bound {bound * 100:.3g}%)" if is_judged else ""


def _time_left(item: Json) -> str:
    """How long the nodes of the wave may still take, while some have not ACKed."""
    nodes = item.get("nodes")
    if "deadline" not in item or (nodes is not None and nodes["acked"] == nodes["wave"] > 0):
        return ""
    left_s = (datetime.fromisoformat(item["deadline"]) - datetime.now(UTC)).total_seconds()
    return f", {span_text(max(left_s, 0.0))} to go"


def longest_s(rollout: Json) -> float:
    """The time in which a rollout ends or is held, unless somebody pauses it."""
    plan = rollout["plan"]
    waves_left: int = rollout["waves"] - rollout["wave"] + 1
    return float(waves_left * (plan["hold_s"] + plan["timeout_s"]))


def wait_for_end(client: Client, group: str, head: int, end: float) -> None:
    """Wait until the rollout of a revision has ended or is held, until ``end`` (monotonic seconds) at the latest.

    Raises ``CommandError`` unless it is promoted.
    """
    shown = ""
    while True:
        status = client.run(groups.rollout(group))
        if status.get("head") != head:
            raise CommandError(Exit.NEGATIVE, f"group {group}: another push has superseded revision {head}")
        line = one_line(rollout_line(status))
        if status["state"] not in (PROMOTED, *OPEN - {HELD}):
            raise CommandError(Exit.NEGATIVE, line)
        step = f"{status['state']} {status['wave']}"
        if step != shown:
            say(line)
            shown = step
        if status["state"] == PROMOTED:
            return
        remaining_s = end - time.monotonic()
        if remaining_s <= 0:
            raise CommandError(Exit.TIMED_OUT, f"timed out waiting for the rollout: {line}")
        time.sleep(min(POLL_S, remaining_s))


def wait_for_push(
    client: Client, answer: Json, percent: float, timeout_s: float, began_s: float, *, allow_none: bool = False
) -> None:
    """As `wait_for`, for the push of an answer. One that is rolled out is waited for until that has ended or is held.

    ``began_s`` is on the monotonic clock. A ``timeout_s`` of 0 is `WAIT_S`, or until a rollout must have ended.
    """
    # What is pushed again without a change may be what is rolled out just now.
    rollout = answer.get("rollout", {}) if answer["changed"] else client.run(groups.rollout(answer["group"]))
    if rollout.get("state") in OPEN and rollout.get("effect", "started") in {"started", "superseded"}:
        wait_for_end(client, answer["group"], rollout["head"], began_s + (timeout_s or longest_s(rollout)))
    else:
        end = began_s + (timeout_s or WAIT_S)
        wait_for(client, answer["group"], answer["revision"], percent, end, allow_none=allow_none)
