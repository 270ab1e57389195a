"""What a filter can say of itself: it is no filter, or a value has not what it asks for.

A parsed filter, as frozen values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from xds.filter.values import Pattern
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


class Operator(Enum):
    """What a match asks. ``in`` is ``contains`` written the other way round."""

    EQUAL = "=="
    CONTAINS = "contains"
    EMPTY = "is empty"
    MATCHES = "matches"


@dataclass(frozen=True, slots=True)
class Match:
    """One question: the value at ``path``, an operator, and what it is compared with.

    ``negated`` asks the opposite. ``column`` is where the selector stands, from 1.
    """

    path: tuple[str, ...]
    operator: Operator
    column: int
    negated: bool = False
    text: str = ""
    pattern: Pattern | None = None

    @property
    def selector(self) -> str:
        """The path as it is written."""
        first, *rest = self.path
        return first + "".join(f".{key}" if key.isidentifier() else f'["{key}"]' for key in rest)


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of ``operand``."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class And:
    """All operands hold; asked from left to right until one does not."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One operand holds; asked from left to right until one does."""

    operands: tuple[Expression, ...]


Expression = Match | Not | And | Or


def matches_in(expression: Expression) -> Iterator[Match]:
    """All the questions of an expression, from left to right."""
    if isinstance(expression, Match):
        yield expression
    elif isinstance(expression, Not):
        yield from matches_in(expression.operand)
    else:
        for operand in expression.operands:
            yield from matches_in(operand)
