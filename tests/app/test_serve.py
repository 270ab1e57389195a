"""``xds serve``: start, restart, drain, refusal to start."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.proxy import Proxy
from tests.support.commands import xds
from tests.support.http import plain_client
from tests.support.labels import stem_of
from tests.support.process import LOOPBACK, ChildProcess, free_port
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from tests.support.server_forks import serve_to_end
from xds.app.ports import welcome
from xds.settings.sections import GRPC_PORT, HTTP_PORT

A = static_cluster("a", 80)


def test_a_restart_serves_acknowledged_pushes(tmp_path: Path, running: ExitStack) -> None:
    server = running.enter_context(ServerProcess(tmp_path, environment={"XDS_SERVER__DRAIN_S": "0"}))
    server.push("edge", [A], version="label-1")
    before = server.get("/groups/edge")
    server.kill()
    server.start()
    assert {**server.get("/groups/edge"), "nodes": 0} == before
    assert server.stop() == 0
    server.start()
    assert server.versions("edge") == {"clusters": "label-1"}
    with Proxy(server.grpc_port, "n", "edge") as proxy:
        assert proxy.answer() == "label-1"


def events(log: str) -> list[str]:
    """The events of a log, each line of which must be JSON."""
    return [json.loads(line)["event"] for line in log.splitlines()]


def test_the_log_is_json_lines_only(tmp_path: Path, running: ExitStack) -> None:
    """Also of a warning by Python, of unreadable requests, and of a start that fails."""
    (tmp_path / "old.py").write_text("import warnings\nwarnings.warn('old')\n")
    source = {"kind": "python", "object": "old:make", "directory": str(tmp_path)}
    code, log = serve_to_end(tmp_path, "--store", "memory", environment={"XDS_SOURCES": json.dumps({"own": source})})
    assert (code, events(log)[-1]) == (1, "server.failed")
    assert "UserWarning: old" in json.loads(log.splitlines()[0])["event"]
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"], forked=False))
    for port in (server.grpc_port, server.http_port):
        with socket.create_connection((LOOPBACK, port)) as connection:
            connection.sendall(b"nothing that a server could read\r\n\r\n")
    server.push("edge", [A])
    assert server.stop() == 0
    assert {"server.ready", "snapshot.committed", "server.draining"} <= set(events(server.process.log()))


def test_a_ready_server_shows_its_addresses_and_next_steps_on_a_terminal(tmp_path: Path, running: ExitStack) -> None:
    environment = {"XDS_LOGS__FORMAT": "console"}  # as `auto` is on a terminal
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"], environment))
    server.process.wait_until(lambda: "xds nodes" in server.process.log(), "welcome")
    log = server.process.log()
    assert f"xDS   {LOOPBACK}:{server.grpc_port}" in log
    assert f"--server http://{LOOPBACK}:{server.http_port}" in log


def test_the_next_commands_take_ipv6_and_tls() -> None:
    told = welcome(("::1", 28000), (LOOPBACK, HTTP_PORT), is_https=True)
    assert "xDS   [::1]:28000" in told
    assert "--xds-addr [::1]:28000" in told
    assert f"xds nodes --server https://{LOOPBACK}:{HTTP_PORT}\n" in told
    told = welcome((LOOPBACK, GRPC_PORT), ("::1", 28080))
    assert "--xds-addr" not in told
    assert "xds nodes --server http://[::1]:28080\n" in told
    assert "--server" not in welcome((LOOPBACK, GRPC_PORT), (LOOPBACK, HTTP_PORT))


def test_rest_and_metrics_share_the_http_port(tmp_path: Path, running: ExitStack) -> None:
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"]))
    server.push("edge", [A])
    poll = server.request("POST", "/v3/discovery:clusters", json={"node": {"id": "n", "cluster": "edge"}})
    assert poll.json()["resources"][0]["name"] == "a"
    assert server.metrics()['xds_server_snapshot_revision{group="edge"}'] == 1


def test_a_proxy_of_the_v2_api_polls_in_json(tmp_path: Path, running: ExitStack) -> None:
    """As an Envoy of 2018 does, on a connection of its own."""
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"]))
    server.push("edge", [A])
    body = json.dumps({"node": {"id": "n", "cluster": "edge", "build_version": "1.8.0/RELEASE"}}).encode()
    with socket.create_connection((LOOPBACK, server.http_port)) as connection:
        head = f"POST /v2/discovery:clusters HTTP/1.1\r\nHost: xds_cluster\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\nConnection: close\r\n\r\n"
        connection.sendall(head.encode() + body)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    top, _, content = answer.partition(b"\r\n\r\n")
    assert top.startswith(b"HTTP/1.1 200")
    [cluster] = json.loads(content)["resources"]
    assert (cluster["@type"], cluster["name"]) == ("type.googleapis.com/envoy.api.v2.Cluster", "a")
    assert cluster["load_assignment"]["cluster_name"] == "a"


def test_probes_and_pages_take_head(tmp_path: Path, running: ExitStack) -> None:
    """As load balancers and monitors probe."""
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"]))
    for path in ("/livez", "/readyz", "/metrics", "/", "/docs", "/ui/nodes"):
        with socket.create_connection((LOOPBACK, server.http_port)) as connection:
            connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: {LOOPBACK}\r\nConnection: close\r\n\r\n".encode())
            answer = b"".join(iter(lambda: connection.recv(65536), b""))
        head, _, body = answer.partition(b"\r\n\r\n")
        assert (path, head[:12], body) == (path, b"HTTP/1.1 200", b"")


def test_bodies_beyond_the_limit_are_refused(tmp_path: Path, running: ExitStack) -> None:
    limits = {"XDS_LIMITS__BODY_BYTES": "10000"}
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"], environment=limits))
    url = f"http://{LOOPBACK}:{server.http_port}/api/v1/groups/edge/snapshot"
    with plain_client() as client:
        for content in (b"x" * 20_000, (b"x" * 5_000 for _ in range(10))):  # of a known length, and in chunks
            assert client.put(url, content=content, headers={"content-type": "application/json"}).status_code == 413
    server.push("edge", [A])


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--grpc", "0.0.0.0:0"], "--insecure"),
        (["--grpc", "nowhere"], "HOST:PORT"),
        (["--store", "paper"], "store.kind"),
        (["--lrs-interval", "0s"], "load.interval_s"),
        (["--lrs-interval", "often"], "not a duration"),
        (["--config", "/nonexistent/xds.yaml"], "No such file"),
    ],
)
def test_wrong_usage(flags: list[str], message: str, tmp_path: Path) -> None:
    refused = xds("serve", "--data", tmp_path, *flags)
    assert (refused.code, refused.out) == (2, "")
    assert message in refused.err


def test_a_variable_that_cannot_be_read_is_wrong_usage() -> None:
    refused = xds("serve", "--store", "memory", environment={"XDS_AUTH__TOKEN_SHA256": "abc"})
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("xds: XDS_AUTH__TOKEN_SHA256: ")
    assert "Traceback" not in refused.err


def test_taken_port_and_taken_store(tmp_path: Path, running: ExitStack) -> None:
    server = running.enter_context(ServerProcess(tmp_path))
    http = ["--http", f"{LOOPBACK}:{server.http_port}"]
    code, log = serve_to_end(tmp_path, "--store", "memory", *http)
    assert (code, "cannot listen" in log, events(log), "Traceback" in log) == (1, True, ["server.failed"], False)
    other = ["--grpc", f"{LOOPBACK}:{free_port()}", "--http", f"{LOOPBACK}:{free_port()}"]
    code, log = serve_to_end(tmp_path, "--data", server.data, *other)
    assert (code, "in use by another process" in log, "Traceback" in log) == (1, True, False)


def test_random_bytes_disturb_nobody(tmp_path: Path, running: ExitStack) -> None:
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"]))
    for port in (server.grpc_port, server.http_port):
        with socket.create_connection((LOOPBACK, port)) as connection:
            connection.sendall(bytes(range(256)) * 64)
    server.push("edge", [A])


def test_watched_directory_is_applied_before_the_first_stream(tmp_path: Path, running: ExitStack) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    (watched / "edge.json").write_text(json.dumps({"resources": [A]}))
    (watched / "bad.yaml").write_text("resources:\n- '@type': nothing\n")
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory", "--watch", str(watched)]))
    with Proxy(server.grpc_port, "n", "edge") as proxy:
        assert stem_of(proxy.answer()) == "1"
    assert f"{watched}/bad.yaml:2:" in server.process.log()
    (watched / "edge.json").write_text(json.dumps({"resources": [static_cluster("b", 80)]}))
    server.process.wait_until(lambda: server.get("/groups/edge")["revision"] == 2, "the change is applied")


def test_watching_nothing_is_refused(tmp_path: Path) -> None:
    refused = xds(
        "serve", "--store", "memory", "--watch", tmp_path / "absent", "--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0"
    )
    assert (refused.code, "absent" in refused.err) == (2, True)


def test_trying_things_keeps_nothing_and_watches_a_directory(tmp_path: Path, running: ExitStack) -> None:
    (tmp_path / "xds.d").mkdir()
    (tmp_path / "xds.d" / "edge.json").write_text(json.dumps({"resources": [A]}))
    port = free_port()
    command = (
        f"cd {tmp_path} && exec {sys.executable} -m xds.cli.main serve --dev --grpc {LOOPBACK}:0 --http {LOOPBACK}:"
    )
    server = running.enter_context(ChildProcess("dev", ["bash", "-c", f"{command}{port}"], tmp_path))
    server.wait_until(lambda: "server.ready" in server.log(), "ready")
    groups = xds("get", "groups", "-o", "name", environment={"XDS_ADDR": f"{LOOPBACK}:{port}"})
    assert groups.out == "edge\n"
    assert not (tmp_path / "xds-data").exists()
