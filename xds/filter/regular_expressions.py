"""Regular expressions of RE2, as Envoy has them. Pure.

Envoy 1.40 compiles patterns as Latin-1, byte by byte (measured); releases before it compiled them as UTF-8, and so does
gRPC. What is served must be taken by all of them.

RE2's time is linear in the text. Python's ``re`` backtracks: ``(a+)+$`` takes centuries over forty letters, and both
the pattern and the text come from outside.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

# RE2's own default, which Envoy leaves as it is: a greater pattern is refused.
MEMORY_BYTES = 8 << 20
_REMEMBERED = 4_096  # pushes and lowered routes repeat them


def compile_regex(text: str, memory_bytes: int = MEMORY_BYTES, *, in_bytes: bool = False) -> Any:
    """A compiled pattern of ``re2``, over UTF-8 or over bytes. Raises ``ValueError`` with what RE2 says of it."""
    import re2  # imported here: it delays every command otherwise

    options = re2.Options()
    options.max_mem = memory_bytes
    options.log_errors = False
    if in_bytes:
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(text.encode(), options)
    except re2.error as error:
        raise ValueError(_told(error)) from None
    except UnicodeEncodeError:
        raise ValueError("the pattern is not valid Unicode") from None


@lru_cache(_REMEMBERED)
def program_size(text: str) -> int:
    """The size of a pattern in RE2's instructions, the greatest that an Envoy counts.

    Raises ``ValueError`` for a pattern that an Envoy cannot read.
    """
    return max(int(compile_regex(text, in_bytes=in_bytes).programsize) for in_bytes in (False, True))


def _told(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
