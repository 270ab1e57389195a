"""Walks plain values along the message types that they represent, without parsing them into messages.

Nothing is checked and nothing is lost: values that the schema does not know are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from xds.codec import schema
from xds.codec.naming import TYPE_KEY
from xds.codec.walk import ANY

_WELL_KNOWN = "google.protobuf."


def typed_values(type_name: str, value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every message within ``value``, itself first, as its full type name and the mapping that holds its fields.

    ``type_name`` is a full message name or a type URL. Messages in an ``Any`` are visited. The mappings are those of
    ``value``: the caller may change each one before its content is visited.
    """
    descriptor = schema.descriptor(type_name)
    if descriptor is None or not isinstance(value, dict):
        return
    if descriptor.full_name == ANY:
        inner = value.get(TYPE_KEY)
        if isinstance(inner, str):
            is_nested = inner.rpartition("/")[2] == ANY
            yield from typed_values(inner, value.get("value") if is_nested else value)
        return
    if descriptor.full_name.startswith(_WELL_KNOWN):
        return
    yield descriptor.full_name, value
    for key, below in list(value.items()):
        field = _fields(descriptor).get(key)
        if field is not None:
            yield from _below(field, below)


def _below(field: FieldDescriptor, value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    target: Any = field.message_type
    items = value if isinstance(value, list) else [value]
    if target.GetOptions().map_entry:
        target = target.fields_by_name["value"].message_type
        items = list(value.values()) if isinstance(value, dict) else []
    for item in items if target is not None else ():
        yield from typed_values(target.full_name, item)


@cache
def _fields(descriptor: Descriptor) -> Mapping[str, FieldDescriptor]:
    """The fields that hold messages, by both spellings of their names."""
    fields = [field for field in descriptor.fields if field.message_type is not None]
    return {spelling: field for field in fields for spelling in (field.json_name, field.name)}


def json_key(message: Mapping[str, Any], field: str) -> str:
    """The key under which a message's mapping has ``field`` (as in the .proto file): that name, or in camelCase."""
    first, *rest = field.split("_")
    camel = first + "".join(part.capitalize() for part in rest)
    return camel if field not in message and camel in message else field


def field_value(message: Mapping[str, Any], field: str) -> Any:
    """What a message's mapping has for ``field``, however it is spelled; None when it has nothing."""
    return message.get(json_key(message, field))
