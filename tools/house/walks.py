"""The pages that walk through the code step by step: how many files a reader opens on the way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tools.house.source import Finding, Repository

WALKS = "docs/internals/walk-of-"
FILES_LIMIT = 35
ASIDE = "*Beside the way:*"  # begins a paragraph on files that a reader may skip at first

_FILE = re.compile(r"\]\(\.\./\.\./(xds/[\w/]+\.py)\)")
_COUNT = re.compile(r"main line, in (\d+) files")


@dataclass(frozen=True)
class Walk:
    """The files of the product that a page links to. ``every`` includes those beside the way."""

    path: str
    main_line: frozenset[str]
    every: frozenset[str]

    @property
    def name(self) -> str:
        """``push`` for ``docs/internals/walk-of-a-push.md``."""
        return self.path.removeprefix(WALKS).removesuffix(".md").replace("-", " ").removeprefix("a ")


def walks(repository: Repository) -> Iterator[Walk]:
    """The walks by their pages."""
    for path, text in repository.texts.items():
        if path.startswith(WALKS):
            paragraphs = text.split("\n\n")
            main_line = {file for each in paragraphs if not each.startswith(ASIDE) for file in _FILE.findall(each)}
            yield Walk(path, frozenset(main_line), frozenset(_FILE.findall(text)))


def long_walks(repository: Repository) -> Iterator[Finding]:
    """Walks whose main line has too many files, or another number than the page says."""
    for walk in walks(repository):
        count = len(walk.main_line)
        if count > FILES_LIMIT:
            yield Finding(walk.path, 1, f"{count} files on the main line; a walk has at most {FILES_LIMIT}")
        said = _COUNT.search(repository.texts[walk.path])
        if said is None or int(said[1]) != count:
            yield Finding(walk.path, 1, f"the page does not say that its main line is in {count} files")
