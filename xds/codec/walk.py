"""Walks over the messages within a message, including those packed in an ``Any``.

`typed_values` walks plain values along the message types that they represent, without parsing them into messages:
nothing is checked and nothing is lost, and values that the schema does not know are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from operator import itemgetter
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from xds.codec import schema
from xds.codec.naming import TYPE_KEY

ANY = "google.protobuf.Any"


class _Holder(NamedTuple):
    """A field that can hold a wanted type; ``place`` is its position among the fields of its message."""

    place: int
    name: str
    is_repeated: bool
    is_map: bool


_NOTHING: frozenset[str] = frozenset()


@cache
def reachable(descriptor: Descriptor, barred: frozenset[str] = _NOTHING) -> frozenset[str]:
    """Full names of all message types that a message of this type can hold, itself included.

    Types in ``barred`` are neither visited nor returned.
    """
    reached: set[str] = set(barred)
    waiting = [descriptor]
    while waiting:
        current = waiting.pop()
        if current.full_name not in reached:
            reached.add(current.full_name)
            waiting += [field.message_type for field in current.fields if field.message_type is not None]
    return frozenset(reached - barred)


@cache
def _holders(
    descriptor: Descriptor, wanted: frozenset[str], barred: frozenset[str]
) -> Mapping[FieldDescriptor, _Holder]:
    """The fields that can hold a wanted type."""
    holders = {}
    for place, field in enumerate(descriptor.fields):
        if field.message_type is not None and not wanted.isdisjoint(reachable(field.message_type, barred)):
            is_map = bool(field.message_type.GetOptions().map_entry)
            holders[field] = _Holder(place, field.name, field.is_repeated and not is_map, is_map)
    return holders


def _set_holders(message: Any, wanted: frozenset[str], barred: frozenset[str]) -> list[tuple[_Holder, Any]]:
    """The fields of a message that are set and can hold a wanted type, in the order of the type."""
    holders = _holders(message.DESCRIPTOR, wanted, barred)
    if not holders:
        return []
    values = [(holders[field], value) for field, value in message.ListFields() if field in holders]
    if len(values) > 1:
        values.sort(key=itemgetter(0))
    return values


def submessages(message: Any, wanted: frozenset[str], barred: frozenset[str] = _NOTHING) -> Iterator[Any]:
    """The messages set in ``message``'s own fields that can hold a type of ``wanted``, not by way of ``barred``."""
    for (_, _, is_repeated, is_map), value in _set_holders(message, wanted, barred):
        if is_map:
            yield from value.values()
        elif is_repeated:
            yield from value
        else:
            yield value


def placed_submessages(
    message: Any, wanted: frozenset[str], barred: frozenset[str] = _NOTHING
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """As ``submessages``, each with the path to it: field, then index or map key."""
    for (_, name, is_repeated, is_map), value in _set_holders(message, wanted, barred):
        if is_map:
            yield from (((name, str(key)), one) for key, one in value.items())
        elif is_repeated:
            yield from (((name, index), one) for index, one in enumerate(value))
        else:
            yield (name,), value


def unpack(packed: Any) -> Message | None:
    """The message in an ``Any``; None for a type that is not in the schema, and for bytes that do not parse."""
    message: Message | None = schema.parsed(packed.type_url, packed.value)
    return message


_ANY_ONLY = frozenset((ANY,))


def make_canonical(message: Any) -> None:
    """Make the payload of every ``Any`` within canonical; payloads of unknown types stay unchanged."""
    if message.DESCRIPTOR.full_name == ANY:
        inner = unpack(message)
        if inner is not None:
            make_canonical(inner)
            message.value = inner.SerializeToString(deterministic=True)
        return
    for submessage in submessages(message, _ANY_ONLY):
        make_canonical(submessage)


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
    """The value of ``field`` in a message's mapping, in either spelling; None if it has none."""
    return message.get(json_key(message, field))
