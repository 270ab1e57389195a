"""Envoy's message types, built at run time from the packed descriptor set, and types that the user adds.

The descriptor pool is private, so that other users of Envoy's protos can live in the same process. It is built on
first use (about 20 ms); message classes are made when they are asked for.

A descriptor set that a user adds (``protoc --descriptor_set_out``, ``buf build``) usually contains what it imports,
with Envoy's own files of another release and under other file names. So its types are
added one by one: a type that this release knows stays unchanged, if the two can read each other's bytes. The others are
added, and imports are resolved by type name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from xds.codec.regular_file import read_regular
from xds.model.errors import XdsError
from xds.proto import descriptors

WRAPPER_TYPE = "envoy.service.discovery.v3.Resource"
RESPONSE_TYPE = "envoy.service.discovery.v3.DiscoveryResponse"

WELL_KNOWN = (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

_REMEMBERED = 1024  # type URLs that were looked up; clients may send any
_BUILDING = Lock()
_USER_NAMES: list[str] = []


def pool() -> DescriptorPool:
    """The private pool: Envoy's API v3 and v2, the xDS types beside it, and the services that are served."""
    with _BUILDING:  # message classes of two pools are not compatible
        return _pool()


@cache
def _pool() -> DescriptorPool:
    return shipped_pool()


def shipped_pool() -> DescriptorPool:
    """A pool of the types that this release ships."""
    built = DescriptorPool()
    for module in WELL_KNOWN:
        built.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in descriptors.load().file:
        built.AddSerializedFile(file.SerializeToString())
    return built


def add_descriptor_sets(paths: Iterable[Path]) -> None:
    """Add the user's message types from files of ``protoc --descriptor_set_out``, before anything is decoded.

    Known types stay unchanged. Raises ``DescriptorSetError`` for a file that is missing or is not a descriptor set, for
    a type that contradicts a known one, and for one that refers to an unknown type.
    """
    types = pool()
    with _BUILDING:
        _USER_NAMES.extend(add_sets(types, paths))
    message_names.cache_clear()
    _found.cache_clear()


def descriptor(type_url: str) -> Descriptor | None:
    """The descriptor for a type URL or a full message name; None for a type that is not in the schema."""
    return _found(type_url)


@lru_cache(_REMEMBERED)
def _found(type_url: str) -> Descriptor | None:
    try:
        message = pool().FindMessageTypeByName(type_url.rpartition("/")[2])
    except (KeyError, TypeError):  # TypeError: lone surrogates
        return None
    return message


def message_class(type_url: str) -> type[Message] | None:
    """The message class for a type URL or a full message name; None for a type that is not in the schema."""
    message = descriptor(type_url)
    return None if message is None else message_factory.GetMessageClass(message)


@cache
def message_names() -> tuple[str, ...]:
    """The full names of all top-level messages, for suggestions."""
    shipped = (f"{file.package}.{message.name}" for file in descriptors.load().file for message in file.message_type)
    return (*shipped, *_USER_NAMES)


def is_user_defined(full_name: str) -> bool:
    """True for a top-level message of a descriptor set that the user added."""
    return full_name in _USER_NAMES


def require(full_name: str) -> type[Message]:
    """The message class for a name that the schema must have."""
    message = message_class(full_name)
    assert message is not None, full_name
    return message


def parsed(type_url: str, body: bytes) -> Any:
    """The message of these bytes; None for a type that is not in the schema, and for bytes that do not parse."""
    known = message_class(type_url)
    try:
        return None if known is None else known.FromString(body)
    except DecodeError:
        return None


def parsed_or_empty(type_url: str, body: bytes) -> Any:
    """As `parsed`; an empty message for bytes that do not parse, which pushed resources never have."""
    message = parsed(type_url, body)
    return require(type_url)() if message is None else message


SIZE_LIMIT_BYTES = 64 * 1024 * 1024

T = TypeVar("T")


class DescriptorSetError(XdsError):
    """A descriptor set that cannot be used; the message names the file and what is wrong with it."""


@dataclass(slots=True)
class _File:
    """A proto file of a set that defines new types."""

    path: Path
    proto: FileDescriptorProto

    def __str__(self) -> str:
        return f"{self.path}: {self.proto.name}"


def add_sets(pool: DescriptorPool, paths: Iterable[Path]) -> list[str]:
    """Add the types of descriptor sets to a pool; the full names of the new top-level messages.

    Raises ``DescriptorSetError``; valid files before the failing one stay in the pool.
    """
    waiting = [file for file in _distinct(paths) if _reduce(pool, file)]
    own = dict(_defined(waiting))
    names = [f"{file.proto.package}.{one.name}".lstrip(".") for file in waiting for one in file.proto.message_type]
    while waiting:
        stuck = [file for file in waiting if not _add(pool, file, own)]
        if len(stuck) == len(waiting):
            raise DescriptorSetError(f"{stuck[0]}: its imports form a cycle")
        waiting = stuck
    return names


