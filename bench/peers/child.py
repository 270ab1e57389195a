"""A server under test as a child process: its start, its lines, its CPU and memory, its end."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
END_TIMEOUT_S = 15.0
LOG_TAIL_BYTES = 4_000
PORTS = range(10_000, 32_000)  # below those that outgoing connections take theirs from
RESET_PEAK = "5"  # proc(5), clear_refs


class PeerError(Exception):
    """A server under test did not start, or did not do what it was told."""


class Child:
    """One process. What it writes on standard error is kept and shown when it fails."""

    def __init__(
        self, argv: Sequence[str | Path], environment: Mapping[str, str] | None = None, piped: bool = True
    ) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        self._popen = subprocess.Popen(
            [str(argument) for argument in argv],
            stdin=subprocess.PIPE if piped else subprocess.DEVNULL,
            stdout=subprocess.PIPE if piped else self._log,
            stderr=self._log,
            cwd=REPOSITORY,
            env={**os.environ, "GRPC_ENABLE_FORK_SUPPORT": "0", **(environment or {})},
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative when a signal ended it."""
        return self._popen.poll()

    # Lines

    def ask(self, command: Mapping[str, Any]) -> dict[str, Any]:
        """Write a command and wait for its answer. Raises ``PeerError`` when the process ends instead."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the reading tells why
            self._popen.stdin.write(json.dumps(command).encode() + b"\n")
            self._popen.stdin.flush()
        return self.read()

    def read(self) -> dict[str, Any]:
        """The next line of the process. Raises ``PeerError`` when there is none."""
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise PeerError(f"the process ended with {self._wait()}\n{self.log_tail()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def log_tail(self) -> str:
        """The end of what it wrote on standard error."""
        size = os.fstat(self._log.fileno()).st_size
        tail = os.pread(self._log.fileno(), LOG_TAIL_BYTES, max(0, size - LOG_TAIL_BYTES))
        return tail.decode(errors="replace")

    # CPU and memory

    def cpu_s(self) -> float:
        """CPU of all threads so far, in seconds, with the kernel's own precision."""
        return time.clock_gettime((~self.pid << 3) | 2)  # how Linux names the process CPU clock of a pid

    def memory_kb(self, field: str) -> int:
        """``VmRSS``, ``VmHWM`` and others of proc(5)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1])
        raise PeerError(f"process {self.pid} has ended\n{self.log_tail()}")

    def reset_peak(self) -> None:
        """``VmHWM`` counts from now on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text(RESET_PEAK)

    # The end

    def close_input(self) -> int:
        """Tell a piped process to end, by the end of its input; its exit code."""
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._popen.stdin.close()
        return self._wait()

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        if self.exit_code is None:
            self._popen.terminate()
        return self._wait()

    def kill(self) -> None:
        """SIGKILL. Harmless when it has ended."""
        if self.exit_code is None:
            self._popen.kill()
        self._wait()

    def close(self) -> None:
        """Let go of pipes and log; the process must have ended."""
        for pipe in (self._popen.stdin, self._popen.stdout, self._log):
            if pipe is not None and not pipe.closed:
                pipe.close()

    def _wait(self) -> int:
        try:
            return self._popen.wait(END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            return self._popen.wait()


def free_port() -> int:
    """A port of the loopback address that nobody listens on."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise PeerError("no free port on the loopback address")
