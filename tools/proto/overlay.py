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
    """Add what ``files`` define to ``types`` (top-level, by full name), in place.

    Returns the contradictions, sorted; each is resolved as in ``files``.
    """
    found: list[str] = []
    for name, envoys in _top_level(files).items():
        base = types.setdefault(name, type(envoys)(name=envoys.name))
        if isinstance(base, DescriptorProto) and isinstance(envoys, DescriptorProto):
            found.extend(_merge_message(name, base, envoys))
        elif isinstance(base, EnumDescriptorProto) and isinstance(envoys, EnumDescriptorProto):
            found.extend(_merge_enum(name, base, envoys))
        else:
            types[name] = envoys
            found.append(f"{name}: is {_kind(envoys)} in Envoy, {_kind(base)} in envoy-data-plane")
    return sorted(found)


def _kind(one: TypeProto) -> str:
    return "a message" if isinstance(one, DescriptorProto) else "an enum"


def _top_level(files: Iterable[FileDescriptorProto]) -> dict[str, TypeProto]:
    everything: dict[str, TypeProto] = {}
    for file in files:
        everything |= {f"{file.package}.{message.name}": message for message in file.message_type}
        everything |= {f"{file.package}.{enum.name}": enum for enum in file.enum_type}
    return {name: everything[name] for name in sorted(everything) if not (LEFT_OUT.match(name) or _SENT.match(name))}


def _merge_message(name: str, base: DescriptorProto, envoys: DescriptorProto) -> Iterator[str]:
    fields = _fields(base)
    for number, placed in _fields(envoys).items():
        for other in [one for one, known in fields.items() if _contradicts(known, placed)]:
            yield f"{name}: Envoy has {placed}, envoy-data-plane {fields.pop(other)}"
        fields[number] = placed
    _set_fields(base, fields)
    if envoys.options.map_entry:
        base.options.map_entry = True
    yield from _merge_nested(name, base, envoys)


def _merge_nested(name: str, base: DescriptorProto, envoys: DescriptorProto) -> Iterator[str]:
    messages = {one.name: one for one in base.nested_type}
    for message in envoys.nested_type:
        if message.name not in messages:
            messages[message.name] = base.nested_type.add(name=message.name)
        yield from _merge_message(f"{name}.{message.name}", messages[message.name], message)
    enums = {one.name: one for one in base.enum_type}
    for enum in envoys.enum_type:
        if enum.name not in enums:
            enums[enum.name] = base.enum_type.add(name=enum.name)
        yield from _merge_enum(f"{name}.{enum.name}", enums[enum.name], enum)


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
    """Replace all fields and oneofs: members refer to a oneof by its index, and synthetic oneofs come last."""
    del message.field[:]
    del message.oneof_decl[:]
    for field, oneof in fields.values():
        if oneof:
            field.oneof_index = oneof_index(message, oneof)
        message.field.append(field)
    add_synthetic_oneofs(message)


def _merge_enum(name: str, base: EnumDescriptorProto, envoys: EnumDescriptorProto) -> Iterator[str]:
    values = {value.name: value.number for value in base.value}
    wanted = {value.name: value.number for value in envoys.value}
    for known, number in list(values.items()):
        is_renamed = known not in wanted and number in wanted.values()
        if is_renamed or wanted.get(known, number) != number:
            yield f"{name}: Envoy has no {known} = {values.pop(known)} that envoy-data-plane has"
    values |= wanted
    del base.value[:]
    for value, number in sorted(values.items(), key=lambda one: one[1] != 0):  # proto3: zero comes first
        base.value.add(name=value, number=number)
    if envoys.options.allow_alias:
        base.options.allow_alias = True
