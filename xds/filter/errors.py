"""What a filter can say of itself: it is no filter, or a value has not what it asks for."""

from __future__ import annotations

from xds.model.errors import XdsError


class FilterSyntaxError(XdsError):
    """The text is no filter. ``column`` counts characters from 1, ``hint`` says what to write instead (or is empty)."""

    def __init__(self, detail: str, column: int, hint: str = "") -> None:
        super().__init__(f"column {column}: {detail}" + (f"; {hint}" if hint else ""))
        self.detail = detail
        self.column = column
        self.hint = hint


class EvaluationError(XdsError):
    """The filter cannot be answered for a value: an unknown field, or an operator that does not fit what is there.

    ``column`` is where the filter asks for it.
    """

    def __init__(self, detail: str, column: int, hint: str = "") -> None:
        super().__init__(f"column {column}: {detail}" + (f"; {hint}" if hint else ""))
        self.detail = detail
        self.column = column
        self.hint = hint
