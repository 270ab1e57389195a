"""Child processes of the tests: started without a fork hook, logged to a file, always ended.

A process that has grpc loaded must not fork Python code (a ``preexec_fn`` runs grpc's fork handlers and breaks its
epoll), so children start by vfork and exec only.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self, TypeVar

T = TypeVar("T")

REPOSITORY = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
DEADLINE_S = 40.0
POLL_INTERVAL_S = 0.01
# A wait takes at most a fifth longer than what it waits for; many that are polled often would keep a core busy.
POLL_SHARE = 0.2
LONGEST_POLL_INTERVAL_S = 0.25
STOP_TIMEOUT_S = 10.0
LOG_TAIL_BYTES = 4_000
FIRST_FREE_PORT = 10_000
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy")


def wait_until(
    condition: Callable[[], T],
    what: str,
    deadline_s: float = DEADLINE_S,
    detail: Callable[[], object] | None = None,
    every_s: float = POLL_INTERVAL_S,
) -> T:
    """Poll ``condition`` until it is true and return its value.

    The interval is ``every_s`` at first and grows with the time waited. An ``OSError`` (refused, reset) counts as
    false. Raises ``AssertionError`` after ``deadline_s`` seconds, with ``what``, the last value or error, and
    ``detail()``.
    """
    begun = time.monotonic()
    last: object = None
    while (waited_s := time.monotonic() - begun) < deadline_s:
        try:
            value = condition()
        except OSError as error:
            last = error
        else:
            if value:
                return value
            last = value
        time.sleep(max(every_s, min(waited_s * POLL_SHARE, LONGEST_POLL_INTERVAL_S)))
    extra = "" if detail is None else f"\n{detail()}"
    raise AssertionError(f"not within {deadline_s:g} s: {what}; last: {last!r}{extra}")


DEFAULT_PORTS = frozenset({10_000, 18_000, 18_080, 19_000})  # of the server, and of what the documentation starts
_RANDOM = random.SystemRandom()  # Hypothesis seeds the module's own: runs side by side would draw the same ports
_given: set[int] = set()
_reservations: list[IO[bytes]] = []


def free_port() -> int:
    """A free port outside the range of ephemeral ports.

    A server that is restarted must find its port still free; an ephemeral port may be taken by a connection of another
    test by then. No port is returned twice, nor one that something uses by default.
    """
    first_ephemeral = _first_ephemeral_port()
    for _ in range(1_000):
        port = _RANDOM.randrange(FIRST_FREE_PORT, first_ephemeral)
        if port in _given or port in DEFAULT_PORTS or not reserve_port(port):
            continue
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            _given.add(port)
            return port
    raise AssertionError("no free port on the loopback address")


def reserve_port(port: int) -> bool:
    """Keep a port for this process until it ends; False if another process of any run of the tests keeps it.

    The user of a port may not have bound it yet, or may be restarting. The locks are on single bytes of one file.
    """
    if not _reservations:
        _reservations.append((Path(tempfile.gettempdir()) / f"xds-test-ports-{os.getuid()}").open("ab"))
    try:
        fcntl.lockf(_reservations[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _first_ephemeral_port() -> int:
    ranges = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(ranges.read_text().split()[0]) if ranges.exists() else 32_768
    return max(first, FIRST_FREE_PORT + 5_000)


def accepts_connections(port: int) -> bool:
    """True when something accepts TCP connections on the loopback port."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1):
            return True
    except OSError:
        return False


def child_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a child: ours without proxies, plus ``extra``."""
    environment = {name: value for name, value in os.environ.items() if name.lower() not in PROXY_VARIABLES}
    return {**environment, "GRPC_ENABLE_FORK_SUPPORT": "0", "PYTHONUNBUFFERED": "1", **(extra or {})}


class Running(Protocol):
    """A started process: the methods of ``subprocess.Popen`` that are used here."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None: ...
    def wait(self, timeout: float) -> int: ...
    def send_signal(self, number: int, /) -> None: ...
    def kill(self) -> None: ...


class ChildProcess:
    """One started child. Its standard error, and its output unless that is piped, is kept in ``log_path``."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str | Path],
        directory: Path,
        environment: Mapping[str, str] | None = None,
        piped: bool = False,
    ) -> None:
        self.name = name
        self.log_path = directory / f"{name}.log"
        with self.log_path.open("ab") as log:
            self._popen = self._start([str(argument) for argument in argv], log, environment, piped)

    def _start(
        self, argv: Sequence[str], log: IO[bytes], environment: Mapping[str, str] | None, piped: bool
    ) -> Running:
        return subprocess.Popen(
            dying_with_us(argv),
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else log,
            stderr=log,
            cwd=REPOSITORY,
            env=child_environment(environment),
        )

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._popen.poll()

    @property
    def running(self) -> bool:
        """True until the child has ended."""
        return self.exit_code is None

    def input(self) -> IO[bytes]:
        """Standard input of a piped child."""
        assert self._popen.stdin is not None
        return self._popen.stdin

    def output(self) -> IO[bytes]:
        """Standard output of a piped child."""
        assert self._popen.stdout is not None
        return self._popen.stdout

    def log(self) -> str:
        """All that the child has written to its log."""
        return self.log_path.read_text(errors="replace")

    def log_tail(self) -> str:
        """The end of the log, headed by the child's name and state."""
        state = "running" if self.running else f"exited with {self.exit_code}"
        return f"--- {self.name} ({state}), end of {self.log_path}\n{self.log()[-LOG_TAIL_BYTES:]}"

    def wait_until(self, condition: Callable[[], T], what: str, deadline_s: float = DEADLINE_S) -> T:
        """`wait_until`, but fails at once when the child ends, and always shows its log."""

        def alive_and_condition() -> T:
            assert self.running, f"{self.name} ended while waiting: {what}\n{self.log_tail()}"
            return condition()

        return wait_until(alive_and_condition, f"{self.name}: {what}", deadline_s, self.log_tail)

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._popen.kill()
        self._wait()

    def stop(self) -> int:
        """Send SIGTERM, then SIGKILL if it does not end; the exit code. Does nothing if the child has ended."""
        if self.running:
            self._popen.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        try:
            code = self._popen.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            code = self._popen.wait(STOP_TIMEOUT_S)
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                _close(pipe)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


class CommandChild(ChildProcess):
    """A piped child that answers each JSON line on its standard input with one on its standard output."""

    def __init__(
        self, name: str, argv: Sequence[str | Path], directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(name, argv, directory, environment, piped=True)
        self._turn = threading.Lock()

    def read(self) -> dict[str, Any]:
        """The next line of the child; raises ``AssertionError`` with its log when it has ended."""
        line = self.output().readline()
        assert line, f"{self.name} closed its output\n{self.log_tail()}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **command: object) -> dict[str, Any]:
        """Send a command and return its answer."""
        with self._turn:
            self.input().write(json.dumps(command).encode() + b"\n")
            self.input().flush()
            return self.read()


def dying_with_us(argv: Sequence[str]) -> list[str]:
    """The command, ended by the kernel when this process ends."""
    # The kernel's parent-death signal follows the thread that created the child, so it only works from the main thread.
    setpriv = shutil.which("setpriv")
    if setpriv is None or threading.current_thread() is not threading.main_thread():
        return list(argv)
    return [setpriv, "--pdeathsig", "KILL", "--", *argv]


def _close(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except BrokenPipeError:
        return
