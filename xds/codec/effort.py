"""What one piece of work for a caller may cost, and whether somebody still waits for it.

The bytes of an input do not bound the work that it makes: twenty bytes of a regular expression may take milliseconds
and aliases of YAML expand. So the reader of an input looks here between its steps. `Effort` is that of the work at
hand; outside of such work (the command line, files of the server's own) there is none, and nothing is bounded or ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from xds.model.errors import XdsError

# Of all regular expressions of an input (`xds.filter.regular_expressions.effort_of`): some 3 s, 40,000 different ones
# of common routes.
REGEX_EFFORT = 4_000_000


class AbandonedError(XdsError):
    """Nobody waits for the result any more: the work ends."""


class Effort:
    """Of one piece of work. `abandon` may be called from any thread."""

    __slots__ = ("_is_abandoned", "_regexes_left")

    def __init__(self, regexes: int = REGEX_EFFORT) -> None:
        self._regexes_left = regexes
        self._is_abandoned = False

    def abandon(self) -> None:
        """Nobody waits for the result any more."""
        self._is_abandoned = True

    def check(self) -> None:
        """Raises ``AbandonedError`` where nobody waits for the result any more."""
        if self._is_abandoned:
            raise AbandonedError("the caller has left")

    def take(self, regex_effort: int) -> bool:
        """Whether a regular expression of this effort may be compiled; it is counted then. Raises as `check`."""
        self.check()
        if regex_effort > self._regexes_left:
            return False
        self._regexes_left -= regex_effort
        return True


_PRESENT: ContextVar[Effort | None] = ContextVar("effort", default=None)


def present_effort() -> Effort | None:
    """The effort of the work at hand."""
    return _PRESENT.get()


def check_effort() -> None:
    """Raises ``AbandonedError`` where nobody waits for the result of the work at hand any more."""
    effort = _PRESENT.get()
    if effort is not None:
        effort.check()


@contextmanager
def bounded_by(effort: Effort) -> Iterator[None]:
    """Bound the work of the body."""
    token = _PRESENT.set(effort)
    try:
        yield
    finally:
        _PRESENT.reset(token)
