"""What somebody on call asks: what happened, who changed what, and which proxies reject the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.support.envoy import EnvoyProcess
from tests.support.grpc_stream import GrpcStream, sotw
from tests.support.process import free_port, wait_until
from tests.support.resources import static_cluster


@pytest.fixture(autouse=True)
def anew(remote: Remote) -> Iterator[None]:
    yield
    remote.server.begin_anew()


def test_events_of_the_last_minutes_end(remote: Remote) -> None:
    remote.server.push("e1", [static_cluster("a", 80)])
    shown = remote.xds("watch", "--since", "10m", "--no-follow", "--kinds", "push", "-o", "json")
    events = [json.loads(line) for line in shown.out.splitlines()]
    assert shown.code == 0 and shown.err == ""
    assert ("push", "e1", 1) in [(event["kind"], event["group"], event["revision"]) for event in events]
    last = events[-1]["id"]
    remote.server.push("e1", [static_cluster("b", 80)])
    later = remote.xds("watch", "--since", last, "--no-follow", "-g", "e1", "--kinds", "push", "-o", "json")
    assert [json.loads(line)["revision"] for line in later.out.splitlines()] == [2]
    future = remote.xds("watch", "--since", "2999-01-01T00:00:00Z", "--no-follow")
    assert future.out == ""
    whole = remote.xds("watch", "--no-follow", "-g", "e1", "--kinds", "push", "-o", "json")
    assert [json.loads(line)["revision"] for line in whole.out.splitlines()] == [1, 2]
    assert remote.xds("watch", "--since", "yesterday", "--no-follow").code == 2


def test_changes_of_all_groups(remote: Remote) -> None:
    remote.server.push("g1", [static_cluster("a", 80)], message="first")
    remote.xds("group", "set", "g2", "--selector", 'node.cluster == "x"')
    remote.server.push("g3", [static_cluster("a", 80)], message="third")
    shown = remote.xds("history", "--since", "5m")
    rows = [line for line in shown.out.splitlines() if re.search(r"\bg[123]\b", line)][:3]
    assert [re.findall(r"\bg[123]\b", row)[0] for row in rows] == ["g3", "g2", "g1"]
    assert "third" in rows[0] and "group" in rows[1] and "revision 1 first" in rows[2]
    only = remote.xds("history", "-g", "g1", "-o", "json").json()["items"]
    assert {item["group"] for item in only} == {"g1"}
    assert remote.xds("history", "--until", "1h", "-o", "json").json()["items"] == []
    assert remote.xds("history", "--until", "soon").code == 2


def test_names_are_in_natural_order(remote: Remote) -> None:
    with ExitStack() as stack:
        remote.server.push("edge", [static_cluster("c", 80)])
        for number in (10, 2, 1):
            proxy = stack.enter_context(Proxy(remote.server.grpc_port, f"edge-{number}", "edge"))
            proxy.answer()
        assert remote.xds("nodes", "-g", "edge", "-o", "name").out.split() == ["edge-1", "edge-2", "edge-10"]
    for number in (10, 2):
        remote.server.push(f"team-{number}", [static_cluster(f"c{each}", 80) for each in (10, 9)])
    assert remote.xds("get", "groups", "-o", "name").out.split() == ["edge", "team-2", "team-10"]


def test_a_custom_type_has_a_column(remote: Remote) -> None:
    flag = {"@type": "type.googleapis.com/acme.FeatureFlag", "@value_base64": "CgFh", "@name": "a"}
    remote.server.push("edge", [static_cluster("c", 80), flag])
    assert "FEATUREFLAG" not in remote.xds("nodes").out
    with GrpcStream(remote.server.grpc_port) as stream:
        stream.send(sotw("type.googleapis.com/acme.FeatureFlag", ["a"], node_id="flagged", cluster="edge"))
        stream.receive()
        wait_until(lambda: "flagged" in remote.server.nodes(), "the node")
        shown = remote.xds("nodes", "-g", "edge").out.splitlines()
        assert re.search(r"SDS +FEATUREFLAG +NOTE$", shown[0])
        assert any(re.match(r"flagged .* … \d+ PENDING", line) for line in shown), shown
        assert remote.xds("nodes", "-g", "edge", "--columns", "node,featureflag").out.startswith("NODE")


def test_equal_nacks_are_one_row(remote: Remote) -> None:
    remote.server.push("edge", [static_cluster("a", 80)])
    with ExitStack() as stack:
        proxies = [
            stack.enter_context(Proxy(remote.server.grpc_port, f"edge-{number}", "edge")) for number in (1, 2, 10, 11)
        ]
        for proxy in proxies:
            proxy.answer()
        remote.server.wait_synced("edge", "edge-11")
        remote.server.push("edge", [static_cluster("a", 81), static_cluster("b", 80)])
        for number, proxy in enumerate(proxies):
            proxy.nack = "no b here" if number < 3 else "another reason"
            proxy.answer()
        for node in ("edge-1", "edge-2", "edge-10", "edge-11"):
            remote.server.wait_nack(node, "clusters")
        header, *rows = remote.xds("nacks", "-g", "edge").out.splitlines()
        assert header.split()[:2] == ["LAST", "REFUSED"] and len(rows) == 2
        assert "edge-1, edge-2, edge-10" in rows[0] and rows[0].endswith("no b here")
        assert len(remote.xds("nacks", "-g", "edge", "--each").out.splitlines()) == 5
        assert len(remote.xds("nacks", "-g", "edge", "-o", "json").json()["items"]) == 4
        assert len(remote.xds("nacks", "-g", "edge", "--sort-by", "node").out.splitlines()) == 5


def test_the_admin_port_of_an_envoy_is_shown(remote: Remote, tmp_path: Path) -> None:
    """From the bootstrap to ``describe node``, by way of a real Envoy."""
    port = free_port()
    address = f"127.0.0.1:{remote.server.grpc_port}"
    given = ["--node-id", "told-1", "--cluster", "edge", "--xds-addr", address, "--admin-port", str(port)]
    written = remote.xds("bootstrap", *given, "-o", "json")
    assert written.err == f"Envoy's admin page: http://127.0.0.1:{port}, also in `xds describe node told-1`\n"
    assert "--admin-port sets one" in remote.xds("bootstrap", "--node-id", "x").err
    remote.server.push("edge", [static_cluster("c", 80)])
    with EnvoyProcess(tmp_path, written.json()):
        wait_until(lambda: "told-1" in remote.server.nodes(), "the node")
        described = remote.xds("describe", "node", "told-1").out
        assert re.search(rf"^admin: +http://127\.0\.0\.1:{port}, on its machine$", described, re.MULTILINE)


def test_a_port_that_envoy_chose_is_found_in_its_log(remote: Remote, tmp_path: Path) -> None:
    """Envoy does not report it; ``describe node`` says where it stands."""
    address = f"127.0.0.1:{remote.server.grpc_port}"
    given = remote.xds("bootstrap", "--node-id", "chosen-1", "--cluster", "edge", "--xds-addr", address, "-o", "json")
    remote.server.push("edge", [static_cluster("c", 80)])
    with EnvoyProcess(tmp_path, given.json()):
        wait_until(lambda: "chosen-1" in remote.server.nodes(), "the node")
        described = remote.xds("describe", "node", "chosen-1").out
        assert re.search(r"^admin: +Envoy logged it as `admin address`; .*--admin-port", described, re.MULTILINE)
