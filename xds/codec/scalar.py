"""JSON values to scalar field values, by the rules of proto3 JSON and as lax as Envoy.

Envoy accepts lower-case enum names and quoted booleans (measured with ``--mode validate``); numbers for strings and
fractions for integers it refuses, and so do we.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache, partial
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

Converter = Callable[[object], object]

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,5})?")
_FLOAT_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_FLOAT32_LIMIT = 3.4028235677973366e38
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_ENUM_RANGE = range(-(2**31), 2**31)
_BOOLEANS = {"true": True, "false": False}


class ScalarError(Exception):
    """A value that its field cannot hold. ``code`` is that of the finding."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail


def wrong_type(expected: str, value: object) -> ScalarError:
    """The error for a value of the wrong kind; long values are cut."""
    shown = repr(value)
    return ScalarError("wrong_type", f"expected {expected}, not {shown[:80]}{'...' if len(shown) > 80 else ''}")


def _integer(value: Any, valid: range) -> int:
    whole = isinstance(value, float) and value.is_integer()
    if whole or (isinstance(value, str) and _INTEGER.fullmatch(value)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type("an integer", value)
    if value not in valid:
        raise ScalarError("out_of_range", f"{value} is not between {valid[0]} and {valid[-1]}")
    return int(value)


def _float(value: object, limit: float) -> float:
    if isinstance(value, str) and value in _FLOAT_WORDS:
        return _FLOAT_WORDS[value]
    if isinstance(value, bool) or not (
        isinstance(value, int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value))
    ):
        raise wrong_type("a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not abs(number) <= limit:
        raise ScalarError("out_of_range", f"{str(value)[:40]} does not fit the field")
    return number


def boolean(value: object) -> bool:
    """``true``, ``false``, or these in quotes."""
    if isinstance(value, str) and value in _BOOLEANS:
        return _BOOLEANS[value]
    if not isinstance(value, bool):
        raise wrong_type("true or false", value)
    return value


def text(value: object) -> str:
    """A string that can be encoded."""
    if not isinstance(value, str):
        raise wrong_type("a string", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ScalarError("encoding", "a string with half a surrogate pair") from None
    return value


def octets(value: object) -> bytes:
    """Base64, standard or URL-safe, with or without padding; anything else in it is refused, as Envoy does."""
    if not isinstance(value, str):
        raise wrong_type("base64 text", value)
    standard = value.replace("-", "+").replace("_", "/")
    if not _BASE64.fullmatch(standard):
        raise ScalarError("bad_base64", "not base64")
    bare = standard.rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except binascii.Error as error:
        raise ScalarError("bad_base64", f"not base64: {error}") from None


@cache
def _enum_values(enum: EnumDescriptor) -> dict[str, int]:
    names = {value.name: value.number for value in enum.values}
    return {name.lower(): number for name, number in names.items()} | names


def _enum(value: object, enum: EnumDescriptor) -> int:
    """An enum value by name in any case, or by number, known or not."""
    if isinstance(value, str):
        names = _enum_values(enum)
        number = names.get(value, names.get(value.lower()))
        if number is not None:
            return number
        if not _INTEGER.fullmatch(value):
            raise ScalarError("unknown_enum_value", f"{value[:80]!r} is no {enum.name}{_enum_hint(value, enum)}")
    return _integer(value, _ENUM_RANGE)


def _enum_hint(value: str, enum: EnumDescriptor) -> str:
    close = get_close_matches(value.upper()[:80], [one.name for one in enum.values], n=1)
    return f"; did you mean {close[0]}?" if close else ""


_INT32 = partial(_integer, valid=range(-(2**31), 2**31))
_UINT32 = partial(_integer, valid=range(2**32))
_INT64 = partial(_integer, valid=range(-(2**63), 2**63))
_UINT64 = partial(_integer, valid=range(2**64))

_CONVERTERS: dict[int, Converter] = {
    FieldDescriptor.TYPE_BOOL: boolean,
    FieldDescriptor.TYPE_STRING: text,
    FieldDescriptor.TYPE_BYTES: octets,
    FieldDescriptor.TYPE_DOUBLE: partial(_float, limit=math.inf),
    FieldDescriptor.TYPE_FLOAT: partial(_float, limit=_FLOAT32_LIMIT),
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32), _INT32),
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64), _INT64),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), _UINT32),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), _UINT64),
}


def converter(field: FieldDescriptor) -> Converter:
    """What turns a JSON value into the value of a scalar or enum field; raises ``ScalarError``."""
    if field.enum_type is not None:
        return partial(_enum, enum=field.enum_type)
    return _CONVERTERS[field.type]
