"""Processes that a command starts and ends: each with a log file, none left behind.

On Linux none is left either if the command is killed.

SIGINT, SIGTERM and SIGHUP only set a flag, which every wait looks at. So nothing is interrupted halfway, and a second
Ctrl-C changes nothing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self

from xds.cli.parent_death import ending_with_us

POLL_S = 0.05
DEADLINE_S = 60.0
STOP_TIMEOUT_S = 10.0
LOG_TAIL_LINES = 20
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Command = Sequence[str | Path]


class ChildError(Exception):
    """A process did not do what it was started for; the message has the end of its log."""


class EndedBySignalError(Exception):
    """A signal asked the command to end."""


class Children:
    """Processes that write to logs in ``folder``, and run in ``environment``. On exit all of them are ended."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._started: list[subprocess.Popen[bytes]] = []
        self._lasting: dict[str, subprocess.Popen[bytes]] = {}
        self._is_ending = False

    def __enter__(self) -> Self:
        self._before = [(number, signal.signal(number, self._end)) for number in _ENDING]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in reversed(self._started):
            _stop(process)
        for number, handler in self._before:
            signal.signal(number, handler)

    def start(self, name: str, command: Command) -> None:
        """Start a process that is to run until all are ended."""
        self._lasting[name] = self._start(name, command)

    def run(self, name: str, command: Command) -> str:
        """Run a process to its end; what it writes. Raises ``ChildError`` and ``EndedBySignalError``."""
        process = self._start(name, command)
        self.wait(lambda: process.poll() is not None, f"{name} ends")
        if process.returncode:
            raise ChildError(f"{name} failed with exit code {process.returncode}:\n{self.log(name)}")
        return self.log(name)

    def wait(self, condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until the condition holds.

        Raises ``ChildError`` after the deadline or if a process ends, and ``EndedBySignalError``.
        """
        end = time.monotonic() + deadline_s
        while not condition():
            if self._is_ending:
                raise EndedBySignalError
            for name, process in self._lasting.items():
                if process.poll() is not None:
                    raise ChildError(f"the {name} has ended (exit code {process.returncode}):\n{self._tail(name)}")
            if time.monotonic() > end:
                raise ChildError("\n".join([f"not within {deadline_s:g} s: {what}", *map(self._tail, self._lasting)]))
            time.sleep(POLL_S)

    def log(self, name: str) -> str:
        """What a process has written so far."""
        return self._log(name).read_text(errors="replace")

    def wait_for_signal(self) -> None:
        """Wait for a signal. Raises ``EndedBySignalError`` then, ``ChildError`` if a process ends before."""
        self.wait(lambda: False, "a signal", inf)

    def _start(self, name: str, command: Command) -> subprocess.Popen[bytes]:
        with self._log(name).open("wb") as log:
            # In its own process group, so that Ctrl-C reaches only the command, which then ends the others in order.
            process = subprocess.Popen(  # noqa: S603
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                process_group=0,
                preexec_fn=ending_with_us(),  # noqa: PLW1509 - the command has one thread
            )
        self._started.append(process)
        return process

    def _end(self, _number: int, _frame: object) -> None:
        self._is_ending = True

    def _log(self, name: str) -> Path:
        return self._folder / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self.log(name).splitlines()[-LOG_TAIL_LINES:]
        return "\n".join([f"--- {name}", *lines])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process with SIGTERM, or SIGKILL if that takes too long; and what it has left of its group."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
