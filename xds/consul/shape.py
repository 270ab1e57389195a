"""The shapes of fields of config entries: how each kind of value is read and written.

Consul's decoder is lax (words for booleans, numbers in quotes, a list of one for an object). What it accepts is
accepted here as well, with a warning.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Any, cast

from xds.codec import scalar
from xds.codec.findings import Findings, duration_hint, normalized_name, short_repr
from xds.consul.quantities import LIMIT_NS, basis_points, duration_text, parse_duration, percent

Path = tuple[str | int, ...]
UINT32 = range(2**32)
UINT64 = range(2**64)
INT64 = range(-(2**63), 2**63)
# Real entries have fewer items. The limit also bounds the chain that is compiled from one entry.
ITEMS_LIMIT = 10_000
KEY_LIMIT = 1_024  # characters of a key, and of a name
SHAPE = "shape"
_NAMES_CACHED = 4_096


class Shape(ABC):
    """How the values of a field are read and written."""

    def empty(self) -> Any:
        """The value of a field that is not given."""
        return None

    @abstractmethod
    def read(self, value: object, findings: Findings, path: Path) -> Any:
        """The value of the field. On an error: the empty value, and a finding."""

    def write(self, value: Any) -> object:
        """The JSON value."""
        return value


def read_scalar(convert: Callable[[object], object], value: object, findings: Findings, path: Path, empty: Any) -> Any:
    """Read one scalar with ``convert``. An impossible value is an error, an unusual one a warning."""
    try:
        converted = convert(value)
    except scalar.ScalarError as error:
        findings.add(error.code, error.detail, path, hint=error.hint)
        return empty
    if isinstance(converted, scalar.LaxValue):
        findings.warn("lax", converted.detail, path, hint=converted.hint)
        return converted.value
    return converted


@dataclass(frozen=True, slots=True)
class TextShape(Shape):
    """A string. ``normal`` normalises it, such as to lower case."""

    normal: Callable[[str], str] = str

    def empty(self) -> Any:
        return ""

    def read(self, value: object, findings: Findings, path: Path) -> str:
        if type(value) is str and value.isascii():
            return self.normal(value)
        return self.normal(read_scalar(scalar.text, value, findings, path, ""))


class Flag(Shape):
    """A boolean."""

    def empty(self) -> Any:
        return False

    def read(self, value: object, findings: Findings, path: Path) -> bool:
        """The boolean; Consul's words for booleans are accepted with a warning."""
        if value is True or value is False:
            return value
        return bool(read_scalar(scalar.boolean, value, findings, path, False))


@dataclass(frozen=True, slots=True)
class Integer(Shape):
    """An integer within a range. An ``optional`` one is None if it is not given. ``normal`` normalises it."""

    valid: range = INT64
    optional: bool = False
    normal: Callable[[int], int] = int

    def empty(self) -> Any:
        return None if self.optional else 0

    def read(self, value: object, findings: Findings, path: Path) -> int | None:
        scalar_value = read_scalar(lambda given: scalar.integer(given, self.valid), value, findings, path, self.empty())
        return None if scalar_value is None else self.normal(scalar_value)


class Weight(Shape):
    """A percentage, stored in basis points."""

    def empty(self) -> Any:
        return 0

    def read(self, value: object, findings: Findings, path: Path) -> int:
        scalar_value = read_scalar(scalar.number, value, findings, path, 0.0)
        if not 0 <= scalar_value <= 100:
            findings.add("out_of_range", f"a weight of {short_repr(value)} is not between 0 and 100", path)
            return 0
        return basis_points(scalar_value)

    def write(self, value: int) -> object:
        return percent(value)


@dataclass(frozen=True, slots=True)
class Span(Shape):
    """A duration in nanoseconds, given as a Go duration or an integer. ``as_number``: written as an integer."""

    as_number: bool = False
    optional: bool = False

    def empty(self) -> Any:
        return None if self.optional else 0

    def read(self, value: object, findings: Findings, path: Path) -> int | None:
        if not isinstance(value, str):
            number = read_scalar(lambda given: scalar.integer(given, INT64), value, findings, path, self.empty())
            return None if number is None else max(-LIMIT_NS, int(number))
        try:
            return parse_duration(value)
        except ValueError as error:
            detail = f"expected a duration such as 5s or 1m30s, not {short_repr(value)}: {error}"
            findings.add("bad_duration", detail, path, hint=_unit_hint(value))
        empty: int | None = self.empty()
        return empty

    def write(self, value: int) -> object:
        return value if self.as_number else duration_text(value)


