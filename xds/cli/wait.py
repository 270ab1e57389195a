"""Waits for a push: until the connected nodes have it, a node rejects it, or the timeout."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from xds.calls import groups
from xds.cli.client import Client
from xds.cli.errors import CommandError, Exit
from xds.cli.lingering import first_names, held_text
from xds.cli.output import counted, one_line, say

if TYPE_CHECKING:
    from xds.push.progress import PushVerdict

Json = dict[str, Any]

POLL_S = 1.0
WAIT_S = 60.0  # by default
SHOWN = 10


def wait_for(
    client: Client, group: str, revision: int, percent: float, end: float, *, allow_none: bool = False
) -> None:
    """Wait until ``percent`` of the nodes have the revision, until ``end`` (monotonic seconds) at the latest.

    Raises ``CommandError`` with the nodes that reject the push or are pending; unless ``allow_none`` also if the group
    has no node.
    """
    from xds.push.progress import PushVerdict

    with progress(group) as show:
        while True:
            remaining_s = end - time.monotonic()
            wait_s = max(0.0, min(POLL_S, remaining_s))
            state = client.run(groups.progress(group, revision, wait_s=wait_s))
            show(state)
            decision = verdict_on(state, percent)
            if decision is not PushVerdict.PENDING or remaining_s <= 0:
                break
    report(group, revision, state)
    if decision is PushVerdict.REFUSED:
        raise CommandError(Exit.NEGATIVE, refusals(state))
    if decision is PushVerdict.PENDING:
        raise CommandError(Exit.TIMED_OUT, late(state))
    if not allow_none:
        check_any_node(client, group, state)


def verdict_on(state: Json, percent: float) -> PushVerdict:
    """Whether ``percent`` of the nodes have the push; ``state`` is the API's progress or rollout."""
    from xds.fleet.state import Convergence
    from xds.push.progress import verdict_of

    return verdict_of(Convergence(state["synced"], state["pending"], state["nacked"]), percent)


def check_any_node(client: Client, group: str, state: Json) -> None:
    """Raises ``CommandError`` if no node of the group is connected: a wait for a mistyped group must not succeed."""
    if state["synced"] + state["pending"] + state["nacked"] or client.run(groups.group(group))["nodes"]:
        return
    raise CommandError(Exit.NO_NODE, f"group {group}: none of its nodes is connected; pass --allow-none to accept that")


def report(group: str, revision: int, state: Json) -> None:
    """Print how many nodes have the revision."""
    total = state["synced"] + state["pending"] + state["nacked"]
    if total:
        say(f"group {group}: {state['synced']} of {total} nodes have revision {revision}")
    else:
        say(f"group {group}: no connected node of this group subscribes to the pushed types, so none had to take it")


def refusals(state: Json) -> str:
    """The NACKs of a push, with the error messages of the nodes. Equal NACKs of several nodes are one line."""
    from xds.admin.merged_pages import nacks_by_message

    records = nacks_by_message([{"items": state["nacks"]}])[:SHOWN]
    lines = [
        f"{first_names(one['nodes'], one['nodes_total'])} rejected {_rejected(one)}: {one['message']}"
        for one in records
    ]
    return "\n".join(map(one_line, lines)) or f"{counted(state['nacked'], 'node')} rejected the push"


def _rejected(nack: Json) -> str:
    return f"{nack['type']} {first_names(nack['guilty'], len(nack['guilty']))}" if nack["guilty"] else str(nack["type"])


def late(state: Json) -> str:
    """The pending nodes, and what is held for them."""
    first = f"timed out waiting for {counted(state['pending'], 'node')}: {', '.join(state['pending_nodes'][:SHOWN])}"
    return "\n".join(map(one_line, (first, *held_lines(state))))


def held_lines(state: Json) -> list[str]:
    """The content that is held for pending nodes, and the clusters that it waits for."""
    return [f"{each['node']}: {held_text(each)}" for each in state["held"][:SHOWN]]


def _holds_printer(print_line: Callable[[str], object]) -> Callable[[Json], None]:
    """A function that prints each held content once."""
    printed: set[str] = set()

    def show(state: Json) -> None:
        for line in held_lines(state):
            if line not in printed:
                printed.add(line)
                print_line(one_line(line))

    return show


@contextmanager
def progress(group: str) -> Iterator[Callable[[Json], None]]:
    """A progress bar on a terminal; otherwise a line at the beginning."""
    if not sys.stderr.isatty():
        say(f"waiting for the nodes of group {group}")
        yield _holds_printer(say)
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"waiting for {group}", total=None)

        show_holds = _holds_printer(partial(bar.console.print, markup=False, highlight=False))

        def show(state: Json) -> None:
            show_holds(state)
            total = state["synced"] + state["pending"] + state["nacked"]
            bar.update(task, total=total, completed=state["synced"])

        yield show
