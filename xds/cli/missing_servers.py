"""Answers that lack what some servers know, because those servers did not answer: told once, and by the exit code."""

from __future__ import annotations

from collections.abc import Iterable

from xds.cli.errors import CommandError, Exit
from xds.cli.output import print_error

_missing: dict[str, tuple[str, ...]] = {}  # of the latest answer to each question
_told: set[str] = set()


def forget() -> None:
    """A command begins."""
    _missing.clear()
    _told.clear()


def note(question: str, servers: Iterable[str]) -> None:
    """The answer to a question lacks what these servers know; none: it is complete."""
    _missing[question] = tuple(servers)
    for server in _missing[question]:
        if server not in _told:
            _told.add(server)
            print_error(f"xds: server {server} does not answer: what only it knows is missing")


def check() -> None:
    """A command ends. Raises ``CommandError`` if what it showed is not complete."""
    if any(_missing.values()):
        raise CommandError(Exit.UNREACHABLE, "")
