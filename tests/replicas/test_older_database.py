"""The database is lost, and an older copy of it takes its place: what the servers on it do, and what ends that."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.background import Background
from tests.support.postgres import USER, PostgresServer
from tests.support.process import LOOPBACK, wait_until
from tests.support.proxy import TcpProxy
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess

pytestmark = pytest.mark.soak

TOLD_S = 60.0

Servers = tuple[ServerProcess, ServerProcess]


def revisions(server: ServerProcess) -> dict[str, int]:
    return {each["group"]: each["revision"] for each in server.get("/groups")["items"]}


def store_row(server: ServerProcess) -> tuple[str, str]:
    row: dict[str, Any] = next(each for each in server.get("/check")["items"] if each["check"] == "store")
    return row["state"], row["detail"]


def has_finding(server: ServerProcess, text: str) -> bool:
    return text in store_row(server)[1]


def is_well(server: ServerProcess) -> bool:
    return store_row(server)[0] == "ok"


def push_status(server: ServerProcess, group: str, port: int) -> int:
    body = {"resources": [static_cluster("a", port)]}
    return server.request("PUT", f"/api/v1/groups/{group}/snapshot", json=body).status_code


def restore_newer(servers: Servers, backup: bytes) -> dict[str, int]:
    """What the servers have after a backup of the lost state was restored at one of them."""
    restored = servers[0].request("POST", "/api/v1/restore?replace=true", content=backup)
    assert restored.is_success, restored.text
    return {"edge": 7, "later": 1}


def restart_all(servers: Servers, _: bytes) -> dict[str, int]:
    """What the servers have after a restart of each: they serve what the database has."""
    for server in servers:
        server.stop()
    for server in servers:
        server.start()
    return {"edge": 3}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("decide", [restore_newer, restart_all])
def test_servers_keep_what_they_serve_until_somebody_decides(
    decide: Callable[[Servers, bytes], dict[str, int]], tmp_path: Path, background: Background, running: ExitStack
) -> None:
    database = running.enter_context(PostgresServer())
    link = TcpProxy(background, database.port)
    running.callback(link.close)
    url = f"postgresql://{USER}@{LOOPBACK}:{link.port}/{USER}"

    def started(name: str) -> ServerProcess:
        (tmp_path / name).mkdir()
        return running.enter_context(ServerProcess(tmp_path / name, ["--store", url], advertised=True))

    servers = first, second = started("a"), started("b")
    for number in range(1, 4):
        first.push("edge", [static_cluster("a", number)])
    older = PostgresServer(copy_of=database)
    running.push(older)  # it is started later
    for number in range(4, 8):
        second.push("edge", [static_cluster("a", number)])
    second.push("later", [static_cluster("a", 1)])
    newest = {"edge": 7, "later": 1}
    wait_until(lambda: all(revisions(each) == newest for each in servers), "both have all")
    backup = first.request("GET", "/api/v1/backup").content
    link.cut()
    older._data.joinpath("standby.signal").unlink()  # so it ends recovery with what it has
    database.kill()
    older.start()
    link._target_port = older.port
    link.restore()
    for server in servers:
        wait_until(partial(has_finding, server, "were there"), "it is told", TOLD_S)
        assert store_row(server)[0] == "failed"
        assert revisions(server) == newest
        assert "\nxds_server_store_behind 1.0\n" in server.request("GET", "/metrics").text
        assert (push_status(server, "edge", 99), push_status(server, "later", 99)) == (503, 503)
    assert push_status(first, "other", 1) in (200, 201)
    expected = decide(servers, backup)
    wait_until(lambda: all(revisions(each).items() >= expected.items() for each in servers), "it is decided", TOLD_S)
    for server in servers:
        wait_until(partial(is_well, server), "the check has no finding", TOLD_S)
    pushed = second.push("edge", [static_cluster("a", 99)])
    assert pushed["revision"] == expected["edge"] + 1
    wait_until(lambda: revisions(first)["edge"] == pushed["revision"], "the other has it")
