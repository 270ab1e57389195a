"""JSON Schema 2020-12 of resource types, made from their descriptors, for editors and for checks outside the server.

It describes the form of the server's answers: names as in the .proto files (camelCase passes unchecked), enums by name,
durations as ``"5s"``. The server itself is more lenient, like Envoy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from xds.codec import schema
from xds.codec.naming import TYPE_KEY
from xds.codec.walk import reachable
from xds.model.resource_type import TYPE_PREFIX, V3_TYPES
from xds.proto import field_options

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SNAPSHOT = "snapshot"
SCHEMAS_KEPT = 16

Json = dict[str, Any]

_CAMEL = "^[a-z][a-z0-9]*([A-Z0-9][a-z0-9]*)+$"
_INTEGER_TEXT = "^-?[0-9]+$"
_ANY: Json = {
    "type": "object",
    "description": "a message of any type, with its @type",
    "properties": {TYPE_KEY: {"type": "string"}},
    "required": [TYPE_KEY],
}
_SCALAR: Mapping[int, Json] = {
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
}
_INTEGERS: Mapping[int, tuple[int, int]] = {
    FieldDescriptor.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
_NUMBER: Json = {
    "anyOf": [{"type": "number"}, {"type": "string", "pattern": "^(-?[0-9.]+([eE][-+]?[0-9]+)?|NaN|-?Infinity)$"}]
}
_WELL_KNOWN: Mapping[str, Json] = {
    "google.protobuf.Any": _ANY,
    "google.protobuf.Duration": {"type": "string", "pattern": r"^-?[0-9]{1,12}(\.[0-9]{1,9})?s$"},
    "google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
    "google.protobuf.FieldMask": {"type": "string"},
    "google.protobuf.Struct": {"type": "object"},
    "google.protobuf.Value": {},
    "google.protobuf.ListValue": {"type": "array"},
    "google.protobuf.Empty": {"type": "object", "additionalProperties": False},
}
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


@lru_cache(maxsize=SCHEMAS_KEPT)
def resource_schema(type_url: str) -> Json | None:
    """The schema of one message type by type URL or full name; None for a type that is not in Envoy's API.

    ``$defs`` has all types that it can hold; the content of an ``Any`` is not restricted. Callers must not change it.
    """
    message = schema.descriptor(type_url)
    if message is None:
        return None
    return {
        "$schema": DIALECT,
        "title": message.full_name,
        **_reference(message),
        "properties": {TYPE_KEY: {"const": TYPE_PREFIX + message.full_name}},
        "$defs": _definitions([message]),
    }


@cache
def snapshot_schema() -> Json:
    """The schema of a whole push: ``{"resources": [...]}`` with each resource type of the table by its @type."""
    known = [message for rule in V3_TYPES if (message := schema.descriptor(rule.type_url)) is not None]
    choices = [
        {
            "if": {"properties": {TYPE_KEY: {"const": TYPE_PREFIX + message.full_name}}, "required": [TYPE_KEY]},
            "then": _reference(message),
        }
        for message in known
    ]
    return {
        "$schema": DIALECT,
        "title": SNAPSHOT,
        "type": "object",
        "properties": {
            "resources": {"type": "array", "items": {**_ANY, "allOf": choices}},
            "version": {"type": "string"},
            "versions": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["resources"],
        "$defs": _definitions(known),
    }


def _definitions(roots: Iterable[Descriptor]) -> Json:
    names = sorted({name for root in roots for name in reachable(root)})
    messages = {name: schema.descriptor(name) for name in names}
    return {
        name: _message(descriptor)
        for name, descriptor in messages.items()
        if descriptor is not None and name not in _WELL_KNOWN and name not in _WRAPPERS and not _is_map(descriptor)
    }


def _message(message: Descriptor) -> Json:
    deprecated = field_options.deprecated_fields(message.full_name)
    described: Json = {
        "type": "object",
        "properties": {
            field.name: {**_field(field), "deprecated": True} if field.name in deprecated else _field(field)
            for field in message.fields
        },
        "patternProperties": {f"^{TYPE_KEY}$": {"type": "string"}, _CAMEL: {}},
        "additionalProperties": False,
    }
    exclusive = [
        _at_most_one([field.name for field in oneof.fields]) for oneof in message.oneofs if len(oneof.fields) > 1
    ]
    return {**described, "allOf": exclusive} if exclusive else described


def _at_most_one(names: list[str]) -> Json:
    each: list[Json] = [{"required": [name]} for name in names]
    return {"oneOf": [*each, {"not": {"anyOf": each}}]}


def _field(field: FieldDescriptor) -> Json:
    return _repeated(field) if field.is_repeated else _value(field)


def _repeated(field: FieldDescriptor) -> Json:
    if field.message_type is not None and _is_map(field.message_type):
        return {"type": "object", "additionalProperties": _value(field.message_type.fields_by_name["value"])}
    return {"type": "array", "items": _value(field)}


def _value(field: FieldDescriptor) -> Json:
    if field.message_type is not None:
        return _message_value(field.message_type)
    if field.enum_type is not None:
        return _enum(field.enum_type)
    bounds = _INTEGERS.get(field.cpp_type)
    if bounds is not None:
        low, high = bounds
        numbers = {"type": "integer", "minimum": low, "maximum": high}
        return {"anyOf": [numbers, {"type": "string", "pattern": _INTEGER_TEXT}]}
    return _SCALAR.get(field.type, _NUMBER)


def _message_value(message: Descriptor) -> Json:
    if message.full_name in _WRAPPERS:
        return {"anyOf": [_value(message.fields_by_name["value"]), {"type": "null"}]}
    known = _WELL_KNOWN.get(message.full_name)
    return known if known is not None else _reference(message)


def _enum(enum: EnumDescriptor) -> Json:
    if enum.full_name == "google.protobuf.NullValue":
        return {"type": "null"}
    names = [value.name for value in enum.values]
    return {"anyOf": [{"enum": names}, {"type": "integer"}]}


def _reference(message: Descriptor) -> Json:
    return {"$ref": f"#/$defs/{message.full_name}"}


def _is_map(message: Descriptor) -> bool:
    return bool(message.GetOptions().map_entry)
