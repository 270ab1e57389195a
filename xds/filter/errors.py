"""What a filter can say of itself: it is no filter, or a value has not what it asks for."""

from __future__ import annotations

from xds.model.errors import XdsError


class FilterError(XdsError):
    """``column`` is the place in the filter, from 1; ``hint`` says what to write instead, or is empty."""

    def __init__(self, detail: str, column: int, hint: str = "") -> None:
        super().__init__(f"column {column}: {detail}" + (f"; {hint}" if hint else ""))
        self.detail = detail
        self.column = column
        self.hint = hint


class FilterSyntaxError(FilterError):
    """The text is no filter."""


class EvaluationError(FilterError):
    """The filter cannot be answered for a value: an unknown field, or an operator that does not fit what is there."""
