"""``check`` and ``version``: points, exit codes, and where to read on."""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from inspect import getdoc
from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.server.load_client import report, reporter, reporting, told
from tests.support import resources as r
from tests.support.commands import COMMANDS, address, xds
from tests.support.grpc_stream import GrpcStream
from tests.support.process import LOOPBACK, REPOSITORY, wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from xds.admin.check_rows import _ROWS, GUIDE
from xds.admin.models.checks import CheckedRow
from xds.cli.health import NEXT

*_FIRST, _LAST = _ROWS
CHECKS = (*(name for name in _FIRST if name != "members"), "sources", _LAST, "version", "tls")
STEPS = {**{name: step for name, (_, step) in _ROWS.items()}, "sources": "xds sources", **NEXT}


def states(remote: Remote) -> dict[str, str]:
    items = remote.xds("check", "-o", "json").json()["items"]
    return {item["check"]: item["state"] for item in items}


def test_every_point_is_checked(remote: Remote) -> None:
    assert states(remote) == dict.fromkeys(("live", *CHECKS), "ok")
    assert remote.xds("check", "--wait").code == 0


def test_open_nacks_are_a_warning(remote: Remote) -> None:
    remote.server.push("checked", [static_cluster("a", 80)])
    with Proxy(remote.server.grpc_port, "checked-1", "checked") as proxy:
        proxy.nack = "no"
        proxy.answer()
        remote.server.wait_nack("checked-1", "clusters")
        assert states(remote)["nacks"] == "warning"
        table = remote.xds("check").out
        assert re.search(r"^nacks +! warning +1 open, by checked-1 +xds nacks --state open$", table, re.M), table
        assert re.search(r"^store +✓ ok .* -$", table, re.M)


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


def reported(server: ServerProcess, running: ExitStack, *stats: object) -> None:
    """A node of group ``default`` reports once; its stream stays open until the test ends."""
    running.enter_context(reporting(server.grpc_port, "edge-1", *stats))
    wait_until(lambda: len(server.get("/load")["items"]) == len(stats), "the report is counted")


def test_a_cluster_that_fails_most_requests_is_reported_with_the_push_before_it(
    tmp_path: Path, running: ExitStack
) -> None:
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory", "--lrs-interval", "10m"]))
    remote = Remote(server)
    server.push("default", [static_cluster("web", 80)], author="ann", message="first")
    assert states(remote)["load"] == "ok"
    down = told("web", 2.0, total_successful_requests=10, total_error_requests=40, total_issued_requests=50)
    dropping = told("breaker", 2.0, total_successful_requests=10, total_issued_requests=10)
    dropping.total_dropped_requests = 40
    fine = told("fine", 2.0, total_successful_requests=60, total_error_requests=40, total_issued_requests=100)
    few = told("few", 2.0, total_error_requests=15, total_issued_requests=15)
    reported(server, running, down, dropping, fine, few)
    checked = remote.xds("check")
    assert checked.code == 0, "a warning"
    (line,) = (line for line in checked.out.splitlines() if line.startswith("load"))
    assert re.search(r"80% of 50 requests to breaker fail \(in \d+ s\), 80% are dropped by the proxies, for \d+s", line)
    assert re.search(
        r"80% of 50 requests to web fail \(in \d+ s\), for \d+s, the push before it: revision 1 of default", line
    )
    assert "(ann), " in line and "fine" not in line and "few" not in line


def test_an_outage_has_failed_within_seconds(tmp_path: Path, running: ExitStack) -> None:
    """A minute of success, then only failed connections: the last ten seconds are looked at by themselves."""
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory", "--lrs-interval", "1s"]))
    remote = Remote(server)
    server.push("default", [static_cluster("web", 80)])
    well = told("web", 50.0, total_successful_requests=5_000, total_issued_requests=5_000)
    stream = running.enter_context(reporting(server.grpc_port, "edge-1", well))
    wait_until(lambda: server.get("/load")["items"], "the first report is counted")
    assert states(remote)["load"] == "ok"
    for _ in range(12):  # seconds of an outage, reported one by one
        stream.send(report(told("web", 1.0, total_error_requests=100), node=reporter("edge-1")))
        time.sleep(1)
    checked = remote.xds("check")
    (line,) = (line for line in checked.out.splitlines() if line.startswith("load"))
    assert checked.code == 1
    assert re.search(r"^load +✗ failed +100% of \d+ requests to web fail \(in 10 s\), for \d+s", line), line
    assert server.get("/load", window="60")["items"][0]["failed_ratio"] < 0.5
    (item,) = server.get("/load", window="60")["items"]
    assert item["rps"] == pytest.approx(item["attempts"] / item["window_s"], rel=0.01), "no connection is a request too"


