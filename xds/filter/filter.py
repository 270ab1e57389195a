"""Compiled filters. An expression is compiled into a predicate, which is evaluated many times.

An operator tests a value that is present. Absent values, negation and lists are handled in the same way for all
operators (docs/filter.md).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from xds.filter.expression import And, EvaluationError, Expression, Match, Not, Operator, matches_in, parse
from xds.filter.values import SEARCHED_LIMIT, FixedRecord, closest, type_name

Predicate = Callable[[object], bool]

COMPILED_CACHED = 1_000

_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# The words of Go's ParseBool. An operand is converted to the type of the field.
_TRUTHS = {text: truth for truth, texts in ((True, "1 t T true TRUE True"), (False, "0 f F false FALSE False"))
           for text in texts.split()}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Operand:
    """An operand as it is written, and as a number or boolean for fields of these types; None if it is not one."""

    text: str
    number: int | float | None
    truth: bool | None

    def equals(self, value: object) -> bool:
        """Whether the operand equals a value: strings are compared as text, numbers by value."""
        if isinstance(value, str):
            return value == self.text
        if isinstance(value, bool):
            return value is self.truth
        return isinstance(value, int | float) and value == self.number


def _operand(text: str) -> _Operand:
    whole, number = _WHOLE.fullmatch(text), _NUMBER.fullmatch(text)
    return _Operand(text, int(text) if whole else float(text) if number else None, _TRUTHS.get(text))


def _equal(match: Match) -> Predicate:
    operand = _operand(match.text)

    def test(value: object) -> bool:
        if isinstance(value, Mapping | list | tuple):
            raise _wrong_type_error(match, value, 'use "contains" or "in"')
        return operand.equals(value)

    return test


def _contains(match: Match) -> Predicate:
    operand = _operand(match.text)

    def test(value: object) -> bool:
        if isinstance(value, str):
            return match.text in value
        if isinstance(value, Mapping):
            return match.text in value
        if isinstance(value, list | tuple):
            return any(map(operand.equals, value))
        raise _wrong_type_error(match, value, 'use "=="')

    return test


def _empty(match: Match) -> Predicate:
    def test(value: object) -> bool:
        if isinstance(value, str | Mapping | list | tuple):
            return not value
        raise _wrong_type_error(match, value)

    return test


def _matches(match: Match) -> Predicate:
    pattern = match.pattern
    assert pattern is not None, "the parser compiles it"

    def test(value: object) -> bool:
        if not isinstance(value, str):
            raise _wrong_type_error(match, value)
        if len(value) > SEARCHED_LIMIT:
            detail = f"{match.selector} has {len(value)} characters, {SEARCHED_LIMIT} are searched at most"
            raise EvaluationError(detail, match.column)
        return pattern.search(value)

    return test


def _wrong_type_error(match: Match, value: object, hint: str = "") -> EvaluationError:
    detail = f'{match.selector} is {type_name(value)}: "{match.operator.value}" does not apply'
    return EvaluationError(detail, match.column, hint)


TESTS: dict[Operator, Callable[[Match], Predicate]] = {
    Operator.EQUAL: _equal,
    Operator.CONTAINS: _contains,
    Operator.EMPTY: _empty,
    Operator.MATCHES: _matches,
}


class Filter:
    """A predicate on mappings, lists, strings, numbers and booleans. The empty filter matches every value."""

    __slots__ = ("_matches", "_predicate", "text")

    def __init__(self, text: str, expression: Expression | None) -> None:
        self.text = text
        self._matches = tuple(matches_in(expression)) if expression is not None else ()
        self._predicate: Predicate = _compiled(expression) if expression is not None else lambda value: True

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"

    def matches(self, value: object) -> bool:
        """Whether the value matches the filter. Raises ``EvaluationError``."""
        return self._predicate(value)

    def check(self, shape: FixedRecord) -> None:
        """Raise ``EvaluationError`` for a selector that no value of this shape has, and for a map or list as a text.

        Plain maps may have any key.
        """
        for match in self._matches:
            _check_path(match, shape)


@lru_cache(COMPILED_CACHED)
def compile_filter(text: str) -> Filter:
    """Compile a filter. Raises ``FilterSyntaxError``.

    Filters have no state, so they are cached: thousands of bindings and subsets have the same few filters, and parsing
    one takes a millisecond.
    """
    return Filter(text, parse(text) if text.strip() else None)


def _compiled(expression: Expression) -> Predicate:
    if isinstance(expression, Match):
        return _match_predicate(expression)
    if isinstance(expression, Not):
        operand = _compiled(expression.operand)
        return lambda value: not operand(value)
    operands = tuple(map(_compiled, expression.operands))
    return _every(operands) if isinstance(expression, And) else _some(operands)


def _every(operands: tuple[Predicate, ...]) -> Predicate:
    def test(value: object) -> bool:
        for operand in operands:  # noqa: SIM110 -- all() costs as much as the comparisons
            if not operand(value):
                return False
        return True

    return test


def _some(operands: tuple[Predicate, ...]) -> Predicate:
    def test(value: object) -> bool:
        for operand in operands:  # noqa: SIM110 -- as above
            if operand(value):
                return True
        return False

    return test


def _match_predicate(match: Match) -> Predicate:
    """The predicate of a match: its operator applied to the value at its path. `_through` handles rarer values."""
    test, negated, path = TESTS[match.operator](match), match.negated, match.path
    if_absent = (match.operator is Operator.EMPTY) is not negated

    def evaluate(value: object) -> bool:
        for at, key in enumerate(path):
            if not isinstance(value, dict):
                return _through(value, at, match, test)
            parent, value = value, value.get(key)
            if value is None:
                _check_field(parent, key, match)
                return if_absent
        return if_absent if value is None else test(value) is not negated

    return evaluate


def _through(value: object, at: int, match: Match, test: Predicate) -> bool:
    """Evaluate the rest of the path, from index ``at``. A list matches if one of its elements matches."""
    pending = [(value, at)]  # not recursive, because values come from outside and may nest lists deeply
    while pending:
        member, at = pending.pop()
        while at < len(match.path) and isinstance(member, Mapping):
            member, at = _member(member, match.path[at], match), at + 1
        if member is not None and at < len(match.path):
            if not isinstance(member, list | tuple):
                raise _no_members_error(match, at, member)
            pending += [(item, at) for item in reversed(member)]
            continue
        positive = match.operator is Operator.EMPTY if member is None else test(member)
        if positive is not match.negated:
            return True
    return False


def _member(parent: Mapping[str, object], key: str, match: Match) -> object:
    member = parent.get(key)
    if member is None:
        _check_field(parent, key, match)
    return member


def _check_field(parent: Mapping[str, object], key: str, match: Match) -> None:
    if isinstance(parent, FixedRecord) and key not in parent:
        raise EvaluationError(f"{match.selector}: there is no field {key!r}", match.column, closest(key, parent))


def _no_members_error(match: Match, at: int, value: object) -> EvaluationError:
    place = ".".join(match.path[:at]) or "the value"
    return EvaluationError(f"{match.selector}: {place} is {type_name(value)} and has no members", match.column)


def _check_path(match: Match, shape: FixedRecord) -> None:
    member: object = shape
    for at, key in enumerate(match.path):
        if isinstance(member, FixedRecord):
            member = _member(member, key, match)
        elif isinstance(member, Mapping | list | tuple) or member is None:
            return
        else:
            raise _no_members_error(match, at, member)
    if isinstance(member, Mapping | list | tuple) and match.operator in (Operator.EQUAL, Operator.MATCHES):
        raise _wrong_type_error(match, member, _members_hint(match, member))


def _members_hint(match: Match, value: object) -> str:
    if isinstance(value, FixedRecord):
        return f"there are: {', '.join(f'{match.selector}.{key}' for key in sorted(value))}"
    return f"name one of its keys: {match.selector}.KEY" if isinstance(value, Mapping) else 'use "contains" or "in"'
