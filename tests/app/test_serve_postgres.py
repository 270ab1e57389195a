"""``xds serve --store postgresql://...``: one server on a database, which may be away for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.support import resources as r
from tests.support.commands import address, xds
from tests.support.postgres import PostgresServer
from tests.support.process import wait_until
from tests.support.server import ServerProcess

pytestmark = pytest.mark.soak

CLUSTERS = "/v3/discovery:clusters"
NODE = {"node": {"id": "edge-1", "cluster": "edge"}}


@pytest.fixture
def database() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def running() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def version(server: ServerProcess) -> str:
    answer = server.request("POST", CLUSTERS, json=NODE)
    return str(answer.json()["version_info"])


def test_a_server_keeps_its_state_in_the_database(tmp_path: Path, database: PostgresServer, running: ExitStack) -> None:
    url = database.make_database()
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    server = running.enter_context(ServerProcess(tmp_path / "one", ["--store", url]))
    server.push("edge", [r.static_cluster("a", 1)])
    before = version(server)
    beside = running.enter_context(ServerProcess(tmp_path / "two", ["--store", url]))
    assert version(beside) == before
    beside.stop()
    server.kill()
    after = running.enter_context(ServerProcess(tmp_path / "three", ["--store", url]))
    assert version(after) == before
    assert after.push("edge", [r.static_cluster("a", 2)])["revision"] == 2


def test_a_database_that_is_away_refuses_pushes_and_no_proxy(
    tmp_path: Path, database: PostgresServer, running: ExitStack
) -> None:
    server = running.enter_context(ServerProcess(tmp_path, ["--store", database.make_database()]))
    server.push("edge", [r.static_cluster("a", 1)])
    before = version(server)
    database.kill()
    snapshot = {"resources": [r.static_cluster("a", 2)]}
    refused = server.request("PUT", "/api/v1/groups/edge/snapshot", json=snapshot)
    assert refused.status_code == 503, refused.text
    assert version(server) == before
    checked = xds("check", environment=address(server.http_port))
    assert (checked.code, "has not answered since" in checked.out) == (1, True), checked.out
    database.start()
    push = partial(server.request, "PUT", "/api/v1/groups/edge/snapshot", json=snapshot)
    wait_until(lambda: push().status_code == 200, "pushes are taken again")
    checked_again = partial(xds, "check", environment=address(server.http_port))
    wait_until(lambda: checked_again().code == 0, "the server follows the store again")


def test_a_text_that_the_database_cannot_hold_is_refused(
    tmp_path: Path, database: PostgresServer, running: ExitStack
) -> None:
    server = running.enter_context(ServerProcess(tmp_path, ["--store", database.make_database()]))
    body = {"resources": [r.static_cluster("a\0b", 1)]}
    refused = server.request("PUT", "/api/v1/groups/edge/snapshot", json=body)
    assert (refused.status_code, "NUL" in refused.text) == (422, True), refused.text


def test_an_installation_moves_to_the_database_and_back(
    tmp_path: Path, database: PostgresServer, running: ExitStack
) -> None:
    url = database.make_database()
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
    with ServerProcess(tmp_path / "one") as first:
        for revision in range(1, 4):
            first.push("edge", [r.static_cluster("a", revision)])
        first.push("web", [r.static_cluster("b", 1)])
        before, history, data = version(first), first.get("/groups/edge/revisions")["items"], first.data
        in_use = xds("store", "copy", data, url)
        assert (in_use.code, "is in use by a server" in in_use.err) == (1, True), in_use.err
    copied = xds("store", "copy", data, url)
    assert (copied.code, copied.out) == (0, "group edge: intact at revision 3\ngroup web: intact at revision 1\n")
    again = xds("store", "copy", data, url)
    assert (again.code, "the store is not empty" in again.err) == (1, True), again.err

    with ServerProcess(tmp_path / "two", ["--store", url]) as second:
        assert (version(second), second.get("/groups/edge/revisions")["items"]) == (before, history)
        assert second.push("edge", [r.static_cluster("a", 4)])["revision"] == 4
        later = version(second)
        copied = xds("store", "copy", url, tmp_path / "back")
        assert (copied.code, "group edge: intact at revision 4" in copied.out) == (0, True), copied.err
    back = tmp_path / "three" / "data"
    copied = xds("store", "copy", url, back)
    assert (copied.code, copied.out) == (0, "group edge: intact at revision 4\ngroup web: intact at revision 1\n")
    third = running.enter_context(ServerProcess(tmp_path / "three"))
    assert third.data == back
    assert version(third) == later
    assert [line["revision"] for line in third.get("/groups/edge/revisions")["items"]] == [4, 3, 2, 1]


def test_a_copy_that_cannot_be_made_says_why(tmp_path: Path, database: PostgresServer) -> None:
    tmp_path.joinpath("none").mkdir()
    wrong = xds("store", "copy", "postgresql://xds:secret@db/xds?nonsense=1", tmp_path / "new")
    assert (wrong.code, "not the URL of a PostgreSQL database" in wrong.err) == (2, True), wrong.err
    assert "secret" not in wrong.err
    absent = xds("store", "copy", database.url("absent"), tmp_path / "new")
    assert (absent.code, 'database "absent" does not exist' in absent.err) == (1, True), absent.err
    assert not (tmp_path / "new").exists()
