"""``xds demo``: a request goes through Envoy, and whatever happens, nothing is left of it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from tests.support.process import LOOPBACK, REPOSITORY, child_environment, wait_until

TIMEOUT_S = 100.0
# A user's own settings, and what lies where the demo is started.
FOREIGN = {
    "XDS_SERVER__HTTP__HOST": "0.0.0.0",
    "XDS_SERVER__GRPC__HOST": "0.0.0.0",
    "XDS_STORE__KIND": "postgres",
    "XDS_TOKEN": "of-another-server",
    "http_proxy": "http://127.0.0.1:1",
}
MARK = "OF_THIS_TEST"


class Demo:
    """A demo that runs; ``program`` may change it before."""

    def __init__(self, directory: Path, running: ExitStack, *arguments: str, program: str = "pass") -> None:
        self.directory = directory
        (directory / "http").mkdir()
        (directory / "http" / "__init__.py").write_text("raise ImportError")
        begun = f"import sys; sys.argv[0] = 'xds'; {program}; from xds.cli.main import main; main()"
        self._environment = child_environment({**FOREIGN, MARK: str(directory), "TMPDIR": str(directory)})
        self.child = running.enter_context(
            subprocess.Popen(
                [sys.executable, "-P", "-c", begun, "demo", *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=directory, env=self._environment,
            )
        )  # fmt: skip
        running.callback(self._kill)

    def _kill(self) -> None:
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def read_until(self, text: str) -> str:
        """What it says until a line has this text."""
        assert self.child.stdout is not None
        lines = []
        for line in self.child.stdout:
            lines.append(line)
            if text in line:
                return "".join(lines)
        raise AssertionError(f"no {text!r} in\n{''.join(lines)}")

    def ended(self) -> tuple[int, str]:
        """Its exit code, and what it still said. Nothing is left of it then."""
        said, _ = self.child.communicate(timeout=TIMEOUT_S)
        assert list(self.processes()) == []
        assert list(self.directory.glob("xds-*")) == []
        assert "Traceback" not in said
        return self.child.returncode, said

    def processes(self, word: str = "") -> Iterator[int]:
        """The processes that it started, and itself; those with a word in their command."""
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
                if word.encode() in words and f"{MARK}={self.directory}\0".encode() in (entry / "environ").read_bytes():
                    yield int(entry.name)

    def listening(self) -> set[str]:
        """The addresses, in hexadecimal, on which its processes listen."""
        sockets = {str(link.readlink()) for pid in self.processes() for link in Path(f"/proc/{pid}/fd").iterdir()}
        rows = [
            row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
        ]
        return {row[1].partition(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def test_a_request_goes_through_envoy_and_ctrl_c_ends_all(tmp_path: Path, running: ExitStack) -> None:
    demo = Demo(tmp_path, running)
    said = demo.read_until("Ctrl-C ends it.")
    for line in ("Envoy is connected", "1 of 1 nodes have revision 1", "Hello from the upstream!", "/ui\n"):
        assert line in said
    assert said.count("xds get snapshot") == said.count("xds explain") == 1
    assert demo.listening() == {"0100007F"}
    demo.child.send_signal(signal.SIGINT)
    demo.read_until("ending")
    demo.child.send_signal(signal.SIGINT)  # a second one, while it ends its processes
    assert demo.ended()[0] == 0


def test_a_server_that_ends_at_its_start_is_told(tmp_path: Path, running: ExitStack) -> None:
    demo = Demo(tmp_path, running)
    wait_until(lambda: list(demo.processes("serve")), "the server is started")
    (pid,) = demo.processes("serve")
    os.kill(pid, signal.SIGKILL)
    code, said = demo.ended()
    assert (code, "the server has ended (exit code -9)" in said) == (1, True)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "word"), [("server", "serve"), ("upstream", "http.server"), ("Envoy", "envoy")])
def test_the_end_of_a_process_ends_all(name: str, word: str, tmp_path: Path, running: ExitStack) -> None:
    demo = Demo(tmp_path, running)
    demo.read_until("Ctrl-C ends it.")
    (pid,) = demo.processes(word)
    os.kill(pid, signal.SIGKILL)
    code, said = demo.ended()
    assert (code, f"the {name} has ended (exit code -9)" in said) == (1, True)


@pytest.mark.soak
def test_a_demo_that_is_killed_leaves_no_process(tmp_path: Path, running: ExitStack) -> None:
    demo = Demo(tmp_path, running)
    demo.read_until("Ctrl-C ends it.")
    demo.child.kill()
    wait_until(lambda: not list(demo.processes()), "all end")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.soak)])
def test_a_signal_before_it_is_ready_ends_all(number: signal.Signals, tmp_path: Path, running: ExitStack) -> None:
    demo = Demo(tmp_path, running, "--once")
    wait_until(lambda: list(demo.processes("serve")), "the server is started")
    demo.child.send_signal(number)
    assert demo.ended()[0] == 130


def test_a_port_that_is_taken_meanwhile_is_told(tmp_path: Path, running: ExitStack) -> None:
    taken = running.enter_context(socket.create_server((LOOPBACK, 0)))
    port = taken.getsockname()[1]
    program = f"import xds.cli.demo as demo; (other,) = demo.free_ports(1); demo.free_ports = lambda _: [{port}, other]"
    code, said = Demo(tmp_path, running, program=program).ended()
    assert (code, "rejected listeners web" in said, str(port) in said) == (1, True, True)


def test_make_demo_is_this_demo() -> None:
    assert "\t$(BIN)/xds demo" in (REPOSITORY / "Makefile").read_text()
