"""A forked server is a process of its own, as one that was started by ``exec``."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.process import LOOPBACK, REPOSITORY, accepts_connections, wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from tests.support.server_forks import ForkedServer, ServerForks, can_fork

MEMORY = ["--store", "memory"]
ANY_PORTS = ["--grpc", f"{LOOPBACK}:0", "--http", f"{LOOPBACK}:0"]


def sockets(pid: int) -> set[str]:
    """The open sockets of a process."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile, as that of this listing
            found.add(str(each.readlink()))
    return {link for link in found if link.startswith("socket:")}


def parent(pid: int) -> int:
    found = re.search(r"^PPid:\s*(\d+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def serve(directory: Path, *arguments: str, environment: dict[str, str] | None = None) -> ForkedServer:
    return ForkedServer("xds", ["serve", *arguments], directory, environment)


@pytest.fixture
def pair(tmp_path: Path, running: ExitStack) -> list[ServerProcess]:
    """Two forked servers."""
    directories = [tmp_path / name for name in ("first", "second")]
    for directory in directories:
        directory.mkdir()
    return [running.enter_context(ServerProcess(directory, MEMORY)) for directory in directories]


@pytest.fixture
def own_forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerForks]:
    """A process that forks, of this test alone."""
    forks = ServerForks()
    monkeypatch.setattr("tests.support.server_forks.FORKS", forks)
    yield forks
    forks.close()


def test_each_fork_has_a_process_id_and_a_session(pair: list[ServerProcess]) -> None:
    first, second = (server.process.pid for server in pair)
    assert len({first, second, parent(first), os.getpid()}) == 4
    assert parent(first) == parent(second)
    assert (os.getsid(first), os.getpgid(first)) == (first, first)
    assert (os.getsid(second), os.getpgid(second)) == (second, second)
    assert Path(f"/proc/{first}/cwd").readlink() == REPOSITORY


def test_no_socket_is_inherited(pair: list[ServerProcess]) -> None:
    first, second = pair
    pids = [os.getpid(), parent(first.process.pid), first.process.pid, second.process.pid]
    held = [sockets(pid) for pid in pids]
    assert held[2]
    assert held[3]
    assert len(set.union(*held)) == sum(len(each) for each in held)


def test_streams_are_its_log_alone(pair: list[ServerProcess]) -> None:
    for server in pair:
        opened = [str(Path(f"/proc/{server.process.pid}/fd/{number}").readlink()) for number in range(3)]
        assert opened == ["/dev/null", str(server.process.log_path), str(server.process.log_path)]
        assert f'"http_port": {server.http_port}' in server.process.log()
    assert f'"http_port": {pair[0].http_port}' not in pair[1].process.log()


def test_state_is_not_shared(pair: list[ServerProcess]) -> None:
    first, second = pair
    first.push("edge", [static_cluster("a", 80)])
    assert [item["group"] for item in first.get("/groups")["items"]] == ["edge"]
    assert second.get("/groups")["items"] == []


def test_sigterm_drains_it_and_sigkill_ends_it(pair: list[ServerProcess]) -> None:
    first, second = pair
    pids = [server.process.pid for server in pair]
    assert first.stop() == 0
    assert second.process.running
    assert second.request("GET", "/readyz").status_code == 200
    second.kill()
    assert second.process.exit_code == -signal.SIGKILL
    assert all(gone(pid) for pid in pids)
    assert not accepts_connections(second.http_port)


def test_signals_by_process_id_arrive(pair: list[ServerProcess]) -> None:
    first, second = pair
    os.kill(first.process.pid, signal.SIGINT)
    wait_until(lambda: not first.process.running, "the end")
    assert first.process.exit_code == 0
    os.killpg(second.process.pid, signal.SIGKILL)
    wait_until(lambda: not second.process.running, "the end")
    assert second.process.exit_code == -signal.SIGKILL


def test_a_stopped_process_is_running(pair: list[ServerProcess]) -> None:
    os.kill(pair[0].process.pid, signal.SIGSTOP)
    assert pair[0].process.running
    os.kill(pair[0].process.pid, signal.SIGCONT)
    assert pair[0].stop() == 0


def test_another_start_is_another_process_on_the_same_ports_and_data(tmp_path: Path, running: ExitStack) -> None:
    server = running.enter_context(ServerProcess(tmp_path))
    server.push("edge", [static_cluster("a", 80)], version="one")
    before = server.process.pid
    server.kill()
    server.start()
    assert server.process.pid != before
    assert server.versions("edge") == {"clusters": "one"}


def test_exit_codes_and_messages_are_those_of_the_command(tmp_path: Path) -> None:
    for arguments, code, told in (
        (["--grpc", "nowhere"], 2, "HOST:PORT"),
        (["--watch", str(tmp_path / "absent"), *MEMORY, *ANY_PORTS], 2, "absent"),
        (["--no-such-flag"], 2, "no-such-flag"),
    ):
        with serve(tmp_path, *arguments) as child:
            wait_until(lambda child=child: not child.running, "the end")  # type: ignore[misc]
            assert child.exit_code == code
            assert told in child.log()
            assert "Traceback" not in child.log()


def test_an_environment_is_of_one_fork(tmp_path: Path) -> None:
    with serve(tmp_path, *MEMORY, *ANY_PORTS, environment={"XDS_STORE__MAX_BYTES": "many"}) as refused:
        wait_until(lambda: not refused.running, "the end")
    assert refused.exit_code == 2
    assert "store.max_bytes" in refused.log()
    (tmp_path / "other").mkdir()
    with serve(tmp_path / "other", *MEMORY, *ANY_PORTS) as other:
        other.wait_until(lambda: "server.ready" in other.log(), "ready")


def test_variables_that_a_library_reads_at_import_rule_out_a_fork() -> None:
    assert can_fork({"XDS_STORE__KIND": "memory"})
    assert not can_fork({"GRPC_VERBOSITY": "debug"})
    assert not can_fork({"PYTHONHASHSEED": "7"})


def test_threads_may_start_forks_at_once_and_all_end_with_the_process_that_forks(
    tmp_path: Path, own_forks: ServerForks
) -> None:
    directories = [tmp_path / str(number) for number in range(4)]
    for directory in directories:
        directory.mkdir()
    with ThreadPoolExecutor() as pool:
        children = list(pool.map(lambda directory: serve(directory, *MEMORY, *ANY_PORTS), directories))
    for child in children:
        child.wait_until(lambda child=child: "server.ready" in child.log(), "ready")  # type: ignore[misc]
    assert len({child.pid for child in children}) == len(children)
    assert len({parent(child.pid) for child in children}) == 1
    assert children[0].stop() == 0
    own_forks.close()
    assert [child.exit_code for child in children[1:]] == [-signal.SIGKILL] * (len(children) - 1)
    assert all(gone(child.pid) for child in children)


def test_forks_end_when_the_process_that_forks_is_killed(tmp_path: Path, own_forks: ServerForks) -> None:
    child = serve(tmp_path, *MEMORY, *ANY_PORTS)
    child.wait_until(lambda: "server.ready" in child.log(), "ready")
    os.kill(parent(child.pid), signal.SIGKILL)
    wait_until(lambda: gone(child.pid), "the end of the fork")
    assert child.exit_code == -signal.SIGKILL
