"""Parses filters into frozen values. Errors say what was expected, and what the author probably meant.

The grammar is ``filter.lark``. lark is imported when the first filter is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xds.filter.values import Pattern
from xds.model.errors import XdsError

if TYPE_CHECKING:
    from lark import Lark, Token, Tree, UnexpectedInput

TEXT_LIMIT = 4096  # characters
DEPTH_LIMIT = 32  # nested parentheses and negations
PATTERNS_LIMIT = 16  # regular expressions


class FilterError(XdsError):
    """An error in a filter. ``column`` is its position, from 1; ``hint`` says what to write instead, or is empty."""

    def __init__(self, detail: str, column: int, hint: str = "") -> None:
        super().__init__(f"column {column}: {detail}" + (f"; {hint}" if hint else ""))
        self.detail = detail
        self.column = column
        self.hint = hint


class FilterSyntaxError(FilterError):
    """The text is not a filter."""


class EvaluationError(FilterError):
    """The filter cannot be evaluated: a field is unknown, or an operator does not apply to the type of a value."""


class Operator(Enum):
    """The operator of a match. ``in`` is ``contains`` with exchanged operands."""

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
    """True if all operands are true. Operands are evaluated from left to right, up to the first false one."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """True if some operand is true. Operands are evaluated from left to right, up to the first true one."""

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


_GRAMMAR = Path(__file__).with_name("filter.lark")
_OPERATORS = {
    "EQUAL": (Operator.EQUAL, False),
    "UNEQUAL": (Operator.EQUAL, True),
    "CONTAINS": (Operator.CONTAINS, False),
    "NOT_CONTAINS": (Operator.CONTAINS, True),
    "IN": (Operator.CONTAINS, False),
    "NOT_IN": (Operator.CONTAINS, True),
    "MATCHES": (Operator.MATCHES, False),
    "NOT_MATCHES": (Operator.MATCHES, True),
    "IS_EMPTY": (Operator.EMPTY, False),
    "IS_NOT_EMPTY": (Operator.EMPTY, True),
}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_UNSUPPORTED = re.compile(r"perl operator|escape sequence: \\[1-9]")
_LAST_CODE_POINT = 0x10FFFF


def parse(text: str) -> Expression:
    """Parse a filter. Raises ``FilterSyntaxError``."""
    from lark import UnexpectedInput

    if len(text) > TEXT_LIMIT:
        raise FilterSyntaxError(f"the filter has {len(text)} characters, {TEXT_LIMIT} are allowed", TEXT_LIMIT + 1)
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        raise _syntax_error(text, error) from None
    expression = _expression(tree, 0)
    patterns = [match for match in matches_in(expression) if match.pattern is not None]
    if len(patterns) > PATTERNS_LIMIT:
        detail = f"the filter has {len(patterns)} regular expressions, {PATTERNS_LIMIT} are allowed"
        raise FilterSyntaxError(detail, patterns[PATTERNS_LIMIT].column, "one may hold alternatives: a|b")
    return expression


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(_GRAMMAR.read_text(), parser="lalr", lexer="contextual", propagate_positions=True)


def _syntax_error(text: str, error: UnexpectedInput) -> FilterSyntaxError:
    accepts = frozenset(getattr(error, "accepts", None) or getattr(error, "allowed", None) or ())
    position = error.pos_in_stream
    if position is None or not text[position:].strip() or getattr(getattr(error, "token", None), "type", "") == "$END":
        position = len(text.rstrip())
    return FilterSyntaxError(expected(text, position, accepts), position + 1, hint(text, position, accepts))


# From the parse tree to an expression


def _expression(tree: Tree[Token], depth: int) -> Expression:
    if depth > DEPTH_LIMIT:
        raise FilterSyntaxError(f"nested more than {DEPTH_LIMIT} deep", tree.meta.start_pos + 1)
    parts: list[Any] = tree.children
    if tree.data == "group":
        return _expression(parts[0], depth + 1)
    if tree.data == "negate":
        return Not(_expression(parts[0], depth + 1))
    if tree.data in {"some", "every"}:
        operands = tuple(_expression(part, depth) for part in parts)
        return Or(operands) if tree.data == "some" else And(operands)
    if tree.data == "reversed":
        value, operator, selector = parts
        return _match(selector, operator, value)
    return _match(*parts)


def _match(selector: Tree[Token], operator: Tree[Token], value: Tree[Token] | None = None) -> Match:
    kind, negated = _OPERATORS[_token(operator).type]
    literal = _token(value) if value is not None else None
    text = _text(literal) if literal is not None else ""
    pattern = _pattern(text, literal) if kind is Operator.MATCHES and literal is not None else None
    column = selector.meta.start_pos + 1
    return Match(tuple(_path(selector)), kind, column, negated, text, pattern)


def _path(selector: Tree[Token]) -> list[str]:
    path: list[str] = []
    parts: list[Any] = selector.children
    for part in parts:
        if hasattr(part, "data"):
            path.append(_text(_token(part)))
        else:
            path += part.strip(".").split(".")
    return path


def _token(tree: Tree[Token]) -> Token:
    token: Any = tree.children[0]
    return token  # type: ignore[no-any-return]


def _pattern(text: str, literal: Token) -> Pattern:
    try:
        return Pattern(text)
    except ValueError as error:
        hint = "RE2 has no back references and no look-around" if _UNSUPPORTED.search(str(error)) else ""
        raise FilterSyntaxError(f"not a regular expression: {error}", _column(literal), hint) from None


def _text(token: Token) -> str:
    """The value of a word, number or quoted text."""
    if token.type == "RAW":
        return token[1:-1].replace("\r", "")
    if token.type == "STRING":
        return _ESCAPE.sub(lambda match: _unescaped(match, token), token[1:-1])
    return str(token)


def _unescaped(match: re.Match[str], token: Token) -> str:
    digits = match[1] or match[2] or match[3]
    if digits and int(digits, 16) <= _LAST_CODE_POINT:
        return chr(int(digits, 16))
    known = _ESCAPED.get(match[4]) if match[4] else None
    if known is None:
        column = _column(token) + 1 + match.start()
        raise FilterSyntaxError(f"unknown escape {match[0]}", column, "between backquotes nothing is escaped")
    return known


def _column(token: Token) -> int:
    return (token.start_pos or 0) + 1


_KEYWORDS = frozenset({"and", "or", "not", "in", "is", "empty", "contains", "matches"})
_OPERATOR_WORDS = frozenset({"EQUAL", "UNEQUAL", "CONTAINS", "IN", "IS_EMPTY", "MATCHES"})
_VALUES = frozenset({"NUMBER", "STRING", "RAW"})
_CORRECTIONS = (("&&", '"and"'), ("||", '"or"'), ("!", '"not"'), ("=~", '"matches"'), ("~", '"matches"'), ("=", '"=="'))
_KEYS = frozenset({"STRING", "RAW"})
_EXPECTATIONS = (
    (_OPERATOR_WORDS, 'an operator (==, !=, contains, in, matches, is empty, or one of them with "not")'),
    (frozenset({"WORD", "_NOT"}), "a selector or a value"),
    (_VALUES, "a value"),
    (_KEYS, 'a quoted key, as in ["a key"]'),
    (frozenset({"WORD"}), "a selector"),
    (frozenset({"_AND", "RPAR"}), '"and", "or" or ")"'),
    (frozenset({"_AND"}), '"and", "or" or the end'),
    (frozenset({"RPAR"}), '"and", "or" or ")"'),
    (frozenset({"$END"}), '"and", "or" or the end'),
    (frozenset({"IN", "NOT_IN"}), '"in" or "not in" after a value'),
    (frozenset({"RSQB"}), '"]"'),
)
_RUN = re.compile(r"""[^\s()"`]+""")
_UNQUOTED = re.compile(r"[A-Za-z0-9_./-]+")


