"""``xds apply``: push files, and wait until the fleet has them."""

from __future__ import annotations

import getpass
import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import quote

from xds.cli.client import Client
from xds.cli.failure import CommandError, Exit
from xds.cli.output import Format, say, write, write_document
from xds.cli.sources import Source

Json = dict[str, Any]

POLL_S = 1.0
NACKS_SHOWN = 10
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """``wait_percent`` of the connected nodes are waited for, 0 for none, ``timeout_s`` seconds at most."""

    message: str = ""
    if_match: str = ""
    dry_run: bool = False
    allow_empty: bool = False
    wait_percent: float = 0.0
    timeout_s: float = 60.0
    format: Format = Format.TABLE


def apply(client: Client, sources: list[Source], options: ApplyOptions) -> None:
    """Push every source, then wait for all of them. Raises ``CommandError``."""
    answers = [_push(client, source, options) for source in sources]
    if options.format in (Format.JSON, Format.YAML):
        write_document(answers[0] if len(answers) == 1 else answers, options.format)
    elif options.format is Format.NAME:
        write("".join(f"{answer['group']}\n" for answer in answers))
    else:
        write("".join(f"{_summary(answer)}\n" for answer in answers))
    if options.wait_percent and not options.dry_run:
        end = time.monotonic() + options.timeout_s
        for answer in answers:
            _wait(client, answer, options.wait_percent, end)


def parse_duration(text: str) -> float:
    """Seconds of ``30``, ``500ms``, ``60s``, ``2m``. Raises ``CommandError``."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise CommandError(Exit.USAGE, f"not a duration: {text!r} (such as 500ms, 60s, 2m)")
    return float(found[1]) * _UNIT_S[found[2] or "s"]


def parse_percent(text: str) -> float:
    """``90%`` or ``90`` as a number above 0 and up to 100. Raises ``CommandError``."""
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = 0.0
    if not 0 < percent <= 100:
        raise CommandError(Exit.USAGE, f"not a percentage: {text!r} (such as 90%)")
    return percent


def _push(client: Client, source: Source, options: ApplyOptions) -> Json:
    query = {"author": getpass.getuser()}
    if options.message:
        query["message"] = options.message
    for name in ("dry_run", "allow_empty"):
        if getattr(options, name):
            query[name] = "true"
    headers = {"If-Match": _etag(options.if_match)} if options.if_match else {}
    return client.call("PUT", f"/groups/{quote(source.group, safe='')}/snapshot", query, headers, source.body())


def _etag(revision: str) -> str:
    return f"r{revision}" if revision.isdecimal() else revision


def _summary(answer: Json) -> str:
    if not answer["changed"]:
        return f"group {answer['group']}: revision {answer['revision']}, unchanged"
    counts = [
        f"{sign}{len(change[kind])} {label}"
        for label, change in answer["changes"].items()
        for kind, sign in (("added", "+"), ("changed", "~"), ("removed", "-"))
        if change[kind]
    ]
    what = "would change" if answer.get("dry_run") else f"revision {answer['revision']}"
    head = f"group {answer['group']}: {what}"
    return f"{head}: {', '.join(counts)}" if counts else f"{head}, empty"


class _Shown(Protocol):
    def __call__(self, progress: Json) -> None: ...


def _wait(client: Client, answer: Json, percent: float, end: float) -> None:
    from xds.control.waiting import Verdict, verdict
    from xds.fleet.state import Convergence

    path = f"/groups/{quote(answer['group'], safe='')}/revisions/{answer['revision']}/progress"
    with _progress(answer["group"]) as show:
        while True:
            left = end - time.monotonic()
            found = client.call("GET", path, {"wait": f"{max(0.0, min(POLL_S, left)):g}"})
            show(found)
            decision = verdict(Convergence(found["synced"], found["pending"], found["nacked"]), percent)
            if decision is not Verdict.PENDING or left <= 0:
                break
    _report(answer, found)
    if decision is Verdict.REFUSED:
        raise CommandError(Exit.NEGATIVE, _refusals(found))
    if decision is Verdict.PENDING:
        nodes = ", ".join(found["pending_nodes"][:NACKS_SHOWN])
        raise CommandError(Exit.TIMED_OUT, f"timed out waiting for {found['pending']} nodes: {nodes}")


def _report(answer: Json, found: Json) -> None:
    total = found["synced"] + found["pending"] + found["nacked"]
    if total:
        say(f"group {answer['group']}: {found['synced']} of {total} nodes have revision {answer['revision']}")
    else:
        say(f"group {answer['group']}: no connected node follows this group and asks for what was pushed")


def _refusals(found: Json) -> str:
    lines = [f"{nack['node']} rejected {nack['type']}: {nack['message']}" for nack in found["nacks"][:NACKS_SHOWN]]
    return "\n".join(lines) or f"{found['nacked']} nodes refused the push"


@contextmanager
def _progress(group: str) -> Iterator[_Shown]:
    """A bar on a terminal; nothing otherwise."""
    if not sys.stderr.isatty():
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"waiting for {group}", total=None)

        def show(progress: Json) -> None:
            total = progress["synced"] + progress["pending"] + progress["nacked"]
            bar.update(task, total=total, completed=progress["synced"])

        yield show
