"""Servers under test, started often and cheaply: one process imports ``xds serve`` and forks for every server.

Importing takes most of the time that a start takes. A fork is a process of its own: it has its own process id, session,
signals, exit code, environment, directory and log, and no descriptor of its parent. Its parent has one thread, no event
loop and no state of grpc, so nothing is lost by the fork. A fork lacks three things that a
start by ``exec`` has: a command line of its own in /proc, memory that is not shared, and settings that the interpreter
or a library reads when it is loaded.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

from tests.support.process import REPOSITORY, ChildProcess, Running, child_environment, dying_with_us, wait_until

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
_MESSAGE_BYTES = 1 << 17
_ENDED = "ended"
_PR_SET_PDEATHSIG = 1
# What the interpreter and the libraries below us read when they are loaded: too late in a fork.
_READ_AT_START = ("PYTHON", "GRPC", "LD_", "MALLOC", "UVLOOP", "PROTOCOL_BUFFERS")


def can_fork(environment: Mapping[str, str]) -> bool:
    """True when a fork can follow this environment, and the system can wait for processes by descriptor (Linux)."""
    return hasattr(os, "pidfd_open") and not any(name.startswith(_READ_AT_START) for name in environment)


class ForkedServer(ChildProcess):
    """``xds`` with arguments, in a fork. ``directory`` is that of its log, ``working`` where it runs."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        directory: Path,
        environment: Mapping[str, str] | None = None,
        working: Path = REPOSITORY,
    ) -> None:
        self._working = working
        super().__init__(name, argv, directory, environment)

    def _start(
        self, argv: Sequence[str], log: IO[bytes], environment: Mapping[str, str] | None, piped: bool
    ) -> Running:
        assert not piped, "a forked server has no pipes"
        return FORKS.start(argv, log, child_environment(environment), self._working)


