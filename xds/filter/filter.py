"""A filter: compiled once, asked often."""

from __future__ import annotations

from collections.abc import Mapping

from xds.filter.data import Record, closest, kind_of
from xds.filter.errors import EvaluationError
from xds.filter.expression import Every, Expression, Match, Not, Operator, matches_in
from xds.filter.operators import TESTS, Predicate
from xds.filter.parse import parse


class Filter:
    """A predicate over mappings, lists, texts, numbers and booleans.

    An empty text is the filter that everything passes.
    """

    __slots__ = ("_matches", "_predicate", "text")

    def __init__(self, text: str, expression: Expression | None) -> None:
        self.text = text
        self._matches = tuple(matches_in(expression)) if expression is not None else ()
        self._predicate: Predicate = _compiled(expression) if expression is not None else lambda value: True

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"

    def matches(self, value: object) -> bool:
        """Does the value pass? Raises ``EvaluationError``."""
        return self._predicate(value)

    def check(self, shape: Record) -> None:
        """Raises ``EvaluationError`` for a selector that no value of this shape has, whatever its plain maps hold."""
        for match in self._matches:
            _check_path(match, shape)


def compile_filter(text: str) -> Filter:
    """Raises ``FilterSyntaxError``."""
    return Filter(text, parse(text) if text.strip() else None)


def _compiled(expression: Expression) -> Predicate:
    if isinstance(expression, Match):
        return _question(expression)
    if isinstance(expression, Not):
        operand = _compiled(expression.operand)
        return lambda value: not operand(value)
    operands = tuple(map(_compiled, expression.operands))
    if isinstance(expression, Every):
        return lambda value: all(operand(value) for operand in operands)
    return lambda value: any(operand(value) for operand in operands)


def _question(match: Match) -> Predicate:
    """The value at the path, put to the operator; through a list, one element that satisfies is enough."""
    test, negated = TESTS[match.operator](match), match.negated
    absent = (match.operator is Operator.EMPTY) is not negated

    def ask(value: object) -> bool:
        pending = [(value, 0)]  # not recursive: values come from outside and may be lists of lists of lists
        while pending:
            found, at = pending.pop()
            while at < len(match.path) and isinstance(found, Mapping):
                found, at = _member(found, match.path[at], match), at + 1
            if found is None:
                holds = absent
            elif at == len(match.path):
                holds = test(found) is not negated
            elif isinstance(found, list | tuple):
                pending += [(item, at) for item in reversed(found)]
                continue
            else:
                raise _has_no(match, at, found)
            if holds:
                return True
        return False

    return ask


def _member(held: Mapping[str, object], key: str, match: Match) -> object:
    found = held.get(key)
    if found is None and isinstance(held, Record) and key not in held:
        raise EvaluationError(f"{match.selector}: there is no field {key!r}", match.column, closest(key, held))
    return found


def _has_no(match: Match, at: int, found: object) -> EvaluationError:
    place = ".".join(match.path[:at]) or "the value"
    return EvaluationError(f"{match.selector}: {place} is {kind_of(found)} and has no members", match.column)


def _check_path(match: Match, shape: Record) -> None:
    found: object = shape
    for at, key in enumerate(match.path):
        if isinstance(found, Record):
            found = _member(found, key, match)
        elif isinstance(found, Mapping | list | tuple) or found is None:
            return
        else:
            raise _has_no(match, at, found)
