"""Exit codes, and the error that carries one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path


class Exit(IntEnum):
    """Exit codes of all commands."""

    OK = 0
    NEGATIVE = 1  # negative result: rejected by the fleet, something differs, a check failed
    USAGE = 2
    INVALID = 3  # invalid configuration
    NOT_FOUND = 4
    CONFLICT = 5
    AUTH = 6
    UNREACHABLE = 7
    TIMED_OUT = 8
    NO_NODE = 9  # no node is connected to wait for
    INTERRUPTED = 130


class CommandError(Exception):
    """Ends a command: ``message`` goes to standard error."""

    def __init__(self, code: Exit, message: str) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """A block about a file, whose ``OSError`` becomes a ``CommandError`` that names the file."""
    try:
        yield
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{path}: {error.strerror or error}") from None
