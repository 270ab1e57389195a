"""Data on standard output, messages on standard error."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from secrets import token_hex
from typing import TextIO

from xds.model.units import span_text

# Marks the control sequences of the command. A proxy cannot know this value, so sequences in its texts are escaped.
_OURS = token_hex(16)
_OUR_SEQUENCE = re.compile(rf"{_OURS}(\x1b\[[0-9;]*[A-Za-z])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # all except tab and newline
_NOT_IN_JSON = re.compile(r"[\x7f-\x9f]")  # control characters that JSON allows unescaped
# The signs of the command, for a terminal whose encoding lacks them. Each has the same width.
_PLAIN_SIGNS = str.maketrans("✓✗…→·│├└─", "+x~>-||`-")
_CODES = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "head": "1"}


class Format(StrEnum):
    """Output formats. ``wide`` is a table with more columns, ``jsonl`` one JSON object per line."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    JSONL = "jsonl"


DOCUMENTS = frozenset({Format.JSON, Format.YAML, Format.JSONL})


class Color(StrEnum):
    """When text is colored; ``auto``: on a terminal, unless ``NO_COLOR`` is set."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def is_colored(color: Color, stream: TextIO) -> bool:
    """Whether text for ``stream`` is colored (https://no-color.org)."""
    if color is Color.AUTO:
        return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return color is Color.ALWAYS


def paint(text: str, style: str) -> str:
    """``text`` in the color of ``good``, ``bad``, ``warn``, ``dim`` or ``head``."""
    code = _CODES.get(style)
    return f"{sequence(f'[{code}m')}{text}{sequence('[0m')}" if code else text


def sequence(code: str) -> str:
    """A control sequence for the terminal; ``code`` is without ESC. All other control sequences are escaped."""
    return f"{_OURS}\x1b{code}"


def printable(text: str) -> str:
    """Text from outside, with line ends, control characters and bidirectional overrides escaped."""
    return text if text.isprintable() else "".join(each if each.isprintable() else _escaped(each) for each in text)


def one_line(text: str) -> str:
    """As `printable`, with spaces instead of line ends: the text of a client must not look like lines of the output."""
    return printable(" ".join(text.split()))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


_is_quiet = False


def suppress_messages() -> None:
    """Suppress all messages except errors (``--quiet``)."""
    global _is_quiet  # noqa: PLW0603 - one process is one command
    _is_quiet = True


def say(message: str) -> None:
    """Print a message; nothing with ``--quiet``."""
    if not _is_quiet:
        print_error(message)


def is_quiet() -> bool:
    """Whether only data and errors are printed."""
    return _is_quiet


def print_error(message: str) -> None:
    """Print a message to standard error, also with ``--quiet``."""
    sys.stderr.write(f"{_safe(message, sys.stderr)}\n")


def write(text: str) -> None:
    """Write data. If the reader has closed the pipe (``| head``), the command ends without a message."""
    try:
        sys.stdout.write(_safe(text, sys.stdout))
        sys.stdout.flush()
    except BrokenPipeError:
        # The rest of the buffer would raise again when the interpreter exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def write_document(document: object, format: Format) -> None:
    """A value as JSON or YAML."""
    write(to_json(document, format) if format in {Format.JSON, Format.JSONL} else to_yaml(document))


def write_answer(
    format: Format | None, document: object, text: Callable[[], str], names: Iterable[str] | None = None
) -> None:
    """An answer in the format that was asked for: the document, its ``names``, or else the text."""
    if format in DOCUMENTS:
        write_document(document, format)
    elif format is Format.NAME and names is not None:
        write("".join(f"{name}\n" for name in names))
    else:
        write(text())


def to_json(document: object, format: Format = Format.JSON) -> str:
    """A value as JSON; on one line for ``JSONL``."""
    text = json.dumps(document, indent=2 if format is Format.JSON else None, ensure_ascii=False)
    return _NOT_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


def to_yaml(document: object) -> str:
    """A value as YAML, keys in their given order."""
    from xds.codec.text import to_yaml as write_yaml

    return write_yaml(document)


def counted(count: int, noun: str) -> str:
    """``1 group``, ``2 groups``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def age(timestamp: str | None) -> str:
    """How long ago an RFC 3339 time was, in its largest unit; ``-`` for none."""
    if not timestamp:
        return "-"
    seconds = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds())
    return span_text(seconds)


def _safe(text: str, stream: TextIO) -> str:
    """``text`` without characters that the stream's encoding lacks, and without foreign control sequences.

    A character that the locale cannot encode must not end a command. JSON and YAML escape control characters.
    """
    encoding = stream.encoding or "utf-8"
    parts = _OUR_SEQUENCE.split(text)
    parts[::2] = (_CONTROL.sub(lambda match: _escaped(match[0]), part) for part in parts[::2])
    joined = "".join(parts)
    plain = joined if can_show(joined, stream) else joined.translate(_PLAIN_SIGNS)
    return plain.encode(encoding, "replace").decode(encoding)


def can_show(text: str, stream: TextIO) -> bool:
    """Whether the encoding of the stream has all characters of ``text``."""
    try:
        text.encode(stream.encoding or "utf-8")
    except (UnicodeError, LookupError):
        return False
    return True
