"""Converts JSON values to the values of scalar and enum fields, by the rules of proto3 JSON and as leniently as Envoy.

Envoy accepts more than proto3 JSON (measured with ``--mode validate``, Envoy 1.40: ``tests/codec/lax_cases.py``): enum
names in any case, booleans as words, numbers in quotes in any notation. Such a value is returned as a `LaxValue`, and
the caller adds a warning. Envoy refuses numbers for strings and fractions for integers; so does this module.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, partial
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

from xds.codec.findings import SHOWN_LIMIT, short_repr
from xds.model.text_flaws import CODE, HALF_PAIR, flaw_of

Converter = Callable[[object], object]

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_SIGNED = re.compile(r"[-+]?[0-9]{1,20}")
_NUMBER = re.compile(r"-?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]{1,5})?")
_LAX_NUMBER = re.compile(r"[-+]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][-+]?[0-9]{1,5})?")
_HEX_NUMBER = re.compile(
    r"[-+]?0[xX]([0-9a-fA-F]{1,20}(\.[0-9a-fA-F]{0,20})?|\.[0-9a-fA-F]{1,20})([pP][-+]?[0-9]{1,4})?"
)
_FLOAT_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LAX_FLOAT_WORD = re.compile(r"[-+]?(inf(inity)?|nan)", re.IGNORECASE)
_FLOAT32_LIMIT = 3.4028235677973366e38
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_ENUM_RANGE = range(-(2**31), 2**31)
# Words that Envoy accepts in JSON, and those that its YAML reader accepts unquoted (on, off).
_BOOLEANS = {
    **dict.fromkeys(("true", "t", "yes", "y", "1", "on"), True),
    **dict.fromkeys(("false", "f", "no", "n", "0", "off"), False),
}
_ENUM_NAMES_SHOWN = 12


class ScalarError(Exception):
    """A value that its field cannot hold. ``code`` and ``hint`` are those of the finding.

    ``detail_without_value`` is shown for fields that hold secrets.
    """

    def __init__(self, code: str, detail: str, hint: str = "", detail_without_value: str = "") -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.hint = hint
        self.detail_without_value = detail_without_value or "a value that does not fit the field"


@dataclass(frozen=True, slots=True)
class LaxValue:
    """A value that is accepted, although it should be written in another form."""

    value: object
    detail: str
    hint: str


def wrong_type(expected: str, value: object, hint: str = "") -> ScalarError:
    """The error for a value of the wrong kind."""
    return ScalarError(
        "wrong_type",
        f"expected {expected}, not {short_repr(value)}",
        hint,
        f"expected {expected}, not {json_kind(value)}",
    )


def json_kind(value: object) -> str:
    """The kind of a JSON value, without the value."""
    return next((word for kind, word in _KINDS if isinstance(value, kind)), "null")


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "text"),
    (list, "a list"),
    (dict, "an object"),
)


def integer(value: object, valid: range) -> object:
    """A whole number of the range; a quoted one in a notation that JSON does not have becomes a ``LaxValue``."""
    number: Any = value
    if isinstance(value, str):
        number = _quoted_integer(value)
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int):
        raise wrong_type("an integer", value)
    if number not in valid:
        raise ScalarError("out_of_range", f"{short_repr(number)} is not between {valid[0]} and {valid[-1]}")
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        return LaxValue(number, f"{short_repr(value)} is read as {number}", f"write {number}")
    return int(number)


def _quoted_integer(value: str) -> int | None:
    """The integer that a string stands for; whole numbers in any notation, as a double holds them."""
    if _SIGNED.fullmatch(value):
        return int(value)
    number = None if value != value.strip() else _quoted_number(value)
    return int(number) if number is not None and number.is_integer() else None


def _quoted_number(value: str) -> float | None:
    bare = value.strip()
    if _LAX_NUMBER.fullmatch(bare) or _LAX_FLOAT_WORD.fullmatch(bare):
        return float(bare)
    if _HEX_NUMBER.fullmatch(bare):
        try:
            return float.fromhex(bare)
        except OverflowError:
            return math.inf
    return None


def _float(value: object, limit: float) -> object:
    if isinstance(value, str):
        return _float_text(value, limit)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type("a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or abs(number) > limit:
        raise ScalarError("out_of_range", f"{short_repr(value)[:40]} does not fit the field")
    return number


def _float_text(value: str, limit: float) -> object:
    if value in _FLOAT_WORDS:
        return _FLOAT_WORDS[value]
    number = _quoted_number(value)
    if number is None:
        raise wrong_type("a number", value)
    if math.isfinite(number) and abs(number) > limit:
        raise ScalarError("out_of_range", f"{short_repr(value)[:40]} does not fit the field")
    if _NUMBER.fullmatch(value) and math.isfinite(number):
        return number
    return LaxValue(number, f"{short_repr(value)} is read as {number:g}", "write a plain number")


def number(value: object) -> object:
    """A finite number of double precision."""
    return _float(value, math.inf)


def boolean(value: object) -> object:
    """``true`` or ``false``; a word for one of them becomes a ``LaxValue``."""
    if isinstance(value, bool):
        return value
    known = _BOOLEANS.get(value.lower()) if isinstance(value, str) else None
    if known is None:
        raise wrong_type("true or false", value)
    word = "true" if known else "false"
    return LaxValue(known, f"{short_repr(value)} is read as {word}", f"write {word} without quotes")


def text(value: object) -> str:
    """A string that can be encoded."""
    if not isinstance(value, str):
        quoted = isinstance(value, int | float) and not isinstance(value, bool)
        raise wrong_type("a string", value, f'write it in quotes: "{short_repr(value)}"' if quoted else "")
    if flaw_of(value) == HALF_PAIR:
        raise ScalarError(CODE, HALF_PAIR)
    return value


def octets(value: object) -> bytes:
    """Base64, standard or URL-safe, with all its padding or none; anything else in it is refused, as Envoy does."""
    if not isinstance(value, str):
        raise wrong_type("base64 text", value)
    standard = value.replace("-", "+").replace("_", "/")
    bare = standard.rstrip("=")
    padding = -len(bare) % 4
    if not _BASE64.fullmatch(standard) or len(standard) - len(bare) not in (0, padding):
        raise ScalarError("bad_base64", "not base64")
    try:
        return base64.b64decode(bare + "=" * padding, validate=True)
    except binascii.Error as error:
        raise ScalarError("bad_base64", f"not base64: {error}") from None


@cache
def _enum_numbers(enum: EnumDescriptor) -> dict[str, int]:
    """The numbers of an enum by name: its own table fails for lone surrogates."""
    return {value.name: value.number for value in enum.values}


@cache
def _enum_names(enum: EnumDescriptor) -> dict[str, str]:
    """The names of an enum's values by the name in lower case; of two equal ones, the first."""
    return {name.lower(): name for name in reversed([value.name for value in enum.values])}


