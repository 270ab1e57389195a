"""Faults of the store's files, and how the server reports and survives them (docs/internals/design.md#failures)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support import resources as r
from tests.support.commands import FinishedCommand, address, xds
from tests.support.process import LOOPBACK, REPOSITORY, free_port, wait_until
from tests.support.server import ServerProcess
from tests.support.server_forks import serve_to_end
from xds.store.sqlite.files import acknowledged_of

from .test_disk import NAMESPACE, big, check_serving, mounting, push
from .test_durability import _serve

Json = dict[str, Any]

pytestmark = pytest.mark.xdist_group("store faults")  # they share a server

DATABASE = "xds.sqlite3"
RAW_WORDS = ("malformed", "disk image", "UTF-8", "I/O error", "Traceback", "not a database")


def check(server: ServerProcess) -> FinishedCommand:
    return xds("check", environment=address(server.http_port))


def lost(server: ServerProcess) -> bool:
    return server.metrics()["xds_server_store_lost"] == 1.0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose files the tests remove and restore."""
    with ServerProcess(tmp_path_factory.mktemp("shared")) as server:
        yield server


def test_a_store_that_was_moved_away_takes_pushes_when_it_is_back(shared: ServerProcess) -> None:
    first = push(shared, [r.static_cluster("a", 1)]).json()
    assert not lost(shared)
    elsewhere = shared.data.with_name("elsewhere")
    shared.data.rename(elsewhere)
    refused = push(shared, [r.static_cluster("b", 1)], "moved")
    assert refused.status_code == 503 and "moved or deleted under the server" in refused.json()["detail"]
    settings = shared.request("PUT", "/api/v1/groups/test", json={"priority": 1})
    assert settings.status_code == 503, "nothing else is acknowledged either"
    check_serving(shared, first)
    assert lost(shared)
    told = check(shared)
    assert told.code == 1 and "moved or deleted" in told.out
    elsewhere.rename(shared.data)
    done = push(shared, [r.static_cluster("b", 1)], "moved")
    assert (done.status_code, done.json()["revision"], lost(shared)) == (200, first["revision"] + 1, False)
    shared.kill()
    shared.start()
    check_serving(shared, done.json())


def test_a_log_that_was_deleted_loses_nothing(shared: ServerProcess) -> None:
    first = push(shared, [r.static_cluster("c", 1)]).json()
    (shared.data / f"{DATABASE}-wal").unlink()
    assert push(shared, [r.static_cluster("d", 1)], "log").status_code == 503
    done = push(shared, [r.static_cluster("d", 1)], "log")
    assert (done.status_code, done.json()["revision"]) == (200, first["revision"] + 1)
    shared.kill()
    shared.start()
    check_serving(shared, done.json())


def test_a_store_that_was_replaced_is_not_written(shared: ServerProcess, tmp_path: Path) -> None:
    first = push(shared, [r.static_cluster("e", 1)]).json()
    path = shared.data / DATABASE
    path.rename(tmp_path / "own")
    shutil.copyfile(tmp_path / "own", path)
    refused = push(shared, [r.static_cluster("f", 1)])
    assert refused.status_code == 503 and "replaced under the server" in refused.json()["detail"]
    check_serving(shared, first)
    (tmp_path / "own").replace(path)
    assert push(shared, [r.static_cluster("f", 1)]).status_code == 200


def test_a_running_store_is_not_touched(shared: ServerProcess) -> None:
    held = xds("store", "check", "--data", shared.data)
    assert held.code == 1 and "in use by a server" in held.err


