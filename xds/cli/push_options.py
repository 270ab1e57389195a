"""Shared by all commands that change something: options of calls, confirmation, the summary of the answer."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from xds.cli.client import finding_line
from xds.cli.errors import CommandError, Exit
from xds.cli.output import Format, counted, printable, say, write_answer

Json = dict[str, Any]


def write_options(message: str = "", if_match: str = "", **flags: bool) -> Json:
    """Options of a call that changes something: author, message, precondition and flags.

    ``if_match`` is a revision (``42``) or an etag; 0: there must be nothing yet.
    """
    given: Json = {"author": author(), **{name: True for name, is_set in flags.items() if is_set}}
    if message:
        given["message"] = message
    if if_match:
        given["if_match"] = precondition(if_match)
    return given


def author() -> str:
    """The user who runs this command; ``uid N`` for a user without a name, as in a container.

    The server stores it beside the authenticated actor.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def precondition(revision: str) -> str | int:
    """The revision (``42``), or the etag, that the option ``--if-match`` names; empty without one."""
    return int(revision) if revision.isdecimal() else revision


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation on a terminal. Raises ``CommandError`` if the answer is no."""
    if yes or not sys.stdin.isatty():
        return
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise CommandError(Exit.NEGATIVE, "cancelled; nothing was changed")


def summary(answer: Json) -> str:
    """The result of a push on a line."""
    if not answer["changed"]:
        return f"group {answer['group']}: revision {answer['revision']}, unchanged"
    counts = [
        f"{sign}{len(change[kind])} {label}"
        for label, change in answer["changes"].items()
        for kind, sign in (("added", "+"), ("changed", "~"), ("removed", "-"))
        if change[kind]
    ]
    head = f"group {answer['group']}: {_outcome(answer)}"
    return f"{head}: {', '.join(counts)}" if counts else f"{head}, empty"


def _outcome(answer: Json) -> str:
    if answer.get("deleted"):
        return "would be deleted" if answer.get("dry_run") else "deleted"
    return "would change" if answer.get("dry_run") else f"revision {answer['revision']}"


def move_lines(answer: Json) -> Iterator[str]:
    """The groups that the nodes of a deleted group move to, a line each."""
    would = "would " if answer.get("dry_run") else ""
    for group, number in answer.get("moves", {}).items():
        nodes = counted(number, "node")
        s = "" if would or number != 1 else "s"
        if group:
            yield f"{nodes} {would}move{s} to {group}"
        else:
            yield f"{nodes} {would}belong{s} to no group any more, and keep{s} the current configuration"


# What a push does to a careful rollout, in words.
_EFFECTS = {
    "superseded": "started in place of another push",
    "continues": "goes on",
    "all_at_once": "all at once, although there is a plan",
}


def rollout_lines(answer: Json) -> Iterator[str]:
    """What a push does to the careful rollout of its group, and in a dry run the waves that it would have."""
    rollout = answer.get("rollout")
    if rollout is None:
        return
    effect, detail = _EFFECTS.get(rollout["effect"], rollout["effect"]), rollout.get("detail", "")
    if "wave" in rollout and rollout["effect"] in {"started", "superseded"}:
        effect += f", wave {rollout['wave']} of {rollout['waves']} ({rollout['size']})"
    dry = " (dry run)" if answer.get("dry_run") else ""
    yield f"rollout of {answer['group']}{dry}: {effect}{f': {detail}' if detail else ''}"
    for number, wave in enumerate(rollout.get("planned", ()), 1):
        more = ", ..." if wave["count"] > len(wave["nodes"]) else ""
        ids = f": {', '.join(wave['nodes'])}{more}" if wave["nodes"] else ""
        yield f"  wave {number} ({wave['size']}) would add {counted(wave['count'], 'node')}{ids}"
    if any(wave["size"].isdecimal() for wave in rollout.get("planned", ())):
        yield "  a wave of a number of nodes takes another one beside each that subscribes to nothing of this change"
    if rollout.get("last_kinds"):
        yield f"  only the last wave would have {', '.join(rollout['last_kinds'])}"
    for server in rollout.get("partial", ()):
        yield f"  server {server} does not answer: its nodes are not among these"


def print_rest(answer: Json) -> None:
    """Print the moves of nodes, the careful rollout and the warnings of an answer as messages."""
    for line in (*move_lines(answer), *rollout_lines(answer)):
        say(line)
    print_warnings(answer.get("warnings", []))


def print_warnings(warnings: Iterable[Json]) -> None:
    """Print the warnings of an answer as messages."""
    for warning in warnings:
        say(f"warning: {finding_line(warning)}")


def show_answer(answer: Json, format: Format | None) -> None:
    """Write the answer to one push in the given format, and print its warnings."""
    write_answer(format, answer, lambda: f"{summary(answer)}\n", [answer["group"]])
    print_rest(answer)
