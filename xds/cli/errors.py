"""Exit codes, and the error that carries one."""

from __future__ import annotations

from enum import IntEnum


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