def _distinct(paths: Iterable[Path]) -> Iterator[_File]:
    """The proto files of all sets, each once."""
    seen: dict[str, tuple[Path, bytes]] = {}
    for path in paths:
        for proto in _read(path).file:
            content = proto.SerializeToString(deterministic=True)
            if proto.name not in seen:
                seen[proto.name] = path, content
                yield _File(path, proto)
            elif seen[proto.name][1] != content:
                raise DescriptorSetError(f"{path}: {proto.name} differs from that in {seen[proto.name][0]}")


def _read(path: Path) -> FileDescriptorSet:
    try:
        content = read_regular(path, SIZE_LIMIT_BYTES).data
    except OSError as error:
        raise DescriptorSetError(f"{path}: {error.strerror}") from None
    files = FileDescriptorSet()
    try:
        files.ParseFromString(content)
    except DecodeError:
        raise _not_a_set(path) from None
    # Nearly any bytes parse as a message of unknown fields.
    if not files.file or len(UnknownFieldSet(files)) or not all(proto.name for proto in files.file):
        raise _not_a_set(path)
    return files


def _not_a_set(path: Path) -> DescriptorSetError:
    return DescriptorSetError(f"{path}: not a descriptor set, such as protoc --descriptor_set_out makes")


def _reduce(pool: DescriptorPool, file: _File) -> bool:
    """Remove the types that the pool has; False when nothing is left. Raises for a type that contradicts it."""
    proto = file.proto
    prefix = f"{proto.package}." if proto.package else ""
    messages = [one for one in proto.message_type if not _is_known(pool, file, f"{prefix}{one.name}", one)]
    enums = [one for one in proto.enum_type if _find(pool.FindEnumTypeByName, f"{prefix}{one.name}") is None]
    del proto.message_type[:], proto.enum_type[:], proto.service[:], proto.extension[:]
    proto.message_type.extend(messages)
    proto.enum_type.extend(enums)
    if _find(pool.FindFileByName, proto.name) is not None:
        proto.name = f"user/{proto.name}"
    return bool(messages or enums)


def _is_known(pool: DescriptorPool, file: _File, name: str, message: DescriptorProto) -> bool:
    known = _find(pool.FindMessageTypeByName, name)
    if known is None:
        return False
    for field in message.field:
        ours = known.fields_by_number.get(field.number)
        if ours is not None and (ours.name, ours.type, ours.is_repeated) != _shape(field):
            raise DescriptorSetError(
                f"{file}: {name}.{field.name} contradicts the {name} that this release knows: "
                f"there, field {field.number} is {ours.name}"
            )
    return True


def _shape(field: FieldDescriptorProto) -> tuple[str, int, bool]:
    return field.name, field.type, field.label == FieldDescriptorProto.LABEL_REPEATED


def _find(find: Callable[[str], T], name: str) -> T | None:
    try:
        return find(name)
    except KeyError:
        return None


def _defined(files: Sequence[_File]) -> Iterator[tuple[str, str]]:
    """All new types with the file that defines them."""
    for file in files:
        prefix = f"{file.proto.package}." if file.proto.package else ""
        for enum in file.proto.enum_type:
            yield f"{prefix}{enum.name}", file.proto.name
        for message in file.proto.message_type:
            yield from ((name, file.proto.name) for name in _names(f"{prefix}{message.name}", message))


def _names(name: str, message: DescriptorProto) -> Iterator[str]:
    yield name
    yield from (f"{name}.{enum.name}" for enum in message.enum_type)
    for nested in message.nested_type:
        yield from _names(f"{name}.{nested.name}", nested)


def _add(pool: DescriptorPool, file: _File, own: dict[str, str]) -> bool:
    """Add a file; False while one of its imports is missing."""
    imports = _imports(pool, file, own) - {file.proto.name}
    if any(_find(pool.FindFileByName, name) is None for name in imports):
        return False
    del file.proto.dependency[:], file.proto.public_dependency[:], file.proto.weak_dependency[:]
    file.proto.dependency.extend(sorted(imports))
    try:
        pool.AddSerializedFile(file.proto.SerializeToString())
    except (TypeError, ValueError) as error:
        raise DescriptorSetError(f"{file}: {error}") from None
    return True


def _imports(pool: DescriptorPool, file: _File, own: dict[str, str]) -> set[str]:
    """The files that define what a file refers to. Raises for a type that is not defined anywhere."""
    return {_home(pool, file, own, name) for message in file.proto.message_type for name in _referred(message)}


def _home(pool: DescriptorPool, file: _File, own: dict[str, str], name: str) -> str:
    if name in own:
        return own[name]
    message, enum = _find(pool.FindMessageTypeByName, name), _find(pool.FindEnumTypeByName, name)
    known = message if message is not None else enum
    if known is None:
        raise DescriptorSetError(
            f"{file}: refers to {name}, which is in no descriptor set (protoc has --include_imports for that)"
        )
    return str(known.file.name)


def _referred(message: DescriptorProto) -> Iterator[str]:
    for field in message.field:
        if field.type_name:
            yield field.type_name.lstrip(".")
    for nested in message.nested_type:
        yield from _referred(nested)
