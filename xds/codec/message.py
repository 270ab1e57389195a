"""Plain values to messages: one walk along the descriptors that finds every error with its place.

json_format stops at the first error without a place, refuses what Envoy accepts (a single value where a list is
expected, enum names in lower case, quoted booleans), accepts broken base64 and both spellings of a field at once, and
cannot hold an ``Any`` of an unknown type. Field names are accepted as in the .proto file and in camelCase.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from xds.codec import schema
from xds.codec.findings import Findings
from xds.codec.scalar import Converter, ScalarError, converter, octets, wrong_type

TYPE_KEY = "@type"
VALUE_KEY = "@value_base64"

# Protobuf parsers stop at 100 messages within each other; a list index is a step of the path too.
_PATH_LIMIT = 200
_DURATION = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,9})?s")


@dataclass(frozen=True, slots=True)
class _Field:
    """What reading a field takes. ``scalar`` is None for messages; ``key`` is set for maps."""

    name: str
    repeated: bool
    oneof: str
    scalar: Converter | None
    message: Descriptor | None
    key: Converter | None
    takes_null: bool


def _field(descriptor: FieldDescriptor) -> _Field:
    value, key = descriptor, None
    if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
        value = descriptor.message_type.fields_by_name["value"]
        key = converter(descriptor.message_type.fields_by_name["key"])
    oneof = descriptor.containing_oneof
    target = value.message_type or value.enum_type
    return _Field(
        name=descriptor.name,
        repeated=descriptor.is_repeated,
        oneof=oneof.name if oneof is not None else "",
        scalar=None if value.message_type is not None else converter(value),
        message=value.message_type,
        key=key,
        takes_null=target is not None and target.full_name in ("google.protobuf.Value", "google.protobuf.NullValue"),
    )


@cache
def _fields(descriptor: Descriptor) -> Mapping[str, _Field]:
    """Fields by both spellings of their names."""
    fields: dict[str, _Field] = {}
    for one in descriptor.fields:
        fields[one.json_name] = fields[one.name] = _field(one)
    return fields


class MessageReader:
    """Fills messages from plain values; what is wrong goes to ``findings`` and the rest is read on."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._path: list[str | int] = []

    def read(self, message: Message, value: object, ignored: frozenset[str] = frozenset()) -> None:
        """Fill ``message`` from ``value``; keys in ``ignored`` are those of the envelope."""
        try:
            self._message(message, value, ignored)
        except RecursionError:
            self._path.clear()
            self._note("too_deep", "nested too deeply")

    def pack(self, message: Message) -> bytes:
        """Canonical bytes of a message; empty after a finding, such as a message too deep for any parser."""
        try:
            body = message.SerializeToString(deterministic=True)
            type(message).FromString(body)
        except (EncodeError, DecodeError, RecursionError):
            self._note("too_deep", "nested too deeply")
            return b""
        return body

    def _note(self, code: str, detail: str) -> None:
        self._findings.add(code, detail, self._path)

    def _message(self, message: Message, value: object, ignored: frozenset[str] = frozenset()) -> None:
        special = _SPECIAL.get(message.DESCRIPTOR.full_name)
        if special is not None:
            special(self, message, value)
        elif not isinstance(value, dict):
            self._note("wrong_type", wrong_type("an object", value).detail)
        elif len(self._path) > _PATH_LIMIT:
            self._note("too_deep", "nested too deeply")
        else:
            self._object(message, value, ignored)

    def _object(self, message: Message, value: dict[str, object], ignored: frozenset[str]) -> None:
        fields = _fields(message.DESCRIPTOR)
        seen: dict[str, str] = {}
        for key, item in value.items():
            if key in ignored:
                continue
            self._path.append(key)
            field = fields.get(key)
            if field is None:
                self._note("unknown_field", _unknown_field(key, message.DESCRIPTOR))
            elif (item is not None or field.takes_null) and self._is_first(field, seen):
                self._value(message, field, item)
            self._path.pop()

    def _is_first(self, field: _Field, seen: dict[str, str]) -> bool:
        """False, with a finding, for a field given in both spellings and for a second member of a oneof."""
        if field.name in seen:
            self._note("duplicate_field", f"{field.name} is given twice, in both spellings")
            return False
        seen[field.name] = field.name
        other = seen.setdefault(f"oneof {field.oneof}", field.name) if field.oneof else field.name
        if other != field.name:
            self._note("oneof_conflict", f"only one of {other} and {field.name} can be set")
            return False
        return True

    def _value(self, message: Message, field: _Field, value: object) -> None:
        if field.key is not None:
            self._map(message, field, field.key, value)
        elif field.repeated:
            self._list(message, field, value)
        elif field.scalar is None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self._message(inner, value)
        else:
            self._scalar(field.scalar, value, lambda converted: setattr(message, field.name, converted))

    def _scalar(self, convert: Converter, value: object, store: Callable[[Any], None]) -> None:
        try:
            store(convert(0 if value is None else value))
        except ScalarError as error:
            self._note(error.code, error.detail)

    def _list(self, message: Message, field: _Field, value: object) -> None:
        """Envoy takes a single value for a list of one; official examples rely on it."""
        if not isinstance(value, list):
            self._item(getattr(message, field.name), field, value)
            return
        items = getattr(message, field.name)
        for index, item in enumerate(value):
            self._path.append(index)
            self._item(items, field, item)
            self._path.pop()

    def _item(self, items: Any, field: _Field, value: object) -> None:
        if value is None and not field.takes_null:
            self._note("wrong_type", "null cannot stand in a list")
        elif field.scalar is None:
            self._message(items.add(), value)
        else:
            self._scalar(field.scalar, value, items.append)

    def _map(self, message: Message, field: _Field, convert_key: Converter, value: object) -> None:
        if not isinstance(value, dict):
            self._note("wrong_type", wrong_type("an object", value).detail)
            return
        entries = getattr(message, field.name)
        for key, item in value.items():
            self._path.append(key)
            self._entry(entries, field, convert_key, key, item)
            self._path.pop()

    def _entry(self, entries: Any, field: _Field, convert_key: Converter, key: str, value: object) -> None:
        try:
            converted = convert_key(key)
        except ScalarError as error:
            self._note(error.code, error.detail)
            return
        if value is None and not field.takes_null:
            self._note("wrong_type", "null cannot stand in a map")
        elif field.scalar is None:
            self._message(entries[converted], value)
        else:
            self._scalar(field.scalar, value, lambda item: entries.__setitem__(converted, item))

    def _wrapper(self, message: Message, value: object) -> None:
        """``google.protobuf.UInt32Value`` and the like are written as the bare value."""
        scalar = _fields(message.DESCRIPTOR)["value"].scalar
        assert scalar is not None
        self._scalar(scalar, value, lambda converted: setattr(message, "value", converted))

    def _text_form(self, message: Any, value: object) -> None:
        """Timestamps and field masks."""
        try:
            message.FromJsonString(value)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            self._note("wrong_type", f"not a {message.DESCRIPTOR.name}: {error}")

    def _duration(self, message: Any, value: object) -> None:
        if not isinstance(value, str) or not _DURATION.fullmatch(value):
            self._note("bad_duration", wrong_type('a duration such as "1.5s"', value).detail)
            return
        try:
            message.FromJsonString(value)
        except ValueError as error:
            self._note("bad_duration", str(error))

    def _free_form(self, message: Message, value: Any) -> None:
        """``Struct``, ``ListValue`` and ``Value`` hold any JSON."""
        try:
            json_format.ParseDict(value, message)
        except (json_format.ParseError, ValueError, TypeError, AttributeError, OverflowError) as error:
            self._note("wrong_type", f"not a {message.DESCRIPTOR.name}: {error}")

    def _any(self, message: Any, value: object) -> None:
        if not isinstance(value, dict):
            self._note("wrong_type", wrong_type("an object with @type", value).detail)
        elif value:
            type_url = value.get(TYPE_KEY)
            if not isinstance(type_url, str) or "/" not in type_url:
                self._note("missing_type", 'an Any needs "@type": "type.googleapis.com/<message name>"')
            else:
                message.type_url = type_url
                message.value = self._payload(type_url, value)

    def _payload(self, type_url: str, value: dict[str, object]) -> bytes:
        if VALUE_KEY in value:
            return self.opaque(type_url, value)
        message_class = schema.message_class(type_url)
        if message_class is None:
            self._note("unknown_type", unknown_type(type_url))
            return b""
        inner = message_class()
        if inner.DESCRIPTOR.full_name in _SPECIAL:
            self._special_payload(inner, value)
        else:
            self._message(inner, value, frozenset((TYPE_KEY,)))
        return self.pack(inner)

    def _special_payload(self, inner: Message, value: dict[str, object]) -> None:
        """Types with a JSON form of their own stand under ``value``."""
        for key in value.keys() - {TYPE_KEY, "value"}:
            self._note("unknown_field", f"unknown field {key!r}; this type's content stands under 'value'")
        if "value" not in value:
            self._note("missing_field", "this type's content stands under 'value'")
            return
        self._path.append("value")
        self._message(inner, value["value"])
        self._path.pop()

    def opaque(self, type_url: str, value: Mapping[str, object], ignored: frozenset[str] = frozenset()) -> bytes:
        """Bytes given as they are; those of a known type must be readable and become canonical."""
        for key in sorted(value.keys() - {TYPE_KEY, VALUE_KEY} - ignored):
            self._note("unknown_field", f"{key!r} cannot stand beside {VALUE_KEY}")
        try:
            body = octets(value[VALUE_KEY])
            message_class = schema.message_class(type_url)
            return (
                body if message_class is None else message_class.FromString(body).SerializeToString(deterministic=True)
            )
        except ScalarError as error:
            self._note(error.code, error.detail)
        except (DecodeError, EncodeError):
            self._note("malformed", f"not the bytes of a {type_url}")
        return b""


def unknown_type(type_url: str) -> str:
    """What to tell about a type that is not in the schema."""
    return f"unknown type {type_url[:200]!r}; pass it as bytes: {{{TYPE_KEY!r}: ..., {VALUE_KEY!r}: ...}}"


def _unknown_field(key: str, descriptor: Any) -> str:
    close = get_close_matches(key[:80], [field.name for field in descriptor.fields], n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"{descriptor.name} has no field {key[:80]!r}{hint}"


_SPECIAL: Mapping[str, Callable[[MessageReader, Message, object], None]] = {
    "google.protobuf.Any": MessageReader._any,
    "google.protobuf.Duration": MessageReader._duration,
    "google.protobuf.FieldMask": MessageReader._text_form,
    "google.protobuf.Timestamp": MessageReader._text_form,
    "google.protobuf.ListValue": MessageReader._free_form,
    "google.protobuf.Struct": MessageReader._free_form,
    "google.protobuf.Value": MessageReader._free_form,
    **{
        f"google.protobuf.{name}Value": MessageReader._wrapper
        for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
    },
}
