"""Data on standard output, messages on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from enum import StrEnum
from typing import TextIO

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_CODES = {"good": "32", "bad": "31", "warn": "33", "dim": "2", "head": "1"}


class Format(StrEnum):
    """How data is written. ``wide`` is a table with more columns, ``jsonl`` one JSON object per line."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    JSONL = "jsonl"


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
    return f"\x1b[{code}m{text}\x1b[0m" if code else text


_hushed = False


def hush() -> None:
    """From here on only errors are messages (``--quiet``)."""
    global _hushed  # noqa: PLW0603 - one process is one command
    _hushed = True


def say(message: str) -> None:
    """A message for a person; nothing with ``--quiet``."""
    if not _hushed:
        complain(message)


def complain(message: str) -> None:
    """An error for a person."""
    sys.stderr.write(f"{_safe(message, sys.stderr)}\n")


def write(text: str) -> None:
    """Data; a reader that has gone (``| head``) ends the command quietly."""
    try:
        sys.stdout.write(_safe(text, sys.stdout))
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def write_document(document: object, format: Format) -> None:
    """A value as JSON or YAML."""
    write(to_json(document, format) if format in {Format.JSON, Format.JSONL} else to_yaml(document))


def to_json(document: object, format: Format = Format.JSON) -> str:
    """A value as JSON, on one line for ``JSONL``."""
    return json.dumps(document, indent=2 if format is Format.JSON else None, ensure_ascii=False) + "\n"


def to_yaml(document: object) -> str:
    """A value as YAML, keys in their order."""
    from xds.codec.yaml_output import to_yaml as written

    return written(document)


def write_names(names: Iterable[str]) -> None:
    """One name per line."""
    write("".join(f"{name}\n" for name in names))


def age(timestamp: str | None) -> str:
    """How long ago an RFC 3339 time is, in its largest unit; ``-`` for none."""
    if not timestamp:
        return "-"
    seconds = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds())
    return next((f"{int(seconds // size)}{unit}" for size, unit in _UNITS if seconds >= size), "0s")


def _safe(text: str, stream: TextIO) -> str:
    """``text`` with what the stream's encoding cannot hold replaced: a locale must not end a command."""
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "replace").decode(encoding)
