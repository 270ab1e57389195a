"""Data on standard output, messages on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import StrEnum

_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
_GAP = "  "


class Format(StrEnum):
    """How data is written."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


def say(message: str) -> None:
    """A message for a person."""
    sys.stderr.write(f"{message}\n")


def write(text: str) -> None:
    """Data; a reader that has gone (``| head``) ends the command quietly."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)


def write_document(document: object, format: Format) -> None:
    """A value as JSON or YAML."""
    if format is Format.JSON:
        write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        return
    import yaml

    write(yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True))


def write_table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns as wide as needed, always the same ones; cells are kept to one line."""
    lines = [tuple(headers), *(tuple(_one_line(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    last = len(widths) - 1
    write(
        "".join(
            _GAP.join(cell if at == last else cell.ljust(widths[at]) for at, cell in enumerate(line)).rstrip() + "\n"
            for line in lines
        )
    )


def write_names(names: Iterable[str]) -> None:
    """One name per line."""
    write("".join(f"{name}\n" for name in names))


def age(timestamp: str) -> str:
    """How long ago an RFC 3339 time is, in its largest unit; ``-`` for none."""
    if not timestamp:
        return "-"
    seconds = max(0.0, (datetime.now(UTC) - datetime.fromisoformat(timestamp)).total_seconds())
    return next((f"{int(seconds // size)}{unit}" for size, unit in _UNITS if seconds >= size), "0s")


def _one_line(cell: str) -> str:
    return " ".join(cell.split()) if cell else "-"