def test_a_store_that_went_back_says_so(server: ServerProcess) -> None:
    for number in range(8):
        push(server, [r.static_cluster("a", number + 1)])
    database = server.data / DATABASE
    wait_until(lambda: acknowledged_of(database).newest >= 8, "what is acknowledged is noted, once a second")
    server.kill()
    log = server.data / f"{DATABASE}-wal"
    with log.open("rb+") as file:
        file.truncate(log.stat().st_size // 2)
    server.start()
    revision = server.get("/groups/test")["revision"]
    assert 0 < revision < 8
    assert "store.behind" in server.process.log()
    assert server.metrics()["xds_server_store_behind"] == 1.0
    told = check(server)
    assert told.code == 1 and "were acknowledged and are not in the store" in told.out
    assert push(server, [r.static_cluster("b", 1)]).json()["revision"] == revision + 1


@pytest.mark.soak
def test_an_empty_database_file_is_reported(server: ServerProcess) -> None:
    push(server, [r.static_cluster("a", 1)])
    server.stop()
    for path in server.data.iterdir():
        if path.name != f"{DATABASE}.acknowledged":
            path.unlink()
    (server.data / DATABASE).touch()
    server.start()
    log_text = server.process.log()
    assert "store.empty" in log_text and "store.behind" in log_text
    assert check(server).code == 1
    server.stop()
    server.start()
    assert server.get("/store")["state"] == "behind", "it is not forgotten by a restart"


class Filled(NamedTuple):
    """The file of a server that ended, and what it served of the group ``sound``."""

    database: bytes
    expected: Json


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    with ServerProcess(tmp_path_factory.mktemp("filled")) as server:
        server.push("sound", [r.static_cluster("sound", 1)])
        server.push("spoiled", [r.static_cluster("c", 1, alt_stat_name="first")])
        server.push("spoiled", [r.static_cluster("c", 1, alt_stat_name="secondsecond")])
        expected = server.get("/groups/sound/snapshot")
        server.stop()
        found = xds("store", "check", "--data", server.data, "-o", "json")
        groups = {"sound": "intact at revision 1", "spoiled": "intact at revision 2"}
        assert (found.code, found.json()["groups"]) == (0, groups)
        return Filled((server.data / DATABASE).read_bytes(), expected)


# What is saved of which damage is tested without a server (tests/store/test_damage.py).
@pytest.mark.parametrize(
    "kind", ["bodies", pytest.param("half", marks=pytest.mark.soak), pytest.param("no header", marks=pytest.mark.soak)]
)
def test_a_damaged_store_is_reported_and_undamaged_groups_are_copied(
    filled: Filled, server: ServerProcess, tmp_path: Path, kind: str
) -> None:
    data = filled.database
    path = tmp_path / "damaged" / DATABASE
    path.parent.mkdir()
    path.write_bytes(
        {
            "half": data[: len(data) // 2],
            "no header": bytes(100) + data[100:],
            "bodies": data.replace(b"secondsecond", b"secondsecXnd"),
        }[kind]
    )
    code, message = _serve(path.parent, tmp_path)
    last = message.strip().splitlines()[-1]
    assert code == 1 and "cannot serve" in last
    assert not [word for word in RAW_WORDS if word in last]
    damaged = path.read_bytes()  # the server has tried to open it
    told = xds("store", "check", "--data", path.parent)
    assert told.code == 1 and not [word for word in RAW_WORDS if word in told.out + told.err]
    copied = xds("store", "copy", path.parent, tmp_path / "copy")
    assert (path.read_bytes(), copied.code) == (damaged, 1)
    assert (tmp_path / "copy").exists() == (kind == "bodies")
    if kind == "bodies":
        assert "group spoiled: damaged" in copied.out
        server.stop()
        shutil.rmtree(server.data)
        (tmp_path / "copy").rename(server.data)
        server.start()
        assert server.get("/groups/sound/snapshot") == filled.expected
        assert [each["group"] for each in server.get("/groups")["items"]] == ["sound"]
        assert "push" in {item["action"] for item in server.get("/audit")["items"]}


def test_a_store_that_is_deleted_stops_acknowledging_at_once(shared: ServerProcess) -> None:
    """The last one: nothing is left of the server's files."""
    first = push(shared, [r.static_cluster("a", 1)]).json()

    def is_deleted() -> bool:
        shutil.rmtree(shared.data)  # fails if the server notes what it has acknowledged meanwhile, once a second
        return True

    wait_until(is_deleted, "all files are deleted")
    refused = push(shared, [r.static_cluster("b", 1)])
    assert refused.status_code == 503 and "moved or deleted under the server" in refused.json()["detail"]
    check_serving(shared, first)
    assert lost(shared)


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[tuple[list[str], Path]]:
    """A command that runs a program where ``data`` is a file system of 4 MiB of its own, and where we see it."""
    mount = 'mkdir -p "$0" && mount -t tmpfs -o size=4m none "$0" && echo && exec sleep 600'
    argv = [*NAMESPACE, "sh", "-c", mount, str(tmp_path / "data")]
    holder = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        inside = [
            "nsenter",
            f"--user=/proc/{holder.pid}/ns/user",
            f"--mount=/proc/{holder.pid}/ns/mnt",
            "--preserve-credentials",
            f"--wd={REPOSITORY}",
        ]
        yield inside, Path(f"/proc/{holder.pid}/root{tmp_path}/data")
    finally:
        holder.kill()
        holder.wait()


def fill_up(seen: Path) -> None:
    """Fill the disk. The server may write after the free space was measured: then the last block does not fit."""
    with suppress(OSError):
        (seen / "filler").write_bytes(bytes(shutil.disk_usage(seen).free))


@mounting
def test_one_server_starts_on_a_full_disk_after_a_crash(
    tmp_path: Path, full_disk: tuple[list[str], Path], running: ExitStack
) -> None:
    """The refused push must not fill the disk, and a start must need no space.

    The server holds none of SQLite's locks. A second one started, and both became writable: one revision, two contents.
    """
    inside, seen = full_disk
    server = running.enter_context(ServerProcess(tmp_path, prefix=inside))
    first = push(server, [r.static_cluster("a", 1_000)]).json()
    refused = push(server, [resource for name in "abcdefghijkl" for resource in big(name)])
    assert refused.status_code == 507, refused.text
    assert (seen / f"{DATABASE}-wal").stat().st_size < 1 << 20, "its pages are given back"
    fill_up(seen)
    server.kill()
    server.start()
    check_serving(server, first)
    assert "store.read_only" in server.process.log()
    check_alone(lambda *arguments: executed(inside, *arguments), server)
    (seen / "filler").unlink()
    done = push(server, [r.static_cluster("b", 1_000)])
    assert (done.status_code, done.json()["revision"]) == (200, 2)
    check_no_second(lambda *arguments: executed(inside, *arguments), server)
    check_serving(server, done.json())
    server.kill()
    server.start()
    check_serving(server, done.json())


Run = Callable[..., tuple[int, str]]  # runs ``xds`` with arguments: the exit code and what it wrote of errors


def executed(inside: list[str], *arguments: str) -> tuple[int, str]:
    argv = [*inside, sys.executable, "-m", "xds.cli.main", *arguments]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return ended.returncode, ended.stderr


def check_alone(run: Run, server: ServerProcess) -> None:
    """Neither another server nor a command of the store uses the directory."""
    check_no_second(run, server)
    for arguments in (["check", "--data", str(server.data)], ["copy", str(server.data), "copy"]):
        check_told(run("store", *arguments), "in use by a server: stop it first")


def check_no_second(run: Run, server: ServerProcess) -> None:
    """No other server uses the directory."""
    ports = [f"--{port}={LOOPBACK}:{free_port()}" for port in ("grpc", "http")]
    told = "in use by another process: only one server can use it"
    check_told(run("serve", "--data", str(server.data), *ports), told)


def check_told(ended: tuple[int, str], told: str) -> None:
    code, message = ended
    assert (code, told in message, "Traceback" in message) == (1, True, False), message


@mounting
def test_a_read_only_file_system_is_served(server: ServerProcess, tmp_path: Path, running: ExitStack) -> None:
    first = push(server, [r.static_cluster("a", 1_000)]).json()
    server.kill()
    mount = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
    prefix = [*NAMESPACE, "sh", "-c", mount, str(server.data)]
    served = running.enter_context(ServerProcess(tmp_path, prefix=prefix))
    check_serving(served, first)
    refused = push(served, [r.static_cluster("b", 1_000)])
    assert refused.status_code == 507 and "can only be read" in refused.json()["detail"]
    assert served.metrics()["xds_server_store_read_only"] == 1.0

    def run(command: str, *arguments: str) -> tuple[int, str]:
        if command == "serve":
            return serve_to_end(tmp_path, *arguments)
        ended = xds(command, *arguments)
        return ended.code, ended.err

    check_alone(run, served)
    told = check(served)
    assert told.code == 1 and "can only be read" in told.out
    taken = xds("backup", tmp_path / "xds.tar", environment=address(served.http_port))
    assert taken.code == 0, "and it can be saved"
    served.stop()
    wait_until(lambda: server.start() is server, "it starts as before")
    check_serving(server, first)
