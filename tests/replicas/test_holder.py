"""Server processes on one PostgreSQL: members, and the one of them that holds the lease."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands import COMMANDS
from tests.support.process import LOOPBACK, wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess

TAKES_OVER_S = 25.0  # the lease runs out within 10 s, and is looked at every 2 s
STOPPED_S = 15.0

pytestmark = pytest.mark.soak

Start = Callable[..., ServerProcess]


@pytest.fixture
def start(url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a server with more flags."""
    with ExitStack() as running:

        def started(*flags: str) -> ServerProcess:
            folder = tmp_path / f"server-{len(list(tmp_path.iterdir()))}"
            folder.mkdir()
            return running.enter_context(ServerProcess(folder, ["--store", url, *flags]))

        yield started


def name(server: ServerProcess) -> str:
    return f"{LOOPBACK}:{server.http_port}"


def members(server: ServerProcess) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = server.get("/members")["items"]
    return items


def holder(server: ServerProcess) -> str:
    return next((each["id"] for each in members(server) if each["is_holder"]), "")


def all_know(*servers: ServerProcess) -> bool:
    names = {name(each) for each in servers}
    return all({each["id"] for each in members(server)} == names and holder(server) in names for server in servers)


def holds_lease(server: ServerProcess) -> bool:
    return "\nxds_server_lease_held 1.0\n" in server.request("GET", "/metrics").text


def split(servers: list[ServerProcess]) -> tuple[ServerProcess, list[ServerProcess]]:
    """The holder, and the others."""
    held_by = holder(servers[0])
    return next(each for each in servers if name(each) == held_by), [each for each in servers if name(each) != held_by]


def test_another_server_holds_the_lease_after_a_kill(start: Start) -> None:
    servers = [start() for _ in range(3)]
    wait_until(lambda: all_know(*servers), "all know each other", TAKES_OVER_S)
    assert [holds_lease(each) for each in servers].count(True) == 1
    killed, others = split(servers)
    killed.kill()
    begun_s = time.monotonic()
    wait_until(lambda: any(map(holds_lease, others)), "another holder", TAKES_OVER_S)
    assert time.monotonic() - begun_s > 2
    wait_until(lambda: all_know(*others), "the killed one is gone", TAKES_OVER_S)
    killed.start()
    wait_until(lambda: all_know(*servers), "it is back", TAKES_OVER_S)
    assert [holds_lease(each) for each in servers].count(True) == 1
    stopped, others = split(servers)
    stopped.stop()
    begun_s = time.monotonic()
    wait_until(lambda: any(map(holds_lease, others)), "the next holder", TAKES_OVER_S)
    assert time.monotonic() - begun_s < 9, "a server that ends gives the lease back"


def test_never_two_servers_hold_the_lease_while_one_is_stopped(start: Start) -> None:
    servers = [start() for _ in range(2)]
    wait_until(lambda: all_know(*servers), "both know each other", TAKES_OVER_S)
    stopped, (other,) = split(servers)
    pid = stopped.process.pid
    for _ in range(2):
        os.kill(pid, signal.SIGSTOP)
        ends_s = time.monotonic() + STOPPED_S
        taken = False
        while time.monotonic() < ends_s:
            taken = taken or holds_lease(other)
            time.sleep(0.05)
        os.kill(pid, signal.SIGCONT)
        assert taken
        ends_s = time.monotonic() + 5.0
        while time.monotonic() < ends_s:
            assert not holds_lease(stopped) and holds_lease(other)
        wait_until(lambda: all_know(*servers), "both know each other again", TAKES_OVER_S)
        stopped, other = other, stopped
        pid = stopped.process.pid


def test_a_new_secret_leaves_no_server_unanswered(start: Start, url: str) -> None:
    servers = [start() for _ in range(2)]
    wait_until(lambda: all_know(*servers), "both know each other", TAKES_OVER_S)
    rotated = COMMANDS.run(["store", "rotate-secret", url])
    assert rotated.code == 0, rotated.err
    ends_s = time.monotonic() + 16.0
    while time.monotonic() < ends_s:
        for server in servers:
            answer = server.get("/members")
            assert "partial" not in answer and all(each["problem"] == "" for each in answer["items"])


def test_of_two_servers_with_one_address_the_second_is_told(start: Start) -> None:
    first = start("--advertise", "http://localhost:1")
    second = start("--advertise", "http://localhost:1")
    wait_until(lambda: "server.advertise" in members(second)[0]["problem"], "it is told", TAKES_OVER_S)
    rows = {row["check"]: row["state"] for row in second.get("/check")["items"]}
    assert rows["members"] == "failed"
    assert [each["problem"] for each in members(first)] == [""]
    assert holds_lease(first) and not holds_lease(second)
    assert first.push("edge", [static_cluster("a", 80)])["revision"] == 1
    wait_until(lambda: second.request("GET", "/api/v1/groups/edge").status_code == 200, "it serves what the first has")
    first.kill()
    wait_until(lambda: holds_lease(second), "it is the member now", TAKES_OVER_S)
    assert members(second)[0]["problem"] == ""


def test_the_next_holder_applies_the_watched_directory(start: Start, tmp_path: Path) -> None:
    watched = tmp_path / "watched"
    watched.mkdir()
    servers = [start("--watch", str(watched)) for _ in range(2)]
    wait_until(lambda: all_know(*servers), "both know each other", TAKES_OVER_S)

    def put(cluster: str) -> None:
        (watched / "edge.yaml").write_text(yaml.safe_dump({"resources": [static_cluster(cluster, 80)]}))

    def has(server: ServerProcess, cluster: str) -> bool:
        answer = server.request("GET", f"/api/v1/groups/edge/resources/clusters/{cluster}")
        return answer.status_code == 200

    put("a")
    wait_until(lambda: all(has(each, "a") for each in servers), "the file is applied")
    assert servers[0].get("/groups/edge")["revision"] == 1
    killed, (other,) = split(servers)
    killed.kill()
    put("b")
    wait_until(lambda: has(other, "b"), "the next holder applies it", TAKES_OVER_S)
    assert other.get("/groups/edge")["revision"] == 2
