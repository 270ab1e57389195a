"""From text to expression. The grammar is ``filter.lark``; lark is loaded with the first filter."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xds.filter.errors import FilterSyntaxError
from xds.filter.expression import Every, Expression, Match, Not, Operator, Some, matches_in
from xds.filter.hints import expected, hint
from xds.filter.pattern import Pattern

if TYPE_CHECKING:
    from lark import Lark, Token, Tree, UnexpectedInput

TEXT_LIMIT = 4096  # characters
DEPTH_LIMIT = 32  # parentheses and negations within each other
PATTERNS_LIMIT = 16  # regular expressions

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
_LEFT_OUT = re.compile(r"perl operator|escape sequence: \\[1-9]")
_LAST_CODE_POINT = 0x10FFFF


def parse(text: str) -> Expression:
    """Raises ``FilterSyntaxError``."""
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


# From tree to expression


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
        return Some(operands) if tree.data == "some" else Every(operands)
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
        hint = "RE2 has no back references and no look-around" if _LEFT_OUT.search(str(error)) else ""
        raise FilterSyntaxError(f"not a regular expression: {error}", _column(literal), hint) from None


def _text(token: Token) -> str:
    """What a word, number or quoted text stands for."""
    if token.type == "RAW":
        return token[1:-1].replace("\r", "")
    if token.type == "STRING":
        return _ESCAPE.sub(lambda found: _unescaped(found, token), token[1:-1])
    return str(token)


def _unescaped(found: re.Match[str], token: Token) -> str:
    digits = found[1] or found[2] or found[3]
    if digits and int(digits, 16) <= _LAST_CODE_POINT:
        return chr(int(digits, 16))
    known = _ESCAPED.get(found[4]) if found[4] else None
    if known is None:
        column = _column(token) + 1 + found.start()
        raise FilterSyntaxError(f"unknown escape {found[0]}", column, "between backquotes nothing is escaped")
    return known


def _column(token: Token) -> int:
    return (token.start_pos or 0) + 1
