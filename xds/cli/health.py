"""The health of the server, and its version.

The server checks itself (``GET /check``). ``xds check`` adds what only a client can tell: that it reaches the server,
whether both have one version, and how its connection is protected.
"""

from __future__ import annotations

import ssl
import time
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from xds.calls import server as of_server
from xds.cli.client import Client, RefusedError
from xds.cli.errors import CommandError, Exit
from xds.cli.output import age, say
from xds.cli.table import Column, TableLayout
from xds.version import __version__

Json = dict[str, Any]

OK = "ok"
WARNING = "warning"
FAILED = "failed"
GUIDE = "docs/operations.md#"  # of the repository; an installed package does not have it
NEXT = {
    "live": "xds context list",
    "ready": "xds check --wait",
    "access": "xds whoami",
    "version": "xds version",
    "tls": "the server's settings",
}
POLL_S = 0.5
EXPIRY_DAYS = 14
DAY_S = 86_400
_MARKS = {OK: "✓ ok", WARNING: "! warning", FAILED: "✗ failed"}
_STYLES = {OK: "good", WARNING: "warn", FAILED: "bad"}
STATE = Column("STATE", lambda item: _MARKS[item["state"]], lambda item: _STYLES[item["state"]])

CHECKS = TableLayout(
    name="check",
    columns=(
        Column("CHECK", "check"),
        STATE,
        Column("DETAIL", "detail", is_prose=True),
        Column("NEXT", lambda item: "" if item["state"] == OK else item["next"]),
    ),
)

CheckResult = tuple[str, str]  # state and detail


def versions(client: Client) -> dict[str, str]:
    """The versions of this command and of the server; empty if the server does not answer."""
    try:
        server = str(client.run(of_server.version()).get("version", ""))
    except CommandError:
        server = ""
    return {"client": __version__, "server": server}


def check_ready(client: Client) -> list[Json]:
    """The answer of ``/readyz``, which needs no token. Raises ``CommandError`` when the server cannot be reached."""
    return [_item("ready", _ready(client))]


def check_all(client: Client) -> list[Json]:
    """All checks in their order. Raises ``CommandError`` when the server cannot be reached at all.

    Where the server does not tell its own, there is one row that says why.
    """
    live = _item("live", _live(client))
    try:
        checks = list(client.items(of_server.check()))
    except CommandError as error:
        return [live, *check_ready(client), _item("access", (FAILED, str(error)))]
    return [live, *checks, _item("version", _version(client)), _item("tls", _tls(client))]


def wait_until_ready(client: Client, timeout_s: float) -> None:
    """Wait until ``/readyz`` reports readiness. Raises ``CommandError`` after ``timeout_s``."""
    end = time.monotonic() + timeout_s
    say(f"waiting for {client.server}")
    while True:
        try:
            client.run(of_server.ready())
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


def _live(client: Client) -> CheckResult:
    client.run(of_server.alive())
    return OK, f"{client.server} answers"


def _ready(client: Client) -> CheckResult:
    try:
        return OK, str(client.run(of_server.ready()).get("status", "ready"))
    except RefusedError as error:
        return FAILED, str(error.problem.get("status") or error)


def _version(client: Client) -> CheckResult:
    version_of = versions(client)
    if version_of["client"] == version_of["server"]:
        return OK, version_of["server"]
    return WARNING, f"the server is {version_of['server'] or 'unknown'}, this command {version_of['client']}"


def refused_line(refused: Json) -> str:
    """The files of a watched directory that cannot be applied, since when, and why."""
    at = refused["source"] or ", ".join(refused["files"])
    others = f" (and {refused['findings'] - 1} more)" if refused["findings"] > 1 else ""
    return f"{at} refused {age(refused['since'])} ago: {refused['detail']}{others}"


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
    from xds.settings.settings import is_loopback

    if is_loopback(parts.hostname or ""):
        return OK, "off; the server listens on the loopback"
    return WARNING, "off: tokens and configuration are sent unencrypted"


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
