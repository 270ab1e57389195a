"""Which files are meant, which group they are for, and what they hold."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from xds.cli.failure import CommandError, Exit
from xds.model.node import DEFAULT_GROUP

STANDARD_INPUT = Path("-")
SUFFIXES = frozenset({".json", ".yaml", ".yml"})


def files_by_group(paths: Iterable[Path], group: str = "") -> dict[str, list[Path]]:
    """The files of each group: all paths to ``group``, or each to the group it is named after (``-``: ``default``).

    A directory stands for all its JSON and YAML files. Raises ``CommandError``.
    """
    found: dict[str, list[Path]] = {}
    for path in paths:
        found.setdefault(group or group_of(path), []).extend(files_of(path))
    return found


def group_of(path: Path) -> str:
    """The group that a path is named after."""
    if path == STANDARD_INPUT:
        return DEFAULT_GROUP
    resolved = path.resolve()
    return resolved.name if resolved.is_dir() else resolved.stem


def files_of(path: Path) -> Iterator[Path]:
    """The path itself, or the JSON and YAML files of a directory. Raises ``CommandError`` when it has none."""
    if not path.is_dir():
        yield path
        return
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise CommandError(Exit.USAGE, f"{path}: no {', '.join(sorted(SUFFIXES))} files in it")
    yield from files


def read_bytes(file: Path) -> bytes:
    """A file's content, or what standard input holds. Raises ``CommandError``."""
    try:
        return sys.stdin.buffer.read() if file == STANDARD_INPUT else file.read_bytes()
    except OSError as error:
        raise CommandError(Exit.USAGE, f"{file}: {error.strerror}") from None


def read_object(file: Path, wanted: str, limit_bytes: int = sys.maxsize) -> dict[str, Any]:
    """The one object of a JSON or YAML file; ``wanted`` is what errors say was expected. Raises ``CommandError``."""
    from xds.codec.document import parse_values
    from xds.model.errors import ValidationError

    name, text = shown_name(file), read_bytes(file)
    if len(text) > limit_bytes:
        raise CommandError(Exit.INVALID, f"{name}: larger than {limit_bytes} bytes")
    try:
        values = parse_values(text, source=name)
    except ValidationError as error:
        raise CommandError(Exit.INVALID, "\n".join(map(str, error.violations))) from None
    found = values[0] if len(values) == 1 else None
    if not isinstance(found, dict):
        raise CommandError(Exit.INVALID, f"{name}: {wanted} is expected")
    return found


def shown_name(file: Path) -> str:
    """How messages call a file."""
    return "standard input" if file == STANDARD_INPUT else str(file)
