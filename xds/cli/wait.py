"""Waiting for the fleet: until the connected nodes have a push, one refused it, or the time is over."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from xds.cli.client import Client, group_path
from xds.cli.errors import CommandError, Exit
from xds.cli.lingering import held_text, some
from xds.cli.output import printable, say

if TYPE_CHECKING:
    from xds.control.progress import PushVerdict

Json = dict[str, Any]

POLL_S = 1.0
SHOWN = 10


def wait_for(
    client: Client, group: str, revision: int, percent: float, end: float, *, allow_none: bool = False
) -> None:
    """Wait until ``percent`` of the nodes have the revision, until ``end`` (monotonic) at the latest.

    Raises ``CommandError`` with who refused it, or who is late; unless ``allow_none``, also when the group has no node.
    """
    from xds.control.progress import PushVerdict

    path = group_path(group, f"/revisions/{revision}/progress")
    with progress(group) as show:
        while True:
            left = end - time.monotonic()
            found = client.call("GET", path, {"wait": f"{max(0.0, min(POLL_S, left)):g}"})
            show(found)
            decision = verdict_on(found, percent)
            if decision is not PushVerdict.PENDING or left <= 0:
                break
    report(group, revision, found)
    if decision is PushVerdict.REFUSED:
        raise CommandError(Exit.NEGATIVE, refusals(found))
    if decision is PushVerdict.PENDING:
        raise CommandError(Exit.TIMED_OUT, late(found))
    if not allow_none:
        check_somebody(client, group, found)


def verdict_on(found: Json, percent: float) -> PushVerdict:
    """Whether ``percent`` of the nodes have taken a push; ``found`` is the progress or rollout that the API answers."""
    from xds.control.progress import verdict_of
    from xds.fleet.state import Convergence

    return verdict_of(Convergence(found["synced"], found["pending"], found["nacked"]), percent)


def check_somebody(client: Client, group: str, found: Json) -> None:
    """Raises ``CommandError`` when no node of a group is connected: a wrong name must not look like success."""
    if found["synced"] + found["pending"] + found["nacked"] or client.call("GET", group_path(group))["nodes"]:
        return
    raise CommandError(Exit.NOBODY, f"group {group}: no node of it is connected; pass --allow-none when that is meant")


def report(group: str, revision: int, found: Json) -> None:
    """Say how many nodes have it."""
    total = found["synced"] + found["pending"] + found["nacked"]
    if total:
        say(f"group {group}: {found['synced']} of {total} nodes have revision {revision}")
    else:
        say(f"group {group}: no connected node follows this group and asks for what was pushed")


def refusals(found: Json) -> str:
    """Who refused what, in their words."""
    lines = [f"{nack['node']} rejected {_rejected(nack)}: {nack['message']}" for nack in found["nacks"][:SHOWN]]
    return "\n".join(lines) or f"{found['nacked']} nodes refused the push"


def _rejected(nack: Json) -> str:
    return f"{nack['type']} {some(nack['guilty'], len(nack['guilty']))}" if nack["guilty"] else str(nack["type"])


def late(found: Json) -> str:
    """Who is not there yet, and what is held back from them."""
    first = f"timed out waiting for {found['pending']} nodes: {', '.join(found['pending_nodes'][:SHOWN])}"
    return "\n".join((first, *held_lines(found)))


def held_lines(found: Json) -> list[str]:
    """What is held back from pending nodes, and for which clusters."""
    return [f"{each['node']}: {held_text(each)}" for each in found["held"][:SHOWN]]


def _holds_told(tell: Callable[[str], object]) -> Callable[[Json], None]:
    """Tells what is held back, each of it once."""
    told: set[str] = set()

    def show(found: Json) -> None:
        for line in held_lines(found):
            if line not in told:
                told.add(line)
                tell(printable(line))

    return show


@contextmanager
def progress(group: str) -> Iterator[Callable[[Json], None]]:
    """A bar on a terminal; a line at the beginning otherwise."""
    if not sys.stderr.isatty():
        say(f"waiting for the nodes of group {group}")
        yield _holds_told(say)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"waiting for {group}", total=None)

        tell_holds = _holds_told(partial(bar.console.print, markup=False, highlight=False))

        def show(found: Json) -> None:
            tell_holds(found)
            total = found["synced"] + found["pending"] + found["nacked"]
            bar.update(task, total=total, completed=found["synced"])

        yield show
