"""A tree as text: each branch on a line of its own, its children below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xds.cli.output import printable

_INNER, _LAST = ("├─ ", "│  "), ("└─ ", "   ")


@dataclass(slots=True)
class Branch:
    """A line and the branches below it."""

    text: str
    children: list[Branch] = field(default_factory=list)

    def add(self, text: str) -> Branch:
        """A new last child."""
        child = Branch(text)
        self.children.append(child)
        return child


def tree_text(branch: Branch) -> str:
    """The branch and all below it, each line with its end. What is not printable is spelt out."""
    return "".join(f"{line}\n" for line in _lines(branch))


def _lines(branch: Branch) -> Iterator[str]:
    yield printable(branch.text)
    for child in branch.children:
        first, others = _LAST if child is branch.children[-1] else _INNER
        for at, line in enumerate(_lines(child)):
            yield (others if at else first) + line