def test_a_full_store_has_failed(tmp_path: Path, running: ExitStack) -> None:
    environment = {"XDS_STORE__MAX_BYTES": str(1 << 20)}
    server = running.enter_context(ServerProcess(tmp_path, [], environment))
    remote = Remote(server)
    server.push("default", [static_cluster("web", 80)])
    assert states(remote)["store"] == "ok"
    big = {**static_cluster("big", 80), "alt_stat_name": os.urandom(1 << 20).hex()}
    assert server.request("PUT", "/api/v1/groups/default/snapshot", json={"resources": [big]}).status_code == 507
    (row,) = (row for row in server.get("/check")["items"] if row["check"] == "store")
    assert (row["state"], "its limit of 1048576 bytes is reached" in row["detail"]) == ("failed", True)
    assert server.get("/store")["state"] == "full"
    server.push("default", [static_cluster("web", 81)])
    assert states(remote)["store"] == "ok"


def test_a_cluster_in_use_without_a_serving_endpoint_is_named(remote: Remote) -> None:
    used, unused = r.eds_cluster("used"), r.eds_cluster("unused")
    empty = [r.cluster_load_assignment(name, 80) for name in ("used", "unused")]
    for each in empty:
        each["endpoints"][0]["lb_endpoints"][0]["health_status"] = "DRAINING"
    remote.server.push("empty", [used, unused, *empty, r.route_config("r", r.route("used"))])
    assert states(remote)["endpoints"] == "ok", "no proxy is connected"
    with Proxy(remote.server.grpc_port, "empty-1", "empty") as proxy:
        proxy.answer()
        (row,) = (row for row in remote.server.get("/check")["items"] if row["check"] == "endpoints")
        assert (row["state"], row["detail"]) == ("warning", "1 cluster in use without a serving endpoint: empty/used")


def test_refused_streams_are_a_row_and_a_line_under_no_nodes(tmp_path: Path, running: ExitStack) -> None:
    digest = hashlib.sha256(b"secret").hexdigest()
    tokens = json.dumps([{"name": "ci", "sha256": digest, "scopes": ["read"]}])
    environment = {"XDS_AUTH__TOKENS": tokens}
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"], environment, token="secret"))
    token = {**address(server.http_port), "XDS_TOKEN": "secret"}
    assert "refused" not in xds("nodes", environment=token).err
    for _ in range(13):
        with GrpcStream(server.grpc_port) as stream:
            stream.refusal()
    line = "13 streams refused in 10 min, last from 127.0.0.1: no token"
    (row,) = (row for row in server.get("/check")["items"] if row["check"] == "streams")
    assert (row["state"], row["detail"]) == ("warning", line)
    assert line in xds("nodes", environment=token).err
    assert xds("check", environment=token).code == 0, "a warning"
    plain = {**token, "LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0"}
    screen = COMMANDS.run_in_terminal(["nodes"], 80, plain).out
    assert screen.splitlines()[1].startswith(line) and "\\n" not in screen, "each sentence has a line of its own"
    told = COMMANDS.run_in_terminal(["check"], 80, plain)
    assert line not in told.out, "the table has no room"
    assert f"streams ({line}; next: xds watch --kinds auth --since 1h --no-follow)" in told.err


def test_a_node_without_a_group_is_reported_with_the_command_that_explains_it(remote: Remote) -> None:
    with Proxy(remote.server.grpc_port, "apart-1", "apart") as proxy:
        assert proxy
        wait_until(lambda: remote.server.nodes().get("apart-1", {}).get("connected"), "the node")
        assert "1 without a group     why: xds explain apart-1" in remote.xds("nodes", "-l", 'node.id == "apart-1"').err


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


def test_a_server_that_is_not_ready_fails_the_check() -> None:
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


def test_no_server_answers() -> None:
    environment = {"XDS_ADDR": f"{LOOPBACK}:1"}
    assert xds("check", environment=environment).code == 7
    assert xds("check", "--wait", "--timeout", "100ms", environment=environment).code == 8
    assert xds("version", environment=environment).out.splitlines()[1] == "server -"


@pytest.mark.parametrize("name", STEPS)
def test_every_row_names_an_existing_command_or_a_place_to_look(name: str) -> None:
    words = STEPS[name].split()
    assert words[0] == "the" or xds(*words[1:], "--help").code == 0


@pytest.mark.parametrize("name", STEPS)
def test_every_point_has_its_place_in_the_guide(name: str) -> None:
    page, anchor = GUIDE.split("#")
    headings = re.findall(r"^#+ (.+)$", (REPOSITORY / page).read_text(), re.MULTILINE)
    assert f"{anchor}check-{name}" in [heading.lower().replace(" ", "-") for heading in headings]


def test_the_description_names_every_row() -> None:
    assert {*_ROWS, "sources"} <= set(re.findall(r"``(\w+)``", getdoc(CheckedRow) or ""))
