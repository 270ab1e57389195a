"""``xds check``: the health of the server. ``xds version``: the versions of this command and of the server.

One check finds clusters that fail most of their requests, and names the last push before the failure.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice, takewhile
from math import inf
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from xds.cli.app import Command, app, shared
from xds.cli.arguments import TimeoutOption
from xds.cli.client import Client, RefusedError, group_path
from xds.cli.commands.sources import check_sources
from xds.cli.errors import CommandError, Exit
from xds.cli.output import age, say
from xds.cli.table import Column, TableLayout, actor_text
from xds.version import __version__

Json = dict[str, Any]

OK = "ok"
WARNING = "warning"
FAILED = "failed"
GUIDE = "docs/operations.md#"  # of the repository; an installed package does not have it
NEXT = {
    "live": "xds context list",
    "ready": "xds check --wait",
    "store": "the server's log",
    "version": "xds version",
    "nacks": "xds nacks",
    "load": "xds load",
    "watch": "xds watch --kinds watch --since 1h --no-follow",
    "sources": "xds sources",
    "certificates": "xds describe group GROUP",
    "tls": "the server's settings",
}
POLL_S = 0.5
EXPIRY_DAYS = 14
NACKS_COUNTED = 1000
CERTIFICATES_READ = 1000
DAY_S = 86_400
STATE_MARKS = {OK: "✓ ok", WARNING: "! warning", FAILED: "✗ failed"}
STATE_STYLES = {OK: "good", WARNING: "warn", FAILED: "bad"}

CHECKS = TableLayout(
    name=lambda item: str(item["check"]),
    columns=(
        Column("CHECK", lambda item: item["check"]),
        Column("STATE", lambda item: STATE_MARKS[item["state"]], lambda item: STATE_STYLES[item["state"]]),
        Column("DETAIL", lambda item: item["detail"], is_prose=True),
        Column("NEXT", lambda item: "" if item["state"] == OK else item["next"]),
    ),
)

CheckResult = tuple[str, str]  # state and detail

WINDOW_S = 60
REQUESTS_LEAST = 20  # in the window; a ratio of fewer is not reliable
FAILING_FROM = 0.5  # of the requests
NAMED_LIMIT = 3
# The windows and steps in which the start of a failure is searched for, in seconds: short steps first.
_SEARCHES = (("120", "5"), ("3600", "60"))
_REPORTED_S = 10.0  # counts are spread over the interval of their report: a failure may seem to start this much earlier
_REVISIONS_READ = 100


def versions(client: Client) -> dict[str, str]:
    """The versions of this command and of the server; empty if the server does not answer."""
    try:
        server = str(client.call("GET", "/version").get("version", ""))
    except CommandError:
        server = ""
    return {"client": __version__, "server": server}


def check_ready(client: Client) -> list[Json]:
    """The answer of ``/readyz``, which needs no token. Raises ``CommandError`` when the server cannot be reached."""
    return [_item("ready", _ready(client))]


def check_all(client: Client) -> list[Json]:
    """All checks in their order. Raises ``CommandError`` when the server cannot be reached at all."""
    live = _live(client)
    return [_item("live", live), *(_item(name, _run_check(run, client)) for name, run in _CHECKS.items())]


def wait_until_ready(client: Client, timeout_s: float) -> None:
    """Wait until ``/readyz`` reports readiness. Raises ``CommandError`` after ``timeout_s``."""
    end = time.monotonic() + timeout_s
    say(f"waiting for {client.server}")
    while True:
        try:
            client.probe("/readyz")
        except CommandError as error:
            if error.code is not Exit.UNREACHABLE:
                raise
            if time.monotonic() >= end:
                raise CommandError(Exit.TIMED_OUT, f"not ready within {timeout_s:g} s: {error}") from None
        else:
            return
        time.sleep(POLL_S)


def _item(name: str, result: CheckResult) -> Json:
    state, detail = result
    return {"check": name, "state": state, "detail": detail, "next": NEXT[name], "see": f"{GUIDE}check-{name}"}


def _run_check(run: Callable[[Client], CheckResult], client: Client) -> CheckResult:
    try:
        return run(client)
    except CommandError as error:
        return FAILED, str(error)


def _live(client: Client) -> CheckResult:
    client.probe("/livez")
    return OK, f"{client.server} answers"


def _ready(client: Client) -> CheckResult:
    try:
        return OK, str(client.probe("/readyz").json().get("status", "ready"))
    except RefusedError as error:
        return FAILED, str(error.problem.get("status") or error)


def _store(client: Client) -> CheckResult:
    """Whether the store can be read. The check reads the history, since snapshots are served from memory."""
    condition = client.call("GET", "/store")
    if condition["state"] != "ok":
        return FAILED, str(condition["detail"])
    group = next(iter(client.items("/groups", {"limit": "1"})), None)
    if group is None:
        return OK, "has no group yet"
    head = client.call("GET", group_path(group["group"], "/revisions"), {"limit": "1"})["items"][0]
    return OK, f"reads: group {group['group']} is at revision {head['revision']}"


def _version(client: Client) -> CheckResult:
    version_of = versions(client)
    if version_of["client"] == version_of["server"]:
        return OK, version_of["server"]
    return WARNING, f"the server is {version_of['server'] or 'unknown'}, this command {version_of['client']}"


def _nacks(client: Client) -> CheckResult:
    records = list(islice(client.items("/nacks", {"state": "open"}), NACKS_COUNTED))
    if not records:
        return OK, "none open"
    nodes = sorted({record["node"] for record in records})
    more = "" if len(nodes) < 4 else " ..."
    return WARNING, f"{len(records)} open, by {', '.join(nodes[:3])}{more}: xds nacks --state open"


def _watch(client: Client) -> CheckResult:
    try:
        watched = client.call("GET", "/watch")
    except CommandError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        return OK, "this version of the server has no such check"  # an older server
    if watched["directory"] is None:
        return OK, "no directory is watched"
    if not watched["refused_total"]:
        return OK, f"{watched['directory']} is applied"
    more = f" (and {watched['refused_total'] - 1} more)" if watched["refused_total"] > 1 else ""
    return WARNING, f"{refused_line(watched['refused'][0])}{more}"


def _sources(client: Client) -> CheckResult:
    """Whether all sources of instances can be read, completely and without held losses."""
    is_ok, detail = check_sources(client)
    return (OK if is_ok else WARNING), detail


def _load(client: Client) -> CheckResult:
    """Whether a cluster fails most of its requests, by the load reports of the proxies."""
    failing = failing_clusters(client)
    if not failing:
        return OK, "no cluster fails most of its requests"
    more = f" (and {len(failing) - NAMED_LIMIT} more)" if len(failing) > NAMED_LIMIT else ""
    return WARNING, "; ".join(failure_line(client, item) for item in failing[:NAMED_LIMIT]) + more


def refused_line(refused: Json) -> str:
    """The files of a watched directory that cannot be applied, since when, and why."""
    at = refused["source"] or ", ".join(refused["files"])
    others = f" (and {refused['findings'] - 1} more)" if refused["findings"] > 1 else ""
    return f"{at} refused {age(refused['since'])} ago: {refused['detail']}{others}"


def _certificates(client: Client) -> CheckResult:
    """Whether a certificate that was pushed expires soon. Raises ``CommandError``."""
    try:
        certificates = client.call("GET", "/certificates", {"limit": str(CERTIFICATES_READ)})["items"]
    except CommandError as error:
        if error.code is not Exit.NOT_FOUND:
            raise
        return OK, "this version of the server has no such check"  # an older server
    soon = [each for each in certificates if seconds_left(each) < EXPIRY_DAYS * DAY_S]
    if not certificates:
        return OK, "none pushed"
    if not soon:
        first = expiry(certificates[0])
        return OK, f"none of the pushed certificates expires within {EXPIRY_DAYS}d; the first expires in {first}"
    more = f" (and {len(soon) - NAMED_LIMIT} more)" if len(soon) > NAMED_LIMIT else ""
    return WARNING, "; ".join(map(certificate_line, soon[:NAMED_LIMIT])) + more


def seconds_left(certificate: Json) -> float:
    """How long a certificate is still valid; negative once it has expired."""
    return _seconds(certificate["not_after"]) - time.time()


def expiry(certificate: Json) -> str:
    """``12d`` or ``5h``; ``0h`` once it has expired."""
    left_s = max(0.0, seconds_left(certificate))
    return f"{left_s // DAY_S:.0f}d" if left_s >= DAY_S else f"{left_s // 3600:.0f}h"


def certificate_line(certificate: Json) -> str:
    """``group edge: secrets/web (web.example) expires in 5d``."""
    names = f" ({', '.join(certificate['names'])})" if certificate["names"] else ""
    left = f"expires in {expiry(certificate)}" if seconds_left(certificate) > 0 else "has expired"
    return f"group {certificate['group']}: {certificate['type']}/{certificate['name']}{names} {left}"


def _tls(client: Client) -> CheckResult:
    parts = urlsplit(client.server)
    if parts.scheme == "https":
        left_s = ssl.cert_time_to_seconds(client.certificate()["notAfter"]) - time.time()
        days = int(left_s // DAY_S)
        return (OK if days >= EXPIRY_DAYS else WARNING), f"the server's certificate expires in {days}d"
    from xds.control.settings import is_loopback

    if is_loopback(parts.hostname or ""):
        return OK, "off; the server listens on the loopback"
    return WARNING, "off: tokens and configuration are sent unencrypted"


_CHECKS: dict[str, Callable[[Client], CheckResult]] = {
    "ready": _ready,
    "store": _store,
    "version": _version,
    "nacks": _nacks,
    "load": _load,
    "watch": _watch,
    "sources": _sources,
    "certificates": _certificates,
    "tls": _tls,
}


def failing_clusters(client: Client) -> list[Json]:
    """The clusters that fail most of their requests, the worst first. Raises ``CommandError``."""
    items = client.items("/load", {"window": str(WINDOW_S)})
    failing = [item for item in items if item["attempts"] >= REQUESTS_LEAST and item["failed_ratio"] >= FAILING_FROM]
    return sorted(failing, key=lambda item: (-item["failed_ratio"], item["cluster"]))


def failure_line(client: Client, item: Json) -> str:
    """One cluster: its failure ratio, since when, and the last push to its groups before. Raises ``CommandError``."""
    parts = [f"{item['failed_ratio']:.0%} of {item['attempts']:.0f} requests to {item['cluster']} fail"]
    if item["dropped"]:
        parts.append(f"{item['drop_ratio']:.0%} are dropped by the proxies")
    start = _failure_start(client, item["cluster"])
    if start is not None:
        parts.append(f"for {age(start[0])}")
    pushes = [push for group in item["groups"][:NAMED_LIMIT] for push in _push_before(client, group, start)]
    if pushes:
        group, push = max(pushes, key=lambda one: str(one[1]["time"]))
        by = f" by {actor_text(push)}" if actor_text(push) else ""
        parts.append(f"the push before it: revision {push['revision']} of {group}{by}, {age(push['time'])} ago")
    return ", ".join(parts)


def _failure_start(client: Client, cluster: str) -> tuple[str, float] | None:
    """The first step of the current failure: its time and length. None if it is unknown."""
    begin = None
    for window, step in _SEARCHES:
        try:
            answer = client.call("GET", f"/load/{quote(cluster, safe='')}/series", {"window": window, "step": step})
        except RefusedError:
            return begin
        points = [point for line in answer["items"] for point in line["points"]]
        failing = _failing_steps(points)
        if not failing:
            return begin
        begin = failing[0]["time"], float(answer["step_s"])
        if failing[0] is not points[0]:
            return begin
    return begin


def _failing_steps(points: list[Json]) -> list[Json]:
    """The steps of the failure that lasts until now, in order. Steps without requests are ignored."""
    used = [point for point in points if point["issued"] or point["dropped"] or point["errors"]]
    failing = list(takewhile(lambda point: point["failed_ratio"] >= FAILING_FROM, reversed(used)))
    return failing[::-1]


def _push_before(client: Client, group: str, start: tuple[str, float] | None) -> Iterator[tuple[str, Json]]:
    """The latest revision of a group that may have caused a failure; none if there is no such revision."""
    before_s = _seconds(start[0]) + start[1] + _REPORTED_S if start is not None else inf
    try:
        revisions = islice(client.items(group_path(group, "/revisions"), {"limit": "20"}), _REVISIONS_READ)
        revision = next((one for one in revisions if _seconds(one["time"]) <= before_s), None)
    except RefusedError:  # the group is gone
        return
    if revision is not None:
        yield group, revision


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


@app.command(cls=Command)
def check(
    context: typer.Context,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the server is ready.")] = False,
    timeout: TimeoutOption = "60s",
    ready: Annotated[
        bool, typer.Option("--ready", help="Only check that the server is ready (/readyz); needs no token.")
    ] = False,
) -> None:
    """Check the server's health. Exits 1 if a check fails.

    docs/operations.md of the project has a section for each check.

    \b
    Examples:
      xds check
      xds check --wait --timeout 2m
      xds check --ready
    """
    from xds.cli.arguments import parse_duration
    from xds.cli.table import write_items

    options = shared(context)
    client, timeout_s = options.connect(), parse_duration(timeout)
    if wait:
        wait_until_ready(client, timeout_s)
    results = check_ready(client) if ready else check_all(client)
    write_items(results, CHECKS, options.style())
    failed = [f"{item['check']} ({item['detail']})" for item in results if item["state"] == FAILED]
    if failed:
        raise CommandError(Exit.NEGATIVE, f"failed: {', '.join(failed)}")
