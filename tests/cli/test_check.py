"""``check`` and ``version``: points, exit codes, and where to read on."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.support.commands import xds
from tests.support.process import LOOPBACK, REPOSITORY, wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from xds.cli.health import _CHECKS, GUIDE


def states(remote: Remote) -> dict[str, str]:
    items = remote.xds("check", "-o", "json").json()["items"]
    return {item["check"]: item["state"] for item in items}


def test_every_point_is_checked(remote: Remote) -> None:
    assert states(remote) == dict.fromkeys(("live", *_CHECKS), "ok")
    assert remote.xds("check", "--wait").code == 0


def test_open_nacks_are_a_warning(remote: Remote) -> None:
    remote.server.push("checked", [static_cluster("a", 80)])
    with Proxy(remote.server.grpc_port, "checked-1", "checked") as proxy:
        proxy.refusal = "no"
        proxy.answer()
        remote.server.wait_nack("checked-1", "clusters")
        assert states(remote)["nacks"] == "warning"
        assert "1 open, by checked-1" in remote.xds("check").out


def test_a_watched_directory_that_cannot_be_applied_is_seen(tmp_path: Path, running: ExitStack) -> None:
    """``xds check``, ``describe group``, events and the metric report it, because a log line alone is overlooked."""
    watched = tmp_path / "watched"
    watched.mkdir()
    (watched / "hello.json").write_text(json.dumps({"resources": [static_cluster("a", 80)]}))
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory", "--watch", str(watched)]))
    remote = Remote(server)
    assert states(remote)["watch"] == "ok"
    assert server.metrics()["xds_server_watch_refused"] == 0
    assert "watch:" not in remote.xds("describe", "group", "hello").out
    (watched / "hello.json").write_text('{"resources": [{"@type": "type.googleapis.com/nonsense", "x": }]}')
    wait_until(lambda: server.metrics()["xds_server_watch_refused"] == 1, "the metric")
    checked = remote.xds("check")
    assert (checked.code, states(remote)["watch"]) == (0, "warning")
    (line,) = (line for line in checked.out.splitlines() if line.startswith("watch"))
    assert re.search(r"watched/hello\.json:1:\d+ refused \d+s ago: ", line)
    assert re.search(r"watch: +\S+hello\.json:1:\d+ refused", remote.xds("describe", "group", "hello").out)
    (event,) = remote.xds("watch", "--since", "0", "--kinds", "watch", "--limit", "1", "-o", "jsonl").out.splitlines()
    assert (json.loads(event)["action"], json.loads(event)["group"]) == ("refused", "hello")
    (watched / "hello.json").write_text(json.dumps({"resources": [static_cluster("b", 80)]}))
    wait_until(lambda: server.metrics()["xds_server_watch_refused"] == 0, "it is applied")
    assert states(remote)["watch"] == "ok"


def test_readiness_needs_no_token(tmp_path: Path, running: ExitStack) -> None:
    """The image's health check: with tokens configured, ``/readyz`` still needs no credential."""
    digest = hashlib.sha256(b"secret").hexdigest()
    tokens = json.dumps([{"name": "ci", "sha256": digest, "scopes": ["read"]}])
    server = running.enter_context(
        ServerProcess(tmp_path, ["--store", "memory"], {"XDS_AUTH__TOKENS": tokens}, token="secret")
    )
    remote = Remote(server)
    assert remote.xds("check").code == 1
    ready = remote.xds("check", "--ready")
    assert (ready.code, ready.out.splitlines()[1].split()[:3]) == (0, ["ready", "✓", "ok"])
    server.kill()
    assert remote.xds("check", "--ready").code == 7


def test_who_is_not_ready_fails_the_check() -> None:
    """Exit 1 while starting or draining, for whoever routes traffic by it."""
    with HTTPServer((LOOPBACK, 0), Draining) as draining:
        thread = threading.Thread(target=draining.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        done = xds("check", "--ready", environment={"XDS_ADDR": f"{LOOPBACK}:{draining.server_port}"})
        draining.shutdown()
        thread.join()
    assert (done.code, "draining" in done.out) == (1, True)


class Draining(BaseHTTPRequestHandler):
    """Answers like a server that is draining."""

    def do_GET(self) -> None:
        body = b'{"status": "draining"}'
        self.send_response(503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


def test_nobody_there() -> None:
    environment = {"XDS_ADDR": f"{LOOPBACK}:1"}
    assert xds("check", environment=environment).code == 7
    assert xds("check", "--wait", "--timeout", "100ms", environment=environment).code == 8
    assert xds("version", environment=environment).out.splitlines()[1] == "server -"


@pytest.mark.parametrize("name", ["live", *_CHECKS])
def test_every_point_has_its_place_in_the_guide(name: str) -> None:
    page, anchor = GUIDE.split("#")
    headings = re.findall(r"^#+ (.+)$", (REPOSITORY / page).read_text(), re.MULTILINE)
    assert f"{anchor}check-{name}" in [heading.lower().replace(" ", "-") for heading in headings]
