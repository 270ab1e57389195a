"""Text that cannot be read, and where."""

from __future__ import annotations


class TextError(Exception):
    """Text that cannot be read. ``line`` and ``column`` count from 1; 0 where not known."""

    def __init__(self, detail: str, line: int = 0, column: int = 0) -> None:
        super().__init__(detail)
        self.detail = detail
        self.line = line
        self.column = column


def place_of(text: str, offset: int) -> tuple[int, int]:
    """The line and column of a character."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
