"""Messages within a message, those packed in an ``Any`` included."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import DecodeError, Message

from xds.codec import schema

ANY = "google.protobuf.Any"


@cache
def reachable(descriptor: Descriptor) -> frozenset[str]:
    """Full names of all message types that a message of this type can hold, itself included."""
    found: set[str] = set()
    waiting = [descriptor]
    while waiting:
        current = waiting.pop()
        if current.full_name not in found:
            found.add(current.full_name)
            waiting += [field.message_type for field in current.fields if field.message_type is not None]
    return frozenset(found)


@cache
def _holders(descriptor: Descriptor, wanted: frozenset[str]) -> tuple[tuple[str, bool, bool], ...]:
    """The fields that can lead to a wanted type: name, is it repeated, is it a map."""
    holders = []
    for field in descriptor.fields:
        if field.message_type is not None and not wanted.isdisjoint(reachable(field.message_type)):
            is_map = bool(field.message_type.GetOptions().map_entry)
            holders.append((field.name, field.is_repeated and not is_map, is_map))
    return tuple(holders)


def submessages(message: Any, wanted: frozenset[str]) -> Iterator[Any]:
    """The messages set in ``message``'s own fields that can hold a type of ``wanted``."""
    for name, is_repeated, is_map in _holders(message.DESCRIPTOR, wanted):
        if is_map:
            yield from getattr(message, name).values()
        elif is_repeated:
            yield from getattr(message, name)
        elif message.HasField(name):
            yield getattr(message, name)


def placed_submessages(message: Any, wanted: frozenset[str]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """As ``submessages``, each with the path to it: field, then index or map key."""
    for name, is_repeated, is_map in _holders(message.DESCRIPTOR, wanted):
        value = getattr(message, name)
        if is_map:
            yield from (((name, str(key)), one) for key, one in value.items())
        elif is_repeated:
            yield from (((name, index), one) for index, one in enumerate(value))
        elif message.HasField(name):
            yield (name,), value


def unpack(packed: Any) -> Message | None:
    """What an ``Any`` holds; None for a type that is not in the schema and for bytes that are none of its."""
    message_class = schema.message_class(packed.type_url)
    if message_class is None:
        return None
    try:
        return message_class.FromString(packed.value)
    except DecodeError:
        return None


_ANY_ONLY = frozenset((ANY,))


def make_canonical(message: Any) -> None:
    """Bring the payload of every ``Any`` within to canonical bytes; what is unknown stays as it is."""
    if message.DESCRIPTOR.full_name == ANY:
        inner = unpack(message)
        if inner is not None:
            make_canonical(inner)
            message.value = inner.SerializeToString(deterministic=True)
        return
    for submessage in submessages(message, _ANY_ONLY):
        make_canonical(submessage)
