"""What to say of a text that is no filter: what was expected there, and what was probably meant."""

from __future__ import annotations

import re
from collections.abc import Collection

_KEYWORDS = frozenset({"and", "or", "not", "in", "is", "empty", "contains", "matches"})
_OPERATORS = frozenset({"EQUAL", "UNEQUAL", "CONTAINS", "IN", "IS_EMPTY", "MATCHES"})
_VALUES = frozenset({"NUMBER", "STRING", "RAW"})
_INSTEAD = (("&&", '"and"'), ("||", '"or"'), ("!", '"not"'), ("=~", '"matches"'), ("~", '"matches"'), ("=", '"=="'))
_KEYS = frozenset({"STRING", "RAW"})
_EXPECTATIONS = (
    (_OPERATORS, 'an operator (==, !=, contains, in, matches, is empty, or one of them with "not")'),
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
    """What is wrong at a position; ``accepts`` are the grammar's tokens that could stand there."""
    found = repr(_word_at(text, position)) if text[position:].strip() else "the end"
    what = _expectation(accepts)
    return f"expected {what}, found {found}" if what else f"unexpected {found}"


def hint(text: str, position: int, accepts: Collection[str]) -> str:
    """What to write instead; empty where nothing comes to mind."""
    rest = text[position:]
    word = _word_at(text, position)
    if rest.startswith("'"):
        return 'texts are quoted with " or `'
    if rest.startswith('"') or rest.startswith("`"):
        return "the quoted text does not end" if rest.count(rest[0]) == 1 else ""
    for wrong, right in _INSTEAD:
        if rest.startswith(wrong) and not rest.startswith(("==", "!=")):
            return f"write {right}"
    if word.lower() in _KEYWORDS and word not in _KEYWORDS:
        return f'words of the language are in small letters: "{word.lower()}"'
    return _quoting(text, position, accepts)


def _quoting(text: str, position: int, accepts: Collection[str]) -> str:
    here = _UNQUOTED.match(text, position)
    if here is None:
        return ""
    if set(accepts) == _KEYS:
        return f'quote the key: ["{here[0]}"]'
    start = position
    while start and _UNQUOTED.fullmatch(text[start - 1]):
        start -= 1
    if start == position and not set(accepts) >= _VALUES:
        return ""
    whole = text[start : here.end()]
    if not set(accepts) >= _OPERATORS:
        return f'quote the value: "{whole}"'
    head, _, key = whole.rpartition(".")  # a selector goes on with what no selector has
    return f'write {head}["{key}"]' if head and not key.startswith("-") else ""


def _expectation(accepts: Collection[str]) -> str:
    found = set(accepts)
    return next((told for tokens, told in _EXPECTATIONS if found >= tokens), "")


def _word_at(text: str, position: int) -> str:
    found = _RUN.match(text, position)
    return found[0][:40] if found is not None else text[position : position + 1]
