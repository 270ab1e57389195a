"""A parsed filter as frozen values, and the errors of the filter language."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from xds.filter.values import Pattern
from xds.model.errors import XdsError


class FilterError(XdsError):
    """``column`` is the position in the filter, from 1; ``hint`` says what to write instead, or is empty."""

    def __init__(self, detail: str, column: int, hint: str = "") -> None:
        super().__init__(f"column {column}: {detail}" + (f"; {hint}" if hint else ""))
        self.detail = detail
        self.column = column
        self.hint = hint


class FilterSyntaxError(FilterError):
    """The text is not a filter."""


class EvaluationError(FilterError):
    """The filter cannot be evaluated on a value: an unknown field, or an operator that does not apply to the type."""


class Operator(Enum):
    """The operator of a match. ``in`` is ``contains`` with its operands exchanged."""

    EQUAL = "=="
    CONTAINS = "contains"
    EMPTY = "is empty"
    MATCHES = "matches"


@dataclass(frozen=True, slots=True)
class Match:
    """One comparison: the value at ``path``, an operator, and its operand ``text`` or ``pattern``.

    ``negated`` inverts the result. ``column`` is the position of the selector, from 1.
    """

    path: tuple[str, ...]
    operator: Operator
    column: int
    negated: bool = False
    text: str = ""
    pattern: Pattern | None = None

    @property
    def selector(self) -> str:
        """The path as it is written in a filter."""
        first, *rest = self.path
        return first + "".join(f".{key}" if key.isidentifier() else f'["{key}"]' for key in rest)


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of ``operand``."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class And:
    """True when all operands are; evaluated from left to right, up to the first false one."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True when an operand is; evaluated from left to right, up to the first true one."""

    operands: tuple[Expression, ...]


Expression = Match | Not | And | Or


def matches_in(expression: Expression) -> Iterator[Match]:
    """All matches of an expression, from left to right."""
    if isinstance(expression, Match):
        yield expression
    elif isinstance(expression, Not):
        yield from matches_in(expression.operand)
    else:
        for operand in expression.operands:
            yield from matches_in(operand)
