"""Envoy's own descriptors, applied over those of envoy-data-plane.

A release of Envoy has fields, enum values and types that no release of envoy-data-plane has yet. What only
envoy-data-plane has (the v2 API, contrib extensions) stays. Where both define a field or value differently, Envoy's
definition is used: Envoy reads the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from tools.proto.describe import (
    LEFT_OUT,
    TypeProto,
    add_synthetic_oneofs,
    oneof_index,
)

# What Envoy sends to telemetry collectors; no configuration holds any of it.
_SENT = re.compile(r"opentelemetry\.proto\.(collector|logs|metrics|resource|trace)\.")


class _Placed(NamedTuple):
    """A field without its options, and the oneof that it is a member of."""

    field: FieldDescriptorProto
    oneof: str

    def __str__(self) -> str:
        field = self.field
        label = "repeated " if field.label == FieldDescriptorProto.LABEL_REPEATED else ""
        label = "optional " if field.proto3_optional else label
        kind = field.type_name or FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
        return f"{label}{kind} {field.name} = {field.number}" + (f" in {self.oneof}" if self.oneof else "")


def apply_envoy(types: dict[str, TypeProto], files: Iterable[FileDescriptorProto]) -> list[str]:
    """Complete ``types`` (top-level, by full name) in place by what ``files`` define.

    Returns the contradictions, sorted; in each the word of ``files`` stands now.
    """
    found: list[str] = []
    for name, theirs in _top_level(files).items():
        mine = types.setdefault(name, type(theirs)(name=theirs.name))
        if isinstance(mine, DescriptorProto) and isinstance(theirs, DescriptorProto):
            found.extend(_lay_message(name, mine, theirs))
        elif isinstance(mine, EnumDescriptorProto) and isinstance(theirs, EnumDescriptorProto):
            found.extend(_lay_enum(name, mine, theirs))
        else:
            types[name] = theirs
            found.append(f"{name}: is {_kind(theirs)} in Envoy, {_kind(mine)} in envoy-data-plane")
    return sorted(found)


def _kind(one: TypeProto) -> str:
    return "a message" if isinstance(one, DescriptorProto) else "an enum"


def _top_level(files: Iterable[FileDescriptorProto]) -> dict[str, TypeProto]:
    everything: dict[str, TypeProto] = {}
    for file in files:
        everything |= {f"{file.package}.{message.name}": message for message in file.message_type}
        everything |= {f"{file.package}.{enum.name}": enum for enum in file.enum_type}
    return {name: everything[name] for name in sorted(everything) if not (LEFT_OUT.match(name) or _SENT.match(name))}


def _lay_message(name: str, mine: DescriptorProto, theirs: DescriptorProto) -> Iterator[str]:
    fields = _fields(mine)
    for number, placed in _fields(theirs).items():
        for other in [one for one, known in fields.items() if _contradicts(known, placed)]:
            yield f"{name}: Envoy has {placed}, envoy-data-plane {fields.pop(other)}"
        fields[number] = placed
    _set_fields(mine, fields)
    if theirs.options.map_entry:
        mine.options.map_entry = True
    yield from _lay_nested(name, mine, theirs)


def _lay_nested(name: str, mine: DescriptorProto, theirs: DescriptorProto) -> Iterator[str]:
    messages = {one.name: one for one in mine.nested_type}
    for message in theirs.nested_type:
        if message.name not in messages:
            messages[message.name] = mine.nested_type.add(name=message.name)
        yield from _lay_message(f"{name}.{message.name}", messages[message.name], message)
    enums = {one.name: one for one in mine.enum_type}
    for enum in theirs.enum_type:
        if enum.name not in enums:
            enums[enum.name] = mine.enum_type.add(name=enum.name)
        yield from _lay_enum(f"{name}.{enum.name}", enums[enum.name], enum)


def _fields(message: DescriptorProto) -> dict[int, _Placed]:
    return {field.number: _place(message, field) for field in message.field}


def _place(message: DescriptorProto, field: FieldDescriptorProto) -> _Placed:
    bare = FieldDescriptorProto()
    bare.CopyFrom(field)
    for unwanted in ("options", "json_name", "oneof_index"):
        bare.ClearField(unwanted)
    is_member = field.HasField("oneof_index") and not field.proto3_optional
    return _Placed(bare, message.oneof_decl[field.oneof_index].name if is_member else "")


def _contradicts(known: _Placed, placed: _Placed) -> bool:
    is_same = known.field.number == placed.field.number or known.field.name == placed.field.name
    return is_same and known != placed


def _set_fields(message: DescriptorProto, fields: Mapping[int, _Placed]) -> None:
    """Members of a oneof name it by its index, and synthetic oneofs stand last: all are placed anew."""
    del message.field[:]
    del message.oneof_decl[:]
    for field, oneof in fields.values():
        if oneof:
            field.oneof_index = oneof_index(message, oneof)
        message.field.append(field)
    add_synthetic_oneofs(message)


def _lay_enum(name: str, mine: EnumDescriptorProto, theirs: EnumDescriptorProto) -> Iterator[str]:
    values = {value.name: value.number for value in mine.value}
    wanted = {value.name: value.number for value in theirs.value}
    for known, number in list(values.items()):
        is_renamed = known not in wanted and number in wanted.values()
        if is_renamed or wanted.get(known, number) != number:
            yield f"{name}: Envoy has no {known} = {values.pop(known)} that envoy-data-plane has"
    values |= wanted
    del mine.value[:]
    for value, number in sorted(values.items(), key=lambda one: one[1] != 0):  # proto3: zero comes first
        mine.value.add(name=value, number=number)
    if theirs.options.allow_alias:
        mine.options.allow_alias = True
