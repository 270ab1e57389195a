"""The syntax of Lua scripts, as LuaJIT reads them: Envoy loads a filter's script when it takes the configuration.

Only the syntax is checked, and doubtful cases pass: the values of numbers, escapes in strings, the names of labels.
The syntax is that of Lua 5.1 with the additions of LuaJIT: ``goto``, labels, and empty statements.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

_REMEMBERED = 32
_LENGTH_LIMIT = 100_000  # characters; longer scripts are not checked
_DEPTH_LIMIT = 60  # LuaJIT allows 200 levels; deeper scripts are not checked
_SHOWN = 40

_KEYWORDS = frozenset(
    (
        *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "goto", "if", "in", "local"),
        *("nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
    )
)
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f\v]+|--\[(?P<a>=*)\[.*?\](?P=a)\]|--(?!\[=*\[)[^\n]*)
    |(?P<name>[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*)
    |(?P<number>\.?[0-9](?:[eEpP][+-]|[A-Za-z0-9_.])*)
    |(?P<string>"(?:[^"\\\n\r]|\\z\s*+|\\\r\n|\\\n\r|\\[^z])*+"|'(?:[^'\\\n\r]|\\z\s*+|\\\r\n|\\\n\r|\\[^z])*+'|\[(?P<b>=*)\[.*?\](?P=b)\])
    |(?P<symbol>\.\.\.|\.\.|==|~=|<=|>=|::|[-+*/%^\#<>=(){}\];:,.]|\[(?!=*\[))""",
    re.VERBOSE | re.DOTALL,
)
_BINARY = frozenset(("+", "-", "*", "/", "^", "%", "..", "<", "<=", ">", ">=", "==", "~=", "and", "or"))
_UNARY = frozenset(("-", "not", "#"))
_CONSTANTS = frozenset(("nil", "true", "false", "..."))
_BLOCK_ENDS = frozenset(("end", "else", "elseif", "until"))
_ARGUMENTS = frozenset(("(", "{"))  # how the arguments of a call begin
_SEPARATORS = frozenset((",", ";"))  # of the fields of a table


class _Token(NamedTuple):
    """``kind`` is ``name``, ``number``, ``string``, ``symbol`` (keywords too) or ``end``."""

    kind: str
    text: str
    line: int


class _FaultError(Exception):
    """The script is not valid Lua; the message says why and where."""


class _DoubtError(Exception):
    """The script is too deep to be checked."""


@lru_cache(_REMEMBERED)
def lua_fault(script: str) -> str:
    """Why a script is not valid Lua, with the line; empty for a valid one, and for one too long or deep to check."""
    if len(script) > _LENGTH_LIMIT:
        return ""
    try:
        _Parser(_tokens(script)).script()
    except _FaultError as fault:
        return str(fault)
    except (_DoubtError, RecursionError):
        return ""
    return ""


def _tokens(script: str) -> list[_Token]:
    found = []
    at, line = 0, 1
    text = script.removeprefix("\ufeff")
    if text.startswith("#"):  # the line of a Unix interpreter
        at = text.find("\n") if "\n" in text else len(text)
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _FaultError(f"line {line}: unexpected {text[at : at + _SHOWN].splitlines()[0]!r}")
        kind, content = str(token.lastgroup), token[0]
        kind = "string" if kind == "b" else "space" if kind == "a" else kind
        if kind == "name" and content in _KEYWORDS:
            kind = "symbol"
        if kind != "space":
            found.append(_Token(kind, content, line))
        line += content.count("\n")
        at = token.end()
    return [*found, _Token("end", "the end", line)]


