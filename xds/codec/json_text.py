"""JSON text to plain values, strictly: no key twice, no NaN, no depth that a parser would stumble over.

The C parser of the standard library reads; what it refuses without a place is looked for afterwards, token by token.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator

from xds.codec.text_error import TextError, place_of
from xds.codec.yaml_text import TEXT_LIMIT as SEARCH_LIMIT

# Nothing that is pushed nests deeper (protobuf parsers stop at 100 messages); the parser itself stops at about 1000.
DEPTH_LIMIT = 250

_TOKEN = re.compile(
    r'(?P<text>"[^"\\]*(?:\\.[^"\\]*)*")(?P<colon>[ \t\r\n]*:)?'
    r"|(?P<open>[\[{])|(?P<close>[\]}])|(?P<word>-?(?:NaN|Infinity))|(?P<digits>[0-9]+)",
    re.DOTALL,
)


class _RefusedError(Exception):
    """Something that JSON, or this reader, does not allow; its place is not known yet."""


def parse_json(text: str) -> object:
    """The value of a JSON text. Raises ``TextError`` with the place of what cannot be read.

    The parser calls back for each object, so that it does not hold up other threads.
    """
    try:
        return json.loads(text, object_pairs_hook=json_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise TextError(error.msg, error.lineno, error.colno) from None
    except RecursionError:
        raise _flaw(text, "nested too deeply") from None
    except (_RefusedError, ValueError) as error:  # ValueError: an integer of thousands of digits
        raise _flaw(text, str(error)) from None


def json_object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """One object; a key that comes twice is refused."""
    built = dict(pairs)
    if len(built) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise _RefusedError(_twice(next(key for key, count in counts.items() if count > 1)))
    return built


def _constant(name: str) -> object:
    raise _RefusedError(f"{name} is not JSON")


def _twice(key: str) -> str:
    return f"duplicate key {key[:80]!r}"


def _flaw(text: str, detail: str) -> TextError:
    """The error for the first flaw of a text that is JSON by its grammar."""
    found = next(_flaws(text), None) if len(text) <= SEARCH_LIMIT else None
    if found is None:
        return TextError(detail)
    told, offset = found
    return TextError(told, *place_of(text, offset))


def _flaws(text: str) -> Iterator[tuple[str, int]]:
    """What ``parse_json`` refuses beyond grammar, and where."""
    keys: list[set[str]] = []  # of the open objects and lists
    for token in _TOKEN.finditer(text):
        if token["colon"] and keys:
            key = json.loads(token["text"], strict=False)
            if key in keys[-1]:
                yield _twice(key), token.start()
            keys[-1].add(key)
        elif token["open"]:
            keys.append(set())
            if len(keys) > DEPTH_LIMIT:
                yield f"nested deeper than {DEPTH_LIMIT} levels", token.start()
        elif token["close"] and keys:
            keys.pop()
        elif token["word"]:
            yield f"{token['word']} is not JSON", token.start()
        elif token["digits"] and len(token["digits"]) > sys.get_int_max_str_digits() > 0:
            yield f"a number of {len(token['digits'])} digits", token.start()
