"""Regular expressions of RE2, which Envoy uses. Pure.

Envoy 1.40 compiles patterns as Latin-1, byte by byte (measured). Earlier releases, and gRPC, compile them as UTF-8. All
clients must accept a served pattern.

RE2 searches in linear time. Python's ``re`` backtracks: ``(a+)+$`` takes centuries on forty letters, and both the
pattern and the text come from outside.

Compiling has no such bound, and holds the interpreter lock, so no thread can run beside it: ``(?i)\\pL`` takes 20 ms
as Latin-1, and 900 characters of it 5 s (google-re2 1.1.20251105). So `effort_of` estimates the work before, in a time
that is linear in the pattern, and `compile_regex` compiles nothing beyond `EFFORT_LIMIT`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

# RE2's default, which Envoy does not change. RE2 rejects a pattern that needs more.
MEMORY_BYTES = 8 << 20
# Compiled are patterns of about so many instructions. Envoy takes 100 unless its runtime says otherwise.
COMPILED_INSTRUCTIONS = 1_000
EFFORT_LIMIT = 2_100
_CACHED_SIZES = 4_096  # pushes and lowered routes repeat their patterns
_EFFORT_OF_UNICODE_CLASS = 1_000  # \pL has 600 ranges, and 1,200 instructions as UTF-8
_EFFORT_OF_ATOM = 2
_REPEATS_LIMIT = 1_000  # of RE2, also of repetitions within each other

# Behind an even number of backslashes, which are pairs.
_UNICODE_CLASS = re.compile(r"(?<!\\)((?:\\\\)*)\\[pP](?:\{[^}]{0,64}\}|.)", re.DOTALL)
_TOKEN = re.compile(
    r"""\\Q(?P<literal>.*?)(?:\\E|\Z)
    |(?P<unicode>\\[pP](?:\{[^}]{0,64}\}|.?))
    |(?P<set>\[\^?\]?(?:\[:\^?[a-z]{0,16}:\]|\\.|[^\]\\])*\]?)
    |(?P<flags>\(\?[a-zA-Z-]*\))|(?P<open>\()|(?P<close>\))
    |\{(?P<least>[0-9]{1,9})(?:,(?P<most>[0-9]{0,9}))?\}
    |(?P<atoms>\\x\{[^}]{0,64}\}|\\.|[^\\\[(){}]+|.)""",
    re.VERBOSE | re.DOTALL,
)


class LargePatternError(ValueError):
    """A pattern whose compilation would take too long. Whether RE2 takes it is not known."""


class _Part(NamedTuple):
    """What is read of a pattern: its effort, and the greatest product of repetitions within each other."""

    effort: int = 0
    repeats: int = 1

    def beside(self, other: _Part) -> _Part:
        return _Part(self.effort + other.effort, max(self.repeats, other.repeats))

    def repeated(self, token: re.Match[str]) -> _Part:
        """Raises ``ValueError`` for more repetitions than RE2 takes."""
        least, most = int(token["least"]), int(token["most"] or 0)
        repeats = self.repeats * (max(least, most) or 1)
        if repeats > _REPEATS_LIMIT:
            raise ValueError(f"invalid repetition size: {token[0]}")
        return _Part(self.effort * (max(least, most) or 1), repeats)


def effort_of(text: str) -> int:
    """How much work the compilation of a pattern is, in half instructions of RE2, about; seldom too low.

    Counted repetitions multiply what they repeat, as in RE2. Of a pattern beyond the limit only the length counts.
    Raises ``ValueError`` for more repetitions than RE2 takes.
    """
    if len(text) > EFFORT_LIMIT or ("{" not in text and not _UNICODE_CLASS.search(text)):
        return _EFFORT_OF_ATOM * len(text)
    groups, last = [_Part()], _Part()  # of each open group what is before ``last``
    for token in _TOKEN.finditer(text):
        match token.lastgroup:
            case "flags":
                pass  # a repetition behind it is about what was before
            case "open":
                groups[-1] = groups[-1].beside(last)
                groups.append(_Part())
                last = _Part()
            case "close":
                last = last.beside(_Part(_EFFORT_OF_ATOM))
                last = groups.pop().beside(last) if len(groups) > 1 else last
            case "least" | "most":
                last = last.repeated(token)
            case kind:
                groups[-1] = groups[-1].beside(last)
                last = _Part(_effort_of_token(kind, token[0]))
                if kind == "atoms" and token[0][0] != "\\":  # a repetition is about the last of them
                    groups[-1] = groups[-1].beside(_Part(last.effort - _EFFORT_OF_ATOM))
                    last = _Part(_EFFORT_OF_ATOM)
    return sum(part.effort for part in groups) + last.effort


def _effort_of_token(kind: str | None, text: str) -> int:
    if kind == "unicode":
        return _EFFORT_OF_UNICODE_CLASS
    if kind == "set":
        return _EFFORT_OF_ATOM + len(text) + _EFFORT_OF_UNICODE_CLASS * len(_UNICODE_CLASS.findall(text))
    return _EFFORT_OF_ATOM * len(text)


def compile_regex(text: str, memory_bytes: int = MEMORY_BYTES) -> Any:
    """Compile a pattern with ``re2``.

    Raises ``LargePatternError``, and ``ValueError`` with the message of RE2.
    """
    if effort_of(text) > EFFORT_LIMIT:
        raise LargePatternError(f"the pattern is too large: it needs more than {COMPILED_INSTRUCTIONS} instructions")
    return _compile(text, memory_bytes)


def _compile(text: str, memory_bytes: int = MEMORY_BYTES, *, in_bytes: bool = False) -> Any:
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

    Raises ``LargePatternError``, and ``ValueError`` for a pattern that some Envoy rejects.
    """
    in_text = compile_regex(text).programsize
    # As bytes a Unicode class has few instructions and takes twenty times as long, so that a cheap one stands for it.
    in_bytes = _compile(_UNICODE_CLASS.sub(r"\1\\w", text), in_bytes=True).programsize
    return int(max(in_text, in_bytes))


def _message(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