def expected(text: str, position: int, accepts: Collection[str]) -> str:
    """The error message for a position; ``accepts`` are the tokens that the grammar allows there."""
    word = repr(_word_at(text, position)) if text[position:].strip() else "the end"
    what = _expectation(accepts)
    return f"expected {what}, found {word}" if what else f"unexpected {word}"


def hint(text: str, position: int, accepts: Collection[str]) -> str:
    """A suggestion what to write instead; empty for none. The arguments are as in `expected`."""
    rest = text[position:]
    word = _word_at(text, position)
    if rest.startswith("'"):
        return 'texts are quoted with " or `'
    if rest.startswith('"') or rest.startswith("`"):
        return "the quoted text does not end" if rest.count(rest[0]) == 1 else ""
    for wrong, right in _CORRECTIONS:
        if rest.startswith(wrong) and not rest.startswith(("==", "!=")):
            return f"write {right}"
    if word.lower() in _KEYWORDS and word not in _KEYWORDS:
        return f'keywords are in lower case: "{word.lower()}"'
    return _quoting_hint(text, position, accepts)


def _quoting_hint(text: str, position: int, accepts: Collection[str]) -> str:
    unquoted = _UNQUOTED.match(text, position)
    if unquoted is None:
        return ""
    if set(accepts) == _KEYS:
        return f'quote the key: ["{unquoted[0]}"]'
    start = position
    while start and _UNQUOTED.fullmatch(text[start - 1]):
        start -= 1
    if start == position and not set(accepts) >= _VALUES:
        return ""
    word = text[start : unquoted.end()]
    if not set(accepts) >= _OPERATOR_WORDS:
        return f'quote the value: "{word}"'
    head, _, key = word.rpartition(".")  # the selector continues with characters that need quotes
    return f'write {head}["{key}"]' if head and not key.startswith("-") else ""


def _expectation(accepts: Collection[str]) -> str:
    expected = set(accepts)
    return next((expectation for tokens, expectation in _EXPECTATIONS if expected >= tokens), "")


def _word_at(text: str, position: int) -> str:
    match = _RUN.match(text, position)
    return match[0][:40] if match is not None else text[position : position + 1]
