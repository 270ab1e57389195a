"""Regular expressions of RE2, which Envoy uses. Pure.

Envoy 1.40 compiles patterns as Latin-1, byte by byte (measured). Earlier releases, and gRPC, compile them as UTF-8. All
clients must accept a served pattern.

RE2 takes linear time. Python's ``re`` backtracks: ``(a+)+$`` takes centuries on forty letters, and both the pattern and
the text come from outside.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

# RE2's default, which Envoy does not change. RE2 rejects a pattern that needs more.
MEMORY_BYTES = 8 << 20
_CACHED_SIZES = 4_096  # pushes and lowered routes repeat their patterns


def compile_regex(text: str, memory_bytes: int = MEMORY_BYTES, *, in_bytes: bool = False) -> Any:
    """Compile a pattern with ``re2``, as UTF-8 or as bytes. Raises ``ValueError`` with the message of RE2."""
    import re2  # imported here, because the import would delay every command

    options = re2.Options()
    options.max_mem = memory_bytes
    options.log_errors = False
    if in_bytes:
        options.encoding = re2.Options.Encoding.LATIN1
    try:
        return re2.compile(text.encode(), options)
    except re2.error as error:
        raise ValueError(_message(error)) from None
    except UnicodeEncodeError:
        raise ValueError("the pattern is not valid Unicode") from None


@lru_cache(_CACHED_SIZES)
def program_size(text: str) -> int:
    """The number of RE2 instructions of a pattern, as UTF-8 or as bytes, whichever is greater.

    Raises ``ValueError`` for a pattern that some Envoy rejects.
    """
    return max(int(compile_regex(text, in_bytes=in_bytes).programsize) for in_bytes in (False, True))


def _message(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
