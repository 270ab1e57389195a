"""The command line, run often and cheaply: one process imports it and forks for every command.

So each command is a process with its own environment, streams and exit code, without the cost of the imports.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import pkgutil
import pty
import signal
import socket
import struct
import sys
import tempfile
import termios
import threading
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.process import LOOPBACK, REPOSITORY, ChildProcess, child_environment
from tests.support.server_forks import kept_for_good, read_commands_once

COMMAND_TIMEOUT_S = 60
_BACKLOG = 16
_READY = "ready"
# These modules would start threads, which do not survive a fork.
_NOT_IMPORTED = ("xds.app.server", "xds.linkerd.grpc_client")


@dataclass(frozen=True)
class FinishedCommand:
    """One finished command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)


class Commands:
    """Runs commands, also from several threads."""

    def __init__(self) -> None:
        self._starting = threading.Lock()
        self._running = ExitStack()
        self._socket: Path | None = None

    def run(
        self, arguments: Sequence[str], stdin: str = "", environment: Mapping[str, str] | None = None
    ) -> FinishedCommand:
        """Run one command to its end.

        Raises ``TimeoutError``, and ``AssertionError`` if it ends without an exit code.
        """
        with ExitStack() as stack:
            streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
            streams[0].write(stdin.encode())
            for stream in streams:
                stream.seek(0)
            code = self._run(arguments, [stream.fileno() for stream in streams], environment)
            out, err = (_content(stream.fileno()) for stream in streams[1:])
        assert code is not None, f"xds {' '.join(arguments)} ended without an exit code\n{err}"
        return FinishedCommand(code, out, err)

    def run_in_terminal(
        self, arguments: Sequence[str], columns: int, environment: Mapping[str, str] | None = None
    ) -> FinishedCommand:
        """As `run`; standard output is a terminal of this width."""
        with ExitStack() as stack:
            stdin, err = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            screen, stdout = pty.openpty()
            stack.callback(os.close, screen)
            with ThreadPoolExecutor(1) as reading:
                try:
                    fcntl.ioctl(stdout, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
                    shown = reading.submit(_read_screen, screen)
                    code = self._run(arguments, [stdin.fileno(), stdout, err.fileno()], environment)
                finally:
                    os.close(stdout)
                out = shown.result()
            errors = _content(err.fileno())
        assert code is not None, f"xds {' '.join(arguments)} ended without an exit code\n{errors}"
        return FinishedCommand(code, out.replace("\r\n", "\n"), errors)

    def _run(
        self, arguments: Sequence[str], streams: Sequence[int], environment: Mapping[str, str] | None
    ) -> int | None:
        """The exit code; None if there is none."""
        with ExitStack() as stack:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(COMMAND_TIMEOUT_S)
            connection.connect(str(self.path()))
            socket.send_fds(connection, [b"\n"], list(streams))
            request = {"arguments": list(arguments), "environment": child_environment(environment)}
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = stack.enter_context(connection.makefile("r")).readline()
        return int(answer) if answer else None

    def close(self) -> None:
        """End the forking process; the next command starts another."""
        self._running.close()
        self._socket = None

    def path(self) -> Path:
        """The socket of the forking process, which is started if need be."""
        with self._starting:
            if self._socket is None:
                # Not pytest's directory: the path of a socket is short.
                directory = Path(self._running.enter_context(tempfile.TemporaryDirectory(prefix="xds-")))
                path = directory / "commands"
                program = [sys.executable, "-m", "tests.support.commands", str(path)]
                child = self._running.enter_context(ChildProcess("commands", program, directory))
                child.wait_until(lambda: _READY in child.log(), "the command line is imported", COMMAND_TIMEOUT_S)
                self._socket = path
            return self._socket


COMMANDS = Commands()


def xds(*arguments: str | Path, stdin: str = "", environment: Mapping[str, str] | None = None) -> FinishedCommand:
    """Run the command line."""
    return COMMANDS.run([str(argument) for argument in arguments], stdin, environment)


def address(http_port: int) -> dict[str, str]:
    """The environment of commands for a server."""
    return {"XDS_ADDR": f"http://{LOOPBACK}:{http_port}"}


def _read_screen(screen: int) -> str:
    """Everything that is written to a terminal, until no process has it open."""
    data = b""
    while True:
        try:
            found = os.read(screen, 1 << 16)
        except OSError:  # the other side is closed
            found = b""
        if not found:
            return data.decode("utf-8", "replace")
        data += found


def _content(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode("utf-8", "replace")


# The process that forks


def serve(path: str) -> None:
    """Fork for every connection; never returns."""
    with kept_for_good():
        _import_all()
    os.setpgrp()
    signal.signal(signal.SIGTERM, _end_all)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen(_BACKLOG)
    sys.stderr.write(f"{_READY}\n")
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            _answer(connection)
        connection.close()
        _forget_ended()


def _forget_ended() -> None:
    """Reap the forks; their exit codes arrive over the connections."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            continue
    except ChildProcessError:
        return


def _import_all() -> None:
    import xds.cli
    from xds.codec.resources import decode_resource

    for module in pkgutil.walk_packages(xds.cli.__path__, "xds.cli."):
        if module.name not in _NOT_IMPORTED:
            importlib.import_module(module.name)
    for name in ("xds.codec.crosscheck", "xds.codec.json_schema", "xds.settings.settings", "yaml"):
        importlib.import_module(name)
    decode_resource({"@type": "type.googleapis.com/envoy.config.cluster.v3.Cluster", "name": "a", "type": "STATIC"})
    read_commands_once()
    assert "grpc" not in sys.modules
    assert threading.active_count() == 1


def _end_all(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.killpg(0, signal.SIGTERM)


def _answer(connection: socket.socket) -> None:
    """Run one command in the fork and end the process."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(connection.makefile("r").readline())
    for descriptor, target in zip(descriptors, (0, 1, 2), strict=True):
        os.dup2(descriptor, target)
        os.close(descriptor)
    sys.stdin, sys.stdout = open(0, encoding="utf-8"), open(1, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace")  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request.get("directory", REPOSITORY))
    code = _run(request["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(f"{code}\n".encode())
    os._exit(0)


def _run(arguments: list[str]) -> int:
    """The exit code, as the interpreter would end with it."""
    from xds.cli.main import main

    sys.argv = ["xds", *arguments]
    try:
        main()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
