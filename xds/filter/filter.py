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
    return _every(operands) if isinstance(expression, Every) else _some(operands)


def _every(operands: tuple[Predicate, ...]) -> Predicate:
    def ask(value: object) -> bool:
        for operand in operands:  # noqa: SIM110 -- all() costs as much as the questions
            if not operand(value):
                return False
        return True

    return ask


def _some(operands: tuple[Predicate, ...]) -> Predicate:
    def ask(value: object) -> bool:
        for operand in operands:  # noqa: SIM110 -- as above
            if operand(value):
                return True
        return False

    return ask


def _question(match: Match) -> Predicate:
    """The value at the path, put to the operator. This is the way through dictionaries; the rest is rarer."""
    test, negated, path = TESTS[match.operator](match), match.negated, match.path
    absent = (match.operator is Operator.EMPTY) is not negated

    def ask(value: object) -> bool:
        for at, key in enumerate(path):
            if not isinstance(value, dict):
                return _through(value, at, match, test)
            held, value = value, value.get(key)
            if value is None:
                _check_field(held, key, match)
                return absent
        return absent if value is None else test(value) is not negated

    return ask


def _through(value: object, at: int, match: Match, test: Predicate) -> bool:
    """The rest of the way, from position ``at`` of the path on: through a list, one element is enough."""
    pending = [(value, at)]  # not recursive: values come from outside and may be lists of lists of lists
    while pending:
        found, at = pending.pop()
        while at < len(match.path) and isinstance(found, Mapping):
            found, at = _member(found, match.path[at], match), at + 1
        if found is not None and at < len(match.path):
            if not isinstance(found, list | tuple):
                raise _has_no(match, at, found)
            pending += [(item, at) for item in reversed(found)]
            continue
        positive = match.operator is Operator.EMPTY if found is None else test(found)
        if positive is not match.negated:
            return True
    return False


def _member(held: Mapping[str, object], key: str, match: Match) -> object:
    found = held.get(key)
    if found is None:
        _check_field(held, key, match)
    return found


def _check_field(held: Mapping[str, object], key: str, match: Match) -> None:
    if isinstance(held, Record) and key not in held:
        raise EvaluationError(f"{match.selector}: there is no field {key!r}", match.column, closest(key, held))


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