def _unit_hint(value: str) -> str:
    return f'write "{value.strip()}s" for seconds' if duration_hint(value) and value.strip().isdigit() else ""


def _items(value: object, findings: Findings, path: Path) -> list[Any]:
    """The items of a list. A single value counts as a list of one."""
    if not isinstance(value, list):
        findings.warn("lax", "read as a list of one", path, hint="write a list")
        return [value]
    if len(value) > ITEMS_LIMIT:
        findings.add("too_large", f"{len(value)} items; {ITEMS_LIMIT} are allowed", path)
        return value[:ITEMS_LIMIT]
    return value


@dataclass(frozen=True, slots=True)
class ListOf(Shape):
    """A list of scalars or of messages, stored as a tuple."""

    item: Shape

    def empty(self) -> Any:
        return ()

    def read(self, value: object, findings: Findings, path: Path) -> tuple[Any, ...]:
        """The items. An item with an error is read as an empty value."""
        items = _items(value, findings, path)
        return tuple(_item(self.item, one, findings, (*path, index)) for index, one in enumerate(items))

    def write(self, value: tuple[Any, ...]) -> object:
        return [self.item.write(one) for one in value]


@dataclass(frozen=True, slots=True)
class MapOf(Shape):
    """An object whose keys are chosen by users."""

    item: Shape

    def empty(self) -> Any:
        return {}

    def read(self, value: object, findings: Findings, path: Path) -> Mapping[str, Any]:
        given = _object(value, findings, path)
        if given is None:
            return {}
        if len(given) > ITEMS_LIMIT:
            findings.add("too_large", f"{len(given)} keys; {ITEMS_LIMIT} are allowed", path)
            return {}
        for key in [key for key in given if len(key) > KEY_LIMIT]:
            findings.add("too_large", f"key {short_repr(key)} has {len(key)} characters; {KEY_LIMIT} are allowed", path)
        return {key: self._value(one, findings, (*path, key)) for key, one in given.items() if len(key) <= KEY_LIMIT}

    def _value(self, value: object, findings: Findings, path: Path) -> Any:
        """A value. As in Consul, an object may be null: in YAML, that is a key without a value."""
        if value is None and isinstance(self.item, Message):
            findings.warn("lax", "null is read as an empty object", path, hint="write {}")
            value = {}
        return _item(self.item, value, findings, path)

    def write(self, value: Mapping[str, Any]) -> object:
        return {key: self.item.write(one) for key, one in sorted(value.items())}


def _item(shape: Shape, value: object, findings: Findings, path: Path) -> Any:
    """An item of a list or map. An invalid object is read as an empty one, because rules look at all items."""
    item = shape.read(value, findings, path)
    return shape.kind() if item is None and isinstance(shape, Message) else item


class Opaque(Shape):
    """An object that is stored as it was given."""

    def empty(self) -> Any:
        return {}

    def read(self, value: object, findings: Findings, path: Path) -> Mapping[str, object]:
        return _object(value, findings, path) or {}