class _Parser:
    """Recursive descent over the tokens; raises ``_FaultError`` at a token that the grammar does not allow."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = -1
        self._depth = 0
        self._advance()

    def script(self) -> None:
        self._block()
        if self._kind != "end":
            raise self._unexpected()

    # Tokens

    def _advance(self) -> None:
        """To the next token: its kind, and its text if it is a symbol."""
        self._at += 1
        token = self._tokens[self._at]
        self._kind = token.kind
        self._symbol = token.text if token.kind == "symbol" else ""

    def _unexpected(self, wanted: str = "") -> _FaultError:
        token = self._tokens[self._at]
        shown = token.text if token.kind == "end" else repr(token.text[:_SHOWN])
        return _FaultError(f"line {token.line}: {f'{wanted!r} expected before' if wanted else 'unexpected'} {shown}")

    def _takes(self, symbol: str) -> bool:
        if self._symbol == symbol:
            self._advance()
            return True
        return False

    def _takes_any(self, symbols: frozenset[str]) -> bool:
        if self._symbol in symbols:
            self._advance()
            return True
        return False

    def _want(self, text: str) -> None:
        if not self._takes(text):
            raise self._unexpected(text)

    def _name(self) -> None:
        if self._kind != "name":
            raise self._unexpected("a name")
        self._advance()

    def _names(self) -> None:
        self._name()
        while self._takes(","):
            self._name()

    # Statements

    def _block(self) -> None:
        """Statements, a ``return`` as the last one; the caller reads the token that ends the block."""
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise _DoubtError
        while self._kind != "end" and self._symbol not in _BLOCK_ENDS:
            if self._takes("return"):
                self._returned()
                break
            self._statement()
        self._depth -= 1

    def _returned(self) -> None:
        if self._kind != "end" and self._symbol != ";" and self._symbol not in _BLOCK_ENDS:
            self._expressions()
        self._takes(";")

    def _statement(self) -> None:
        rest = _STATEMENTS.get(self._symbol)
        if rest is not None:
            self._advance()
            rest(self)
        else:
            self._call_or_assignment()

    def _nothing(self) -> None:
        """``;`` and ``break``."""

    def _goto(self) -> None:
        self._name()

    def _label(self) -> None:
        self._name()
        self._want("::")

    def _body(self) -> None:
        """``block end``."""
        self._block()
        self._want("end")

    def _if(self) -> None:
        self._expression()
        self._want("then")
        self._block()
        while self._takes("elseif"):
            self._expression()
            self._want("then")
            self._block()
        if self._takes("else"):
            self._block()
        self._want("end")

    def _while(self) -> None:
        self._expression()
        self._want("do")
        self._body()

    def _repeat(self) -> None:
        self._block()
        self._want("until")
        self._expression()

    def _for(self) -> None:
        """``for`` over numbers, or over what an iterator returns."""
        self._names()
        if self._takes("="):
            self._expression()
            self._want(",")
        else:
            self._want("in")
        self._expressions()
        self._want("do")
        self._body()

    def _function(self) -> None:
        """A name with fields, perhaps a method, then its body."""
        self._name()
        while self._takes("."):
            self._name()
        if self._takes(":"):
            self._name()
        self._function_body()

    def _function_body(self) -> None:
        self._want("(")
        if self._symbol != ")" and not self._takes("..."):
            self._name()
            while self._takes(","):
                if self._takes("..."):
                    break
                self._name()
        self._want(")")
        self._body()

    def _local(self) -> None:
        if self._takes("function"):
            self._name()
            self._function_body()
            return
        self._names()
        if self._takes("="):
            self._expressions()

    def _call_or_assignment(self) -> None:
        if self._suffixed():
            return
        while self._takes(","):
            if self._suffixed():
                raise self._unexpected("=")
        self._want("=")
        self._expressions()

    # Expressions

    def _expressions(self) -> None:
        self._expression()
        while self._takes(","):
            self._expression()

    def _expression(self) -> None:
        """Operands with operators between them: which binds stronger does not matter here."""
        self._depth += 1
        if self._depth > _DEPTH_LIMIT:
            raise _DoubtError
        self._operand()
        while self._takes_any(_BINARY):
            self._operand()
        self._depth -= 1

    def _operand(self) -> None:
        while self._takes_any(_UNARY):
            pass
        if self._kind in ("number", "string"):
            self._advance()
        elif self._takes("function"):
            self._function_body()
        elif self._symbol == "{":
            self._table()
        elif not self._takes_any(_CONSTANTS):
            self._suffixed()

    def _suffixed(self) -> bool:
        """A name or an expression in parentheses, with indices and calls behind it; true when the last is a call."""
        is_call = False
        if self._takes("("):
            self._expression()
            self._want(")")
            is_assignable = False
        elif self._kind == "name":
            self._advance()
            is_assignable = True
        else:
            raise self._unexpected()
        while True:
            if self._takes("."):
                self._name()
                is_call, is_assignable = False, True
            elif self._takes("["):
                self._expression()
                self._want("]")
                is_call, is_assignable = False, True
            elif self._takes(":"):
                self._name()
                self._arguments()
                is_call = True
            elif self._kind == "string" or self._symbol in _ARGUMENTS:
                self._arguments()
                is_call = True
            else:
                break
        if not is_call and not is_assignable and self._symbol == "=":
            raise self._unexpected()
        return is_call

    def _arguments(self) -> None:
        if self._kind == "string":
            self._advance()
        elif self._symbol == "{":
            self._table()
        else:
            self._want("(")
            if self._symbol != ")":
                self._expressions()
            self._want(")")

    def _table(self) -> None:
        self._want("{")
        while self._symbol != "}":
            self._table_field()
            if not self._takes_any(_SEPARATORS):
                break
        self._want("}")

    def _table_field(self) -> None:
        if self._takes("["):
            self._expression()
            self._want("]")
            self._want("=")
        elif self._kind == "name" and self._tokens[self._at + 1][:2] == ("symbol", "="):
            self._advance()
            self._advance()
        self._expression()


_STATEMENTS = {
    ";": _Parser._nothing,
    "break": _Parser._nothing,
    "goto": _Parser._goto,
    "::": _Parser._label,
    "do": _Parser._body,
    "if": _Parser._if,
    "while": _Parser._while,
    "repeat": _Parser._repeat,
    "for": _Parser._for,
    "function": _Parser._function,
    "local": _Parser._local,
}
