"""What the operators say of a value that is there.

What is not there, negation and the way through lists are the same for all of them: see ``filter``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from xds.filter.data import kind_of
from xds.filter.errors import EvaluationError
from xds.filter.expression import Match, Operator
from xds.filter.pattern import SEARCHED_LIMIT

Predicate = Callable[[object], bool]

_WHOLE = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# As Go's ParseBool reads them: the language compares a value with a field in the field's own kind.
_TRUTHS = {text: truth for truth, texts in ((True, "1 t T true TRUE True"), (False, "0 f F false FALSE False"))
           for text in texts.split()}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Operand:
    """A value as it is written, and what it is to fields of other kinds."""

    text: str
    number: int | float | None
    truth: bool | None

    def equals(self, found: object) -> bool:
        """Numbers compare with texts as they are written, with numbers by what they are worth."""
        if isinstance(found, str):
            return found == self.text
        if isinstance(found, bool):
            return found is self.truth
        return isinstance(found, int | float) and found == self.number


def _operand(text: str) -> _Operand:
    whole, number = _WHOLE.fullmatch(text), _NUMBER.fullmatch(text)
    return _Operand(text, int(text) if whole else float(text) if number else None, _TRUTHS.get(text))


def _equal(match: Match) -> Predicate:
    operand = _operand(match.text)

    def test(found: object) -> bool:
        if isinstance(found, Mapping | list | tuple):
            raise _does_not_fit(match, found, 'use "contains" or "in"')
        return operand.equals(found)

    return test


def _contains(match: Match) -> Predicate:
    operand = _operand(match.text)

    def test(found: object) -> bool:
        if isinstance(found, str):
            return match.text in found
        if isinstance(found, Mapping):
            return match.text in found
        if isinstance(found, list | tuple):
            return any(map(operand.equals, found))
        raise _does_not_fit(match, found, 'use "=="')

    return test


def _empty(match: Match) -> Predicate:
    def test(found: object) -> bool:
        if isinstance(found, str | Mapping | list | tuple):
            return not found
        raise _does_not_fit(match, found)

    return test


def _matches(match: Match) -> Predicate:
    pattern = match.pattern
    assert pattern is not None, "the parser compiles it"

    def test(found: object) -> bool:
        if not isinstance(found, str):
            raise _does_not_fit(match, found)
        if len(found) > SEARCHED_LIMIT:
            detail = f"{match.selector} has {len(found)} characters, {SEARCHED_LIMIT} are searched at most"
            raise EvaluationError(detail, match.column)
        return pattern.search(found)

    return test


def _does_not_fit(match: Match, found: object, hint: str = "") -> EvaluationError:
    detail = f'{match.selector} is {kind_of(found)}: "{match.operator.value}" does not apply'
    return EvaluationError(detail, match.column, hint)


TESTS: dict[Operator, Callable[[Match], Predicate]] = {
    Operator.EQUAL: _equal,
    Operator.CONTAINS: _contains,
    Operator.EMPTY: _empty,
    Operator.MATCHES: _matches,
}