def _object(value: object, findings: Findings, path: Path) -> dict[str, object] | None:
    """An object; None with a finding for another value. A list of one object counts as the object, as HCL writes it."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        findings.warn("lax", "a list of one is read as the object in it", path, hint="write the object")
        return value[0]
    if not isinstance(value, dict):
        findings.add("wrong_type", f"expected an object, not {scalar.json_kind(value)}", path)
        return None
    return value


@dataclass(frozen=True, slots=True)
class Message(Shape):
    """An object with fields of its own, read as a dataclass.

    An ``optional`` object is None if it is not given, which differs from an empty object.
    """

    kind: type[Any]
    optional: bool = True

    def empty(self) -> Any:
        return None if self.optional else self.kind()

    def read(self, value: object, findings: Findings, path: Path) -> Any:
        given = _object(value, findings, path)
        return self.empty() if given is None else read_message(self.kind, given, findings, path)

    def write(self, value: Any) -> object:
        return write_message(value)


TEXT, FLAG, WEIGHT, OPAQUE = TextShape(), Flag(), Weight(), Opaque()
LOWER, SPAN, INTEGER, COUNT = TextShape(str.lower), Span(), Integer(), Integer(UINT32)
TEXTS, TEXT_MAP, COUNTS = ListOf(TEXT), MapOf(TEXT), ListOf(COUNT)


@dataclass(frozen=True, slots=True)
class Member:
    """One field: its Python attribute, its name in JSON, and whether it is written when empty."""

    attribute: str
    name: str
    shape: Shape
    always: bool
    empty: object


def member(name: str, shape: Shape, *, always: bool = False, default: object = None) -> Any:
    """A dataclass field with the JSON name ``name``; ``always``: written even if it is empty."""
    metadata = {SHAPE: (name, shape, always)}
    empty = shape.empty() if default is None else default
    if isinstance(empty, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=empty, metadata=metadata)


def message(name: str, kind: type[Any]) -> Any:
    """A dataclass field that always has an object, and is written even if that is empty."""
    return field(default_factory=kind, metadata={SHAPE: (name, Message(kind, optional=False), True)})


def members(kind: type[Any]) -> Mapping[str, Member]:
    """The fields of a dataclass by bare name (``connecttimeout``), in the order of writing."""
    return _members(cast(Hashable, kind))  # mypy takes no class for hashable


@cache
def _members(kind: Any) -> Mapping[str, Member]:
    shapes = {one.name: one.metadata[SHAPE] for one in fields(kind)}
    return {
        normalized_name(name): Member(attribute, name, shape, always, shape.empty())
        for attribute, (name, shape, always) in shapes.items()
    }


def named_values(message: object) -> dict[str, Any]:
    """The values of the fields of a dataclass, by their names in JSON."""
    return {one.name: getattr(message, one.attribute) for one in members(type(message)).values()}


def read_message(
    kind: type[Any], given: Mapping[str, object], findings: Findings, path: Path, ignored: frozenset[str] = frozenset()
) -> Any:
    """Read an object as a dataclass. Names are in CamelCase or snake_case; null means that a field is not given.

    Keys whose bare name is in ``ignored`` are skipped.
    """
    known, values, spellings = members(kind), {}, dict[str, str]()
    for key, value in given.items():
        one = known.get(_bare_name(key))
        if one is None:
            if _bare_name(key) not in ignored:
                key_path = (*path, key) if len(key) <= KEY_LIMIT else path
                findings.add(
                    "unknown_field", f"unknown field {short_repr(key)}", key_path, hint=_field_hint(key, known)
                )
            continue
        if one.attribute in spellings:
            detail = f"{short_repr(key)} and {short_repr(spellings[one.attribute])} are the same field"
            findings.add("duplicate_field", detail, (*path, key))
            continue
        spellings[one.attribute] = key
        if value is not None:
            values[one.attribute] = one.shape.read(value, findings, (*path, one.name))
    return kind(**values)


@lru_cache(maxsize=_NAMES_CACHED)
def _bare_name(key: str) -> str:
    """The bare name, which is the same for CamelCase and snake_case. Results are cached, because names repeat."""
    return key.replace("_", "").lower()


def _field_hint(key: str, known: Mapping[str, Member]) -> str:
    close = get_close_matches(normalized_name(key)[:120], list(known), n=1)
    return f'did you mean "{known[close[0]].name}"?' if close else ""


def write_message(value: Any) -> dict[str, object]:
    """The JSON object of a dataclass without empty fields, except for those that are always written."""
    written: dict[str, object] = {}
    for one in members(type(value)).values():
        content = getattr(value, one.attribute)
        if one.always or (content != one.empty and content is not None):
            written[one.name] = None if content is None else one.shape.write(content)
    return written
