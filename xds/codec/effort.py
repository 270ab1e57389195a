"""What one piece of work for a caller may cost, and whether somebody still waits for it.

The bytes of an input do not bound the work that it makes: twenty bytes of a regular expression may take milliseconds
and aliases of YAML expand. So the reader of an input looks here between its steps. `Effort` is that of the work at
hand; outside of such work (the command line, files of the server's own) there is none, and nothing is bounded or ended.

Small inputs are read on the event loop, as long as their bytes do bound the work: regular expressions, and findings
with their hints, leave it.
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


class NotBoundedError(Exception):
    """Work on the event loop has come to a step whose cost the size of its input does not bound."""


class Effort:
    """Of one piece of work. `abandon` may be called from any thread. ``is_on_loop``: it runs on the event loop."""

    __slots__ = ("_is_abandoned", "_is_on_loop", "_regexes_left")

    def __init__(self, regexes: int = REGEX_EFFORT, *, is_on_loop: bool = False) -> None:
        self._regexes_left = regexes
        self._is_abandoned = False
        self._is_on_loop = is_on_loop

    def abandon(self) -> None:
        """Nobody waits for the result any more."""
        self._is_abandoned = True

    def check(self) -> None:
        """Raises ``AbandonedError`` where nobody waits for the result any more."""
        if self._is_abandoned:
            raise AbandonedError("the caller has left")

    def leave_loop(self) -> None:
        """Before a step whose cost the size of the input does not bound. Raises ``NotBoundedError``."""
        if self._is_on_loop:
            raise NotBoundedError

    def take(self, regex_effort: int) -> bool:
        """Whether a regular expression of this effort may be compiled; it is counted then.

        Raises as `check` and `leave_loop`.
        """
        self.check()
        self.leave_loop()
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


def leave_loop() -> None:
    """As the method of the effort of the work at hand."""
    effort = _PRESENT.get()
    if effort is not None:
        effort.leave_loop()


@contextmanager
def bounded_by(effort: Effort) -> Iterator[None]:
    """Bound the work of the body."""
    token = _PRESENT.set(effort)
    try:
        yield
    finally:
        _PRESENT.reset(token)
