"""``xds load`` against a server that a client reports to."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.server.load_client import report, reporting, told
from tests.support.grpc_stream import GrpcStream
from tests.support.process import wait_until
from tests.support.server import ServerProcess


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    """Its windows end with the one report for a while: it is not overdue for minutes."""
    flags = ["--store", "memory", "--lrs-interval", "10m"]
    with ServerProcess(tmp_path_factory.mktemp("server"), flags) as server:
        yield Remote(server)


@pytest.fixture(scope="module")
def stream(remote: Remote) -> Iterator[GrpcStream]:
    """An open stream of node ``edge-1`` in ``r/z1``. Cluster ``web`` is reported."""
    web = told("web", 2.0, total_successful_requests=90, total_error_requests=10, total_issued_requests=100)
    web.upstream_locality_stats[0].total_requests_in_progress = 4
    web.dropped_requests.add(category="lb", dropped_count=3)
    with reporting(remote.server.grpc_port, "edge-1", web, told("idle", 2.0)) as opened:
        wait_until(lambda: remote.server.get("/load")["items"], "the report is counted")
        yield opened


@pytest.mark.usefixtures("stream")
class TestLoad:
    def test_all_clusters(self, remote: Remote) -> None:
        shown = remote.xds("load")
        header, idle, web = shown.out.splitlines()
        columns = ["CLUSTER", "RPS", "ERRORS", "IN-PROGRESS", "DROPS/S", "DROP%", "NODES", "REPORTED"]
        assert header.split() == columns
        assert idle.split()[:2] == ["idle", "0.0"]
        assert web.split()[:7] == ["web", "50.0", "10.0%", "4", "1.5", "2.9%", "1"], "3 of 103 tries in 2 s"
        (wide,) = remote.xds("load", "--columns", "dropped,drops,cluster", "-o", "wide").out.splitlines()[2:]
        assert wide.split() == ["3", "lb=3", "web"]
        assert remote.xds("load", "-o", "name").out.split() == ["idle", "web"]

    def test_one_cluster_by_locality_with_a_summary(self, remote: Remote) -> None:
        shown = remote.xds("load", "web")
        header, row = shown.out.splitlines()
        assert header.split() == ["FROM", "TO", "PRIORITY", "RPS", "ERRORS", "IN-PROGRESS", "SHARE"]
        assert row.split() == ["r/z1", "r/z1", "0", "50.0", "10.0%", "4", "100.0%"]
        dropped = "1.5/s dropped (2.9% of all requests): lb 3"
        assert shown.err == f"web: 50.0 rps over 2 s · 10.0% errors · 4 in progress · {dropped} · 1 node\n"

    def test_one_cluster_by_node(self, remote: Remote) -> None:
        (row,) = remote.xds("load", "web", "--by", "node", "--window", "5m", "--no-headers").out.splitlines()
        assert row.split()[:3] == ["edge-1", "r/z1", "50.0"]

    def test_the_summary_has_the_window_of_the_rows(self, remote: Remote) -> None:
        """Of a node the latest report is kept, whatever the window; rows and summary are both of it."""
        told = remote.xds("load", "web", "--by", "node", "--window", "5m").err
        over = "50.0 rps over the latest report of each node (2 s)"
        assert told == f"web: {over} · 10.0% errors · 4 in progress · 1 node\n"

    def test_documents(self, remote: Remote) -> None:
        found = json.loads(remote.xds("load", "web", "-o", "json").out)
        assert (found["successes"], found["errors"], found["localities"][0]["issued"]) == (90, 10, 100)
        assert "cluster: web\n" in remote.xds("load", "web", "-o", "yaml").out
        assert [item["cluster"] for item in json.loads(remote.xds("load", "-o", "json").out)["items"]] == [
            "idle",
            "web",
        ]

    def test_unknown_clusters_and_nodes_are_reported(self, remote: Remote) -> None:
        nobody = remote.xds("load", "nobody")
        assert (nobody.code, "no recent load reports" in nobody.err) == (4, True)
        assert remote.xds("load", "web", "--by", "color").code == 2
        assert remote.xds("load", "--window", "soon").code == 2
        far = remote.xds("load", "--window", "2h")
        assert (far.code != 0, "window" in far.err) == (True, True)

    def test_load_is_shown_again_when_it_changes(self, remote: Remote, stream: GrpcStream, tmp_path: Path) -> None:
        with remote.start(tmp_path, "load", "-w", "--columns", "cluster,nodes") as following:
            following.wait_until(lambda: "web" in following.log(), "the first rendering")
            stream.send(report(told("late", 2.0, total_successful_requests=1)))
            following.wait_until(lambda: "late" in following.log(), "the second one")
            os.kill(following.pid, signal.SIGINT)
            wait_until(lambda: not following.running, "the end")
            assert following.exit_code == 130
