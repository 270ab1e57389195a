"""Resources to plain values that `decode_resource` reads back as the same resource.

Field names are those of the .proto files. What proto3 JSON cannot represent (unknown types, unknown fields, numbers
outside JSON) is rendered as bytes: ``{"@type": T, "@value_base64": "..."}``.
"""

from __future__ import annotations

import base64
import math
import struct
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.unknown_fields import UnknownFieldSet

from xds.codec import schema
from xds.codec.naming import NAME_KEY, TYPE_KEY, VALUE_KEY, aliases_of, duration_text, name_of
from xds.codec.walk import ANY
from xds.model.names import canonical_name
from xds.model.resource import Resource
from xds.model.resource_type import TYPE_PREFIX

_WRAPPER_URL = TYPE_PREFIX + schema.WRAPPER_TYPE
_TEXT_INTEGERS = frozenset(
    (
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_FIXED64,
        FieldDescriptor.TYPE_SFIXED64,
    )
)
_SPECIAL = frozenset(
    f"google.protobuf.{name}"
    for name in (
        *("Duration", "FieldMask", "Timestamp", "ListValue", "Struct", "Value"),
        *("BoolValue", "BytesValue", "DoubleValue", "FloatValue", "Int32Value", "Int64Value"),
        *("StringValue", "UInt32Value", "UInt64Value"),
    )
)


class _UnrenderableError(Exception):
    """A message that proto3 JSON cannot hold without loss."""


def render_resource(resource: Resource) -> dict[str, object]:
    """A resource as JSON-able values with ``@type``.

    A TTL, explicit aliases and a name other than the message's own are in an ``envoy.service.discovery.v3.Resource``
    wrapper around it; the name of bytes is in ``@name``.
    """
    message = schema.parsed(resource.type_url, resource.body)
    own = None if message is None else name_of(resource.type_url, message)
    is_named = own is not None and canonical_name(own) == resource.name
    derived = () if message is None else aliases_of(resource.type_url, resource.name, message)
    aliases = [alias for alias in resource.aliases if alias not in derived]
    content = _any(resource.type_url, resource.body)
    if aliases or resource.ttl_s is not None or (not is_named and VALUE_KEY not in content):
        return _wrapper(resource, aliases, content)
    if not is_named:
        content[NAME_KEY] = resource.name
    return content


def _wrapper(resource: Resource, aliases: list[str], content: dict[str, object]) -> dict[str, object]:
    wrapped: dict[str, object] = {TYPE_KEY: _WRAPPER_URL, "name": resource.name}
    if aliases:
        wrapped["aliases"] = aliases
    if resource.ttl_s is not None:
        wrapped["ttl"] = duration_text(resource.ttl_s)
    return {**wrapped, "resource": content}


def _any(type_url: str, body: bytes) -> dict[str, object]:
    message = schema.parsed(type_url, body)
    if message is not None:
        try:
            return {TYPE_KEY: type_url, **_payload(message)}
        except (_UnrenderableError, json_format.Error, ValueError, TypeError, OverflowError):
            pass
    return {TYPE_KEY: type_url, VALUE_KEY: base64.b64encode(body).decode()}


def _payload(message: Any) -> dict[str, object]:
    full_name = message.DESCRIPTOR.full_name
    if full_name == ANY or full_name in _SPECIAL:
        return {"value": _message(message)}
    return _fields(message)


def _message(message: Any) -> object:
    full_name = message.DESCRIPTOR.full_name
    if full_name == ANY:
        _refuse_unknown(message)
        if not message.type_url and message.value:
            raise _UnrenderableError("bytes of no type")
        return _any(message.type_url, message.value) if message.type_url else {}
    if full_name in _SPECIAL:
        return _special(message)
    return _fields(message)


def _special(message: Any) -> object:
    """Types with a JSON form of their own, if that form is lossless: an empty ``Value`` would become null."""
    value = json_format.MessageToDict(message)
    again = json_format.ParseDict(value, type(message)())
    if again.SerializeToString(deterministic=True) != message.SerializeToString(deterministic=True):
        raise _UnrenderableError("not in its JSON form")
    return _ordered(value)


def _ordered(value: object) -> object:
    """The members of a ``Struct`` by name: their order in memory differs from process to process."""
    if isinstance(value, dict):
        return {name: _ordered(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [_ordered(each) for each in value]
    return value


def _refuse_unknown(message: Any) -> None:
    if len(UnknownFieldSet(message)):
        raise _UnrenderableError("unknown fields")


def _fields(message: Any) -> dict[str, object]:
    _refuse_unknown(message)
    return {field.name: _field(field, value) for field, value in message.ListFields()}


def _field(field: Any, value: Any) -> object:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        item = field.message_type.fields_by_name["value"]
        return {_key(key): _single(item, one) for key, one in sorted(value.items())}
    if field.is_repeated:
        return [_single(field, one) for one in value]
    return _single(field, value)


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _single(field: Any, value: Any) -> object:
    if field.message_type is not None:
        return _message(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if field.type in _TEXT_INTEGERS:
        return str(value)
    if field.type == FieldDescriptor.TYPE_BYTES:
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        return _number(value, is_single=field.type == FieldDescriptor.TYPE_FLOAT)
    return value


def _number(value: float, *, is_single: bool) -> object:
    """A number in JSON; single precision with the fewest digits that identify it."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if is_single:
        for digits in range(6, 10):
            short = float(f"{value:.{digits}g}")
            if struct.pack("<f", short) == struct.pack("<f", value):
                return short
    return int(value) if value.is_integer() and abs(value) < 1e15 and str(value) != "-0.0" else value
