"""Envoy's message types, made at run time from the packed descriptor set, in a pool of their own.

The pool is private so that other people's Envoy protos may live in the same process. It is built on first use (about
20 ms); message classes are made one by one as they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache
from pathlib import Path
from threading import Lock

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
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message

from xds.codec.descriptor_sets import add_sets
from xds.proto import descriptors

WRAPPER_TYPE = "envoy.service.discovery.v3.Resource"
RESPONSE_TYPE = "envoy.service.discovery.v3.DiscoveryResponse"

_WELL_KNOWN = (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)

_REMEMBERED = 1024  # type URLs that were looked up, whoever made them up
_BUILDING = Lock()
_USER_NAMES: list[str] = []


def pool() -> DescriptorPool:
    """The private pool: Envoy's API v3 and v2, the xDS types beside it, and the services that are served."""
    with _BUILDING:  # two pools would give message classes that do not mix
        return _pool()


@cache
def _pool() -> DescriptorPool:
    return shipped_pool()


def shipped_pool() -> DescriptorPool:
    """A pool of what this release ships, and of nothing else."""
    built = DescriptorPool()
    for module in _WELL_KNOWN:
        built.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    for file in descriptors.load().file:
        built.AddSerializedFile(file.SerializeToString())
    return built


def add_descriptor_sets(paths: Iterable[Path]) -> None:
    """Make message types of the user's own known, before anything is read: files of ``protoc --descriptor_set_out``.

    What is known already stays as it is. Raises ``DescriptorSetError`` for a file that is missing or no descriptor set,
    for a type that contradicts a known one and for one that refers to what nobody knows.
    """
    held = pool()
    with _BUILDING:
        _USER_NAMES.extend(add_sets(held, paths))
    message_names.cache_clear()
    _found.cache_clear()


def descriptor(type_url: str) -> Descriptor | None:
    """The descriptor for a type URL or a full message name; None for a type that is not in the schema."""
    return _found(type_url)


@lru_cache(_REMEMBERED)
def _found(type_url: str) -> Descriptor | None:
    try:
        found = pool().FindMessageTypeByName(type_url.rpartition("/")[2])
    except (KeyError, TypeError):  # TypeError: lone surrogates
        return None
    return found


def message_class(type_url: str) -> type[Message] | None:
    """The message class for a type URL or a full message name; None for a type that is not in the schema."""
    found = descriptor(type_url)
    return None if found is None else message_factory.GetMessageClass(found)


@cache
def message_names() -> tuple[str, ...]:
    """The full names of all top-level messages, for suggestions."""
    shipped = (f"{file.package}.{message.name}" for file in descriptors.load().file for message in file.message_type)
    return (*shipped, *_USER_NAMES)


def is_users_own(full_name: str) -> bool:
    """Is this a top-level message of a descriptor set that the user has added?"""
    return full_name in _USER_NAMES


def require(full_name: str) -> type[Message]:
    """The message class for a name that the schema is known to hold."""
    found = message_class(full_name)
    assert found is not None, full_name
    return found