def _enum(value: object, enum: EnumDescriptor) -> object:
    """An enum value by name or number, known or not; names in another case and quoted numbers are ``LaxValue``."""
    if not isinstance(value, str):
        return integer(value, _ENUM_RANGE)
    value_number = _enum_numbers(enum).get(value)
    if value_number is not None:
        return value_number
    name = _enum_names(enum).get(value.lower())
    if name is not None:
        return LaxValue(enum.values_by_name[name].number, f"{short_repr(value)} is read as {name}", f"write {name}")
    if not _SIGNED.fullmatch(value.strip()):
        raise ScalarError("unknown_enum_value", f"{short_repr(value)} is not a {enum.name}", _enum_hint(value, enum))
    number = int(value)
    if number not in _ENUM_RANGE:
        raise ScalarError("out_of_range", f"{number} is not an enum value")
    known = enum.values_by_number.get(number)
    return LaxValue(number, f"{short_repr(value)} is read as {number}", f"write {known.name if known else number}")


def _enum_hint(value: str, enum: EnumDescriptor) -> str:
    names = [one.name for one in enum.values]
    close = get_close_matches(value.upper()[:SHOWN_LIMIT], names, n=1)
    if close:
        return f'did you mean "{close[0]}"?'
    return f"one of {', '.join(names)}" if len(names) <= _ENUM_NAMES_SHOWN else ""


_INT32 = partial(integer, valid=range(-(2**31), 2**31))
_UINT32 = partial(integer, valid=range(2**32))
_INT64 = partial(integer, valid=range(-(2**63), 2**63))
_UINT64 = partial(integer, valid=range(2**64))

_CONVERTERS: dict[int, Converter] = {
    FieldDescriptor.TYPE_BOOL: boolean,
    FieldDescriptor.TYPE_STRING: text,
    FieldDescriptor.TYPE_BYTES: octets,
    FieldDescriptor.TYPE_DOUBLE: number,
    FieldDescriptor.TYPE_FLOAT: partial(_float, limit=_FLOAT32_LIMIT),
    **dict.fromkeys((FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_SINT32, FieldDescriptor.TYPE_SFIXED32), _INT32),
    **dict.fromkeys((FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_SFIXED64), _INT64),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT32, FieldDescriptor.TYPE_FIXED32), _UINT32),
    **dict.fromkeys((FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64), _UINT64),
}


def converter(field: FieldDescriptor) -> Converter:
    """The converter of JSON values for a scalar or enum field; it raises ``ScalarError``."""
    if field.enum_type is not None:
        return partial(_enum, enum=field.enum_type)
    return _CONVERTERS[field.type]
