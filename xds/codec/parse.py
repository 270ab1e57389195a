"""Plain values to messages: one walk along the descriptors that reports every error with its path.

json_format stops at the first error without a path, refuses what Envoy accepts (a single value for a list, enum names
in lower case, quoted booleans), accepts broken base64, and cannot hold an ``Any`` of an unknown type. Field names are
accepted as in the .proto file and in camelCase. Input that is accepted only because Envoy accepts it becomes a
warning; ``tests/codec/lax_cases.py`` records what was measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, EncodeError, Message

from xds.codec import schema
from xds.codec.effort import check_effort
from xds.codec.findings import Findings, duration_hint, field_hint, short_repr, type_hint
from xds.codec.naming import TYPE_KEY, VALUE_KEY
from xds.codec.redaction import is_hidden_in_errors
from xds.codec.scalar import Converter, LaxValue, ScalarError, converter, number, octets, text, wrong_type
from xds.model.resource_type import TYPE_PREFIX
from xds.proto import field_options

LAX = "lax_input"

# Protobuf parsers stop at 100 messages within each other; a list index is a step of the path too.
_PATH_LIMIT = 200
_VALUE = "google.protobuf.Value"
_REFUSED = object()
_DURATION = re.compile(r"-?[0-9]{1,12}(\.[0-9]{1,9})?s")


@dataclass(frozen=True, slots=True)
class _Field:
    """How to parse a field. ``scalar`` is None for messages; ``key`` is set for maps; null is read as ``empty``."""

    name: str
    repeated: bool
    oneof: str  # "oneof NAME"; empty for the oneof of one member that an optional field is
    scalar: Converter | None
    message: Descriptor | None
    key: Converter | None
    takes_null: bool
    empty: object
    is_sensitive: bool


_EMPTY: Mapping[int, object] = {
    FieldDescriptor.CPPTYPE_STRING: "",  # of bytes too
    FieldDescriptor.CPPTYPE_BOOL: False,
}


def _field(descriptor: FieldDescriptor) -> _Field:
    value, key, owner = descriptor, None, descriptor.containing_type
    if descriptor.message_type is not None and descriptor.message_type.GetOptions().map_entry:
        value = descriptor.message_type.fields_by_name["value"]
        key = converter(descriptor.message_type.fields_by_name["key"])
    oneof = descriptor.containing_oneof
    target = value.message_type or value.enum_type
    return _Field(
        name=descriptor.name,
        repeated=descriptor.is_repeated,
        oneof="" if oneof is None or oneof.name.lstrip("_") == descriptor.name else f"oneof {oneof.name}",
        scalar=None if value.message_type is not None else converter(value),
        message=value.message_type,
        key=key,
        takes_null=target is not None and target.full_name in (_VALUE, "google.protobuf.NullValue"),
        empty=_EMPTY.get(value.cpp_type, 0),
        is_sensitive=owner is not None and descriptor.name in field_options.sensitive_fields(owner.full_name),
    )


@cache
def _fields(descriptor: Descriptor) -> Mapping[str, _Field]:
    """Fields by both spellings of their names."""
    fields: dict[str, _Field] = {}
    for one in descriptor.fields:
        fields[one.json_name] = fields[one.name] = _field(one)
    return fields


class MessageParser:
    """Fills messages from plain values. Errors are added to ``findings``, and parsing goes on."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._path: list[str | int] = []
        self._secrets = 0  # depth of enclosing secrets: findings within them do not show values

    def read(self, message: Message, value: object, ignored: frozenset[str] = frozenset()) -> None:
        """Fill ``message``, an empty one, from ``value``; keys in ``ignored`` are skipped."""
        try:
            self._message(message, value, ignored)
        except RecursionError:
            self._note("too_deep", "nested too deeply")
            self._path.clear()
            self._secrets = 0

    def pack(self, message: Message) -> bytes:
        """The canonical bytes of a message; empty after a finding: the message may nest too deeply for any parser."""
        try:
            body = message.SerializeToString(deterministic=True)
            type(message).FromString(body)
        except (EncodeError, DecodeError, RecursionError):
            self._note("too_deep", "nested too deeply")
            return b""
        return body

    def _note(self, code: str, detail: str, hint: str = "") -> None:
        self._findings.add(code, detail, self._path, hint=hint)

    def _refuse(self, error: ScalarError) -> None:
        if self._secrets:
            self._note(error.code, error.detail_without_value)
        else:
            self._note(error.code, error.detail, error.hint)

    def _lax(self, detail: str, hint: str) -> None:
        if self._secrets:
            detail, hint = "a value of another kind is read as one of this field's", ""
        self._findings.warn(LAX, detail, self._path, hint=hint)

    def _message(self, message: Message, value: object, ignored: frozenset[str] = frozenset()) -> None:
        name = message.DESCRIPTOR.full_name
        is_secret = is_hidden_in_errors(name, value)
        self._secrets += is_secret
        special = _SPECIAL.get(name)
        if special is not None:
            special(self, message, value)
        elif not isinstance(value, dict):
            self._refuse(wrong_type("an object", value))
        elif len(self._path) > _PATH_LIMIT:
            self._note("too_deep", "nested too deeply")
        else:
            self._object(message, value, ignored)
        self._secrets -= is_secret

    def _object(self, message: Message, value: Mapping[str, object], ignored: frozenset[str]) -> None:
        check_effort()
        fields = _fields(message.DESCRIPTOR)
        seen: dict[str, str] = {}
        for key, item in value.items():
            if key in ignored:
                continue
            self._path.append(key)
            field = fields.get(key)
            if field is None:
                self._unknown_field(key, message.DESCRIPTOR)
            elif (item is not None or field.takes_null) and self._is_settable(field, seen):
                self._secrets += field.is_sensitive
                self._value(message, field, item)
                self._secrets -= field.is_sensitive
            self._path.pop()

    def _unknown_field(self, key: str, descriptor: Any) -> None:
        hint = "" if self._findings.is_full else field_hint(key, descriptor)
        self._note("unknown_field", f"{descriptor.name} has no field {short_repr(key)}", hint)

    def _is_settable(self, field: _Field, seen: dict[str, str]) -> bool:
        """False, with a finding, for a second member of a oneof, or for the same member in its other spelling.

        Any other field may be given in both spellings: lists are joined, messages merged, the last scalar wins.
        """
        if field.oneof:
            other = seen.setdefault(field.oneof, field.name)
            if other != field.name:
                self._note(
                    "oneof_conflict", f"only one of {other} and {field.name} can be set", "leave one of them out"
                )
                return False
        if field.name not in seen:
            seen[field.name] = field.name
            return True
        if field.oneof:
            self._note("duplicate_field", f"{field.name} is given twice, in both spellings", "leave one of them out")
            return False
        self._lax(f"{field.name} is given twice, in both spellings", "leave one of them out")
        return True

    def _value(self, message: Message, field: _Field, value: object) -> None:
        if field.key is not None:
            self._map(message, field, field.key, value)
        elif field.repeated:
            self._list(getattr(message, field.name), field, value)
        elif field.scalar is None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            self._message(inner, value)
        else:
            converted = self._scalar(field.scalar, field.empty if value is None else value)
            if converted is not _REFUSED:
                setattr(message, field.name, converted)

    def _scalar(self, convert: Converter, value: object) -> Any:
        """The value of a scalar field; `_REFUSED` after a finding."""
        try:
            converted = convert(value)
        except ScalarError as error:
            self._refuse(error)
            return _REFUSED
        if isinstance(converted, LaxValue):
            self._lax(converted.detail, converted.hint)
            return converted.value
        return converted

    def _list(self, items: Any, field: _Field, value: object) -> None:
        if not isinstance(value, list):
            self._lax("a single value is read as a list of one", "write a list")
            self._item(items, field, value)
            return
        for index, item in enumerate(value):
            self._path.append(index)
            if isinstance(item, list) and not field.takes_null:
                self._nested(items, field, item)
            else:
                self._item(items, field, item)
            self._path.pop()

    def _nested(self, items: Any, field: _Field, value: list[object]) -> None:
        """A list within a list whose items are not lists."""
        if len(self._path) > _PATH_LIMIT:
            self._note("too_deep", "nested too deeply")
            return
        self._lax("a list within a list is read as its items", "write one list")
        self._list(items, field, value)

    def _item(self, items: Any, field: _Field, value: object) -> None:
        is_empty = value is None and not field.takes_null
        if is_empty:
            self._lax("null in a list is read as an empty item", "leave it out")
        if field.scalar is not None:
            converted = self._scalar(field.scalar, field.empty if is_empty else value)
            if converted is not _REFUSED:
                items.append(converted)
        elif is_empty:
            items.add()
        else:
            self._message(items.add(), value)

    def _map(self, message: Message, field: _Field, convert_key: Converter, value: object) -> None:
        if not isinstance(value, dict):
            self._refuse(wrong_type("an object", value))
            return
        entries = getattr(message, field.name)
        for key, item in value.items():
            self._path.append(key)
            converted = self._scalar(convert_key, key)
            if converted is not _REFUSED:
                self._entry(entries, field, item, converted)
            self._path.pop()

    def _entry(self, entries: Any, field: _Field, value: object, key: Any) -> None:
        """Set one entry; it replaces an earlier one with the same key."""
        entries.pop(key, None)
        is_empty = value is None and not field.takes_null
        if is_empty:
            self._lax("null in a map is read as an empty value", "leave it out")
        if field.scalar is not None:
            converted = self._scalar(field.scalar, field.empty if is_empty else value)
            if converted is not _REFUSED:
                entries[key] = converted
        else:
            entry = entries[key]
            if not is_empty:
                self._message(entry, value)

    def _in_full(self, message: Message, value: object) -> bool:
        """Read a type with a special JSON form that is written as a message: ``{"seconds": 1}``."""
        if not isinstance(value, dict):
            return False
        self._lax(f"a {message.DESCRIPTOR.name} is written as an object", "write its value alone")
        self._object(message, value, frozenset())
        return True

    def _wrapper(self, message: Any, value: object) -> None:
        """``google.protobuf.UInt32Value`` and the like are written as the bare value."""
        scalar = _fields(message.DESCRIPTOR)["value"].scalar
        assert scalar is not None
        if not self._in_full(message, value):
            converted = self._scalar(scalar, value)
            if converted is not _REFUSED:
                message.value = converted

    def _text_form(self, message: Any, value: object) -> None:
        """Timestamps and field masks."""
        if self._in_full(message, value):
            return
        try:
            message.FromJsonString(value)
        except (ValueError, TypeError, AttributeError, OverflowError) as error:
            self._refuse(ScalarError("wrong_type", f"not a {message.DESCRIPTOR.name}: {error}"))

    def _duration(self, message: Any, value: object) -> None:
        if self._in_full(message, value):
            return
        if not isinstance(value, str) or not _DURATION.fullmatch(value):
            wrong = wrong_type("a duration in seconds", value)
            self._refuse(
                ScalarError(
                    "bad_duration", wrong.detail, duration_hint(value) or 'such as "1.5s"', wrong.detail_without_value
                )
            )
            return
        try:
            message.FromJsonString(value)
        except ValueError as error:
            self._refuse(ScalarError("bad_duration", str(error)))

    def _struct(self, message: Any, value: object) -> None:
        if not isinstance(value, dict):
            self._refuse(wrong_type("an object", value))
            return
        for key, item in value.items():
            self._path.append(key)
            converted = self._scalar(text, key)
            if converted is not _REFUSED:
                self._free_form(message.fields[converted], item)
            self._path.pop()

    def _list_value(self, message: Any, value: object) -> None:
        if not isinstance(value, list):
            self._refuse(wrong_type("a list", value))
            return
        for index, item in enumerate(value):
            self._path.append(index)
            self._free_form(message.values.add(), item)
            self._path.pop()

    def _free_form(self, message: Any, value: object) -> None:
        """A ``Value`` holds any JSON."""
        if len(self._path) > _PATH_LIMIT:
            self._note("too_deep", "nested too deeply")
        elif value is None:
            message.null_value = 0
        elif isinstance(value, dict):
            message.struct_value.SetInParent()
            self._struct(message.struct_value, value)
        elif isinstance(value, list):
            message.list_value.SetInParent()
            self._list_value(message.list_value, value)
        elif isinstance(value, bool):
            message.bool_value = value
        elif isinstance(value, str):
            converted = self._scalar(text, value)
            if converted is not _REFUSED:
                message.string_value = converted
        else:
            converted = self._scalar(number, value)
            if converted is not _REFUSED:
                message.number_value = converted

    def _any(self, message: Any, value: object) -> None:
        if not isinstance(value, dict):
            self._refuse(wrong_type("an object with @type", value))
        elif value:
            type_url = value.get(TYPE_KEY)
            if not isinstance(type_url, str) or not is_type_url(type_url):
                self._note("missing_type", "an Any needs an @type", f'"{TYPE_KEY}": "{TYPE_PREFIX}<message name>"')
            else:
                message.type_url = type_url
                message.value = self._payload(type_url, value)

    def _payload(self, type_url: str, value: dict[str, object]) -> bytes:
        if VALUE_KEY in value:
            return self.opaque(type_url, value)
        message_class = schema.message_class(type_url)
        if message_class is None:
            self.unknown_type(type_url)
            return b""
        inner = message_class()
        if inner.DESCRIPTOR.full_name in _SPECIAL:
            self._special_payload(inner, value)
        else:
            self._message(inner, value, frozenset((TYPE_KEY,)))
        return self.pack(inner)

    def _special_payload(self, inner: Message, value: dict[str, object]) -> None:
        """Types with a special JSON form are under ``value``; without it they are empty."""
        for key in value.keys() - {TYPE_KEY, "value"}:
            self._path.append(key)
            self._note("unknown_field", f"unknown field {short_repr(key)}", "the content of this type is under 'value'")
            self._path.pop()
        payload = value.get("value")
        if payload is None and not ("value" in value and inner.DESCRIPTOR.full_name == _VALUE):
            self._lax(f"a {inner.DESCRIPTOR.name} without a value is read as an empty one", "write it under 'value'")
            return
        self._path.append("value")
        self._message(inner, payload)
        self._path.pop()

    def unknown_type(self, type_url: str) -> None:
        """Add the error for a type that is not in the schema."""
        hint = "" if self._findings.is_full else type_hint(type_url)
        opaque = f'or pass it as bytes: {{"{TYPE_KEY}": ..., "{VALUE_KEY}": ...}}'
        self._path.append(TYPE_KEY)
        self._note("unknown_type", f"unknown type {type_url[:200]!r}", f"{hint} {opaque}".strip().removeprefix("or "))
        self._path.pop()

    def opaque(self, type_url: str, value: Mapping[str, object], ignored: frozenset[str] = frozenset()) -> bytes:
        """Bytes given in base64; bytes of a known type must parse, and are made canonical."""
        for key in sorted(value.keys() - {TYPE_KEY, VALUE_KEY} - ignored):
            self._path.append(key)
            self._note("unknown_field", f"{short_repr(key)} is not allowed beside {VALUE_KEY}")
            self._path.pop()
        self._path.append(VALUE_KEY)
        self._secrets += 1  # the bytes may hold a secret
        body = self._octets(type_url, value[VALUE_KEY])
        self._secrets -= 1
        self._path.pop()
        return body

    def _octets(self, type_url: str, value: object) -> bytes:
        try:
            body = octets(value)
            message_class = schema.message_class(type_url)
            if message_class is None:
                return body
            return bytes(message_class.FromString(body).SerializeToString(deterministic=True))
        except ScalarError as error:
            self._refuse(error)
        except (DecodeError, EncodeError):
            self._note("malformed", f"not the bytes of a {type_url[:200]}")
        return b""


def is_type_url(text: str) -> bool:
    """True for ``host/message name``: Envoy requires both parts."""
    host, _, name = text.rpartition("/")
    return bool(host and name) and text.isprintable()


_SPECIAL: Mapping[str, Callable[[MessageParser, Message, object], None]] = {
    "google.protobuf.Any": MessageParser._any,
    "google.protobuf.Duration": MessageParser._duration,
    "google.protobuf.FieldMask": MessageParser._text_form,
    "google.protobuf.Timestamp": MessageParser._text_form,
    "google.protobuf.ListValue": MessageParser._list_value,
    "google.protobuf.Struct": MessageParser._struct,
    _VALUE: MessageParser._free_form,
    **{
        f"google.protobuf.{name}Value": MessageParser._wrapper
        for name in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
    },
}
