"""The files of a directory of snapshots, by group: for ``serve --watch`` and for ``xds apply``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from xds.codec.regular_file import is_within

SUFFIXES = frozenset({".json", ".yaml", ".yml"})


def files_by_group(root: Path) -> dict[str, list[Path]]:
    """The files of each group, by the name of the file (without its suffix) or of the subdirectory.

    A file and a subdirectory with the same name belong to one group. Hidden files are left out. What is no file, such
    as a named pipe, is listed too: it is reported as refused when it is read. Raises ``OSError``.
    """
    files: dict[str, list[Path]] = {}
    for entry in sorted(root.iterdir()):
        group = entry.name if entry.is_dir() else entry.stem
        inside = [] if entry.name.startswith(".") else list(_files(root, entry))
        if inside:
            files.setdefault(group, []).extend(inside)
    return files


def files_below(directory: Path) -> list[Path]:
    """The JSON and YAML files of a directory and its subdirectories, hidden ones left out."""
    return sorted(
        file
        for file in directory.rglob("*")
        if file.suffix in SUFFIXES and not file.is_dir() and not _is_hidden(file.relative_to(directory))
    )


def _files(root: Path, entry: Path) -> Iterator[Path]:
    if not entry.is_dir():
        yield from [entry] if entry.suffix in SUFFIXES else []
    elif not is_within(entry, root):
        yield entry  # refused when it is read: what a link to another place holds is not even listed
    else:
        yield from files_below(entry)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
