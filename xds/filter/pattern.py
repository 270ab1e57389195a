"""Regular expressions that cannot hang: RE2, whose time grows with the length of the text only.

Python's own ``re`` backtracks: ``(a+)+$`` takes it centuries over forty letters, and both the pattern and the text come
from outside. RE2 is also the dialect that Envoy and the language's other users know.
"""

from __future__ import annotations

from typing import Any

PATTERN_LIMIT = 512  # characters
INSTRUCTIONS_LIMIT = 1_000  # of the compiled pattern: what a search costs at worst, times the length of the text
CACHE_BYTES = 1 << 20  # RE2 is ten times slower where its automaton does not fit
SEARCHED_LIMIT = 1024  # characters of a value


class Pattern:
    """A compiled pattern. Raises ``ValueError`` for a text that is no pattern or needs too much memory."""

    __slots__ = ("_compiled", "text")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_LIMIT:
            raise ValueError(f"the pattern has {len(text)} characters, {PATTERN_LIMIT} are allowed")
        self.text = text
        self._compiled = _compile(text)

    def search(self, text: str) -> bool:
        """True when the pattern matches anywhere in the text."""
        return self._compiled.search(text.encode("utf-8", "replace")) is not None


def _compile(text: str) -> Any:
    import re2  # here: a command that filters nothing should not wait for it

    options = re2.Options()
    options.max_mem = CACHE_BYTES
    options.log_errors = False
    try:
        compiled = re2.compile(text.encode(), options)
    except re2.error as error:
        raise ValueError(_told(error)) from None
    except UnicodeEncodeError:
        raise ValueError("the pattern is not valid Unicode") from None
    if compiled.programsize > INSTRUCTIONS_LIMIT:
        raise ValueError(f"the pattern is too large: it needs {compiled.programsize} steps of {INSTRUCTIONS_LIMIT}")
    return compiled


def _told(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