def serve_to_end(
    directory: Path, *arguments: str | Path, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run ``xds serve`` where it must end by itself; its exit code and all that it wrote.

    ``directory`` is that of its log.
    """
    (directory / f"{_ENDED}.log").unlink(missing_ok=True)
    server = ForkedServer(_ENDED, ["serve", *map(str, arguments)], directory, environment)
    try:
        wait_until(lambda: not server.running, "the server ends", detail=server.log_tail)
        code = server.exit_code
        assert code is not None
        return code, server.log()
    finally:
        server.kill()


class Fork:
    """A forked process, with the methods of ``subprocess.Popen`` that `ChildProcess` uses."""

    stdin: IO[bytes] | None = None
    stdout: IO[bytes] | None = None

    def __init__(self, pid: int, descriptor: int, end: socket.socket) -> None:
        self.pid = pid
        self._descriptor = descriptor  # a signal by descriptor never reaches another process of the same id
        self._end = end
        self._code: int | None = None
        self._reading = threading.Lock()

    def poll(self) -> int | None:
        """The exit code, negative when a signal ended it; None while it runs."""
        with self._reading:
            if self._code is None and _is_readable(self._end, 0):
                message = self._end.recv(_MESSAGE_BYTES)
                # Without a message the forking process has died, and its forks with it.
                self._code = int(message) if message else -signal.SIGKILL
                self._end.close()
                os.close(self._descriptor)
            return self._code

    def wait(self, timeout: float) -> int:
        """The exit code; raises ``TimeoutExpired``."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout)
            _is_readable(self._end, left_s)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class ServerForks:
    """The process that forks, started with the first server."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None

    def start(self, arguments: Sequence[str], log: IO[bytes], environment: Mapping[str, str], working: Path) -> Fork:
        """Fork a process that runs the command ``xds`` with these arguments in the directory ``working``."""
        request = {"arguments": list(arguments), "environment": dict(environment), "working": str(working)}
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, Path(os.devnull).open("rb") as nothing:
            passed = [nothing.fileno(), log.fileno(), log.fileno(), theirs.fileno()]
            socket.send_fds(self._started(), [json.dumps(request).encode()], passed)
        ours.settimeout(START_TIMEOUT_S)
        message, descriptors, _, _ = socket.recv_fds(ours, _MESSAGE_BYTES, 1)
        assert message, f"no fork was started\n{self._read_log()}"
        return Fork(int(message), descriptors[0], ours)

    def close(self) -> None:
        """End the forking process, and its forks."""
        with self._starting:
            if self._control is None or self._process is None or self._log is None:
                return
            self._control.close()
            self._process.wait(STOP_TIMEOUT_S)
            self._log.close()
            self._control = None

    def _started(self) -> socket.socket:
        with self._starting:
            if self._control is None:
                self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                self._log = tempfile.TemporaryFile()  # noqa: SIM115
                with theirs:
                    program = [sys.executable, "-m", "tests.support.server_forks", str(theirs.fileno())]
                    self._process = subprocess.Popen(
                        dying_with_us(program),
                        stdin=subprocess.DEVNULL,
                        stdout=self._log,
                        stderr=self._log,
                        cwd=REPOSITORY,
                        env=child_environment(),
                        pass_fds=[theirs.fileno()],
                    )
            return self._control

    def _read_log(self) -> str:
        if self._log is None:
            return ""
        return os.pread(self._log.fileno(), _MESSAGE_BYTES, 0).decode("utf-8", "replace")


FORKS = ServerForks()


# The process that forks


@dataclass(frozen=True)
class _Request:
    """The command that one fork runs, with the descriptors of its streams."""

    arguments: list[str]
    environment: dict[str, str]
    working: str
    streams: list[int]


@dataclass
class _Forking:
    """Forks by descriptor, with the sockets that their exit codes are sent to."""

    control: socket.socket
    ends: dict[int, tuple[int, socket.socket]] = field(default_factory=dict)

    def run(self) -> _Request | None:
        """Fork for every request. Returns the request in each fork, and None here when the tests have ended."""
        waiting = selectors.PollSelector()  # has no descriptor of its own
        waiting.register(self.control, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd != self.control.fileno():
                    waiting.unregister(key.fd)
                    self._reap(key.fd)
                    continue
                message, descriptors, _, _ = socket.recv_fds(self.control, _MESSAGE_BYTES, 4)
                if not message:
                    self._end_all()
                    return None
                *streams, end = descriptors
                request = _Request(**json.loads(message), streams=streams)
                pid = os.fork()
                if pid == 0:
                    self._leave(end)
                    return request
                waiting.register(self._keep(pid, request, socket.socket(fileno=end)), selectors.EVENT_READ)

    def _keep(self, pid: int, request: _Request, end: socket.socket) -> int:
        for stream in request.streams:
            os.close(stream)
        descriptor = os.pidfd_open(pid)
        self.ends[descriptor] = (pid, end)
        with suppress(OSError):  # the test may have ended meanwhile
            socket.send_fds(end, [str(pid).encode()], [descriptor])
        return descriptor

    def _reap(self, descriptor: int) -> None:
        pid, end = self.ends.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        with end, suppress(OSError):
            end.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _end_all(self) -> None:
        for descriptor in list(self.ends):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            self._reap(descriptor)

    def _leave(self, end: int) -> None:
        """In a fork: close the parent's sockets, before their objects could close other descriptors of that number."""
        os.close(end)
        self.control.close()
        for _, other in self.ends.values():
            other.close()


def _import_all() -> None:
    """Import what a server needs, so that a fork finds it."""
    from xds.codec.resources import decode_resource

    for name in ("xds.app.commands", "xds.app.process", "xds.linkerd.grpc_client"):
        importlib.import_module(name)
    read_commands_once(["serve"])
    for feature in importlib.import_module("xds.app.features").FEATURES:
        feature.routers()  # with what they need of the feature
    decode_resource({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "type": "STATIC"})
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread does not survive a fork"


@contextmanager
def kept_for_good() -> Iterator[None]:
    """No collection of garbage looks at what the body makes, neither now nor later, when it would take as long again.

    In a fork it would also write to the pages that are shared.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def read_commands_once(used: Collection[str] = ()) -> None:
    """Read all commands of the command line here, not in each fork: that takes two thirds of the start of a server.

    The types of their options too, which take two thirds of a small command: those of the commands ``used``, or of all.
    """
    import typer.main

    from xds.cli.app import app
    from xds.cli.main import main

    typer.main.get_command = cache(typer.main.get_command)
    sys.argv = ["xds", "--version"]  # the argument parser imports more when it is first used
    with suppress(SystemExit), redirect_stdout(None):
        main()
    _read_types(typer.main.get_command(app), used)


def _read_types(command: Any, used: Collection[str] = ()) -> None:
    for option in command.params:
        option.get_runtime_param()
    for name, each in getattr(command, "commands", {}).items():
        if not used or name in used:
            _read_types(each)


def _become(request: _Request) -> None:
    """Give this fork its own session, environment, directory and streams."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for stream, target in zip(request.streams, (0, 1, 2), strict=True):
        os.dup2(stream, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.environ.clear()
    os.environ.update(request.environment)
    os.chdir(request.working)
    sys.argv = ["xds", *request.arguments]


def _serve(control: int) -> None:
    os.setpgrp()  # an interrupt at the terminal is for the tests, which end the forks
    with kept_for_good():
        _import_all()
    request = _Forking(socket.socket(fileno=control)).run()
    if request is None:
        return
    _become(request)
    from xds.cli.main import main

    # In a fork: its exceptions and its exit code are those of the interpreter, as after `exec`.
    main()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))


def _is_readable(end: socket.socket, timeout_s: float) -> bool:
    """Whether something can be read within the time. ``select.select`` takes no descriptor above 1023."""
    readable = select.poll()
    readable.register(end, select.POLLIN)
    return bool(readable.poll(timeout_s * 1000))
