"""Envoy's message types as its own binary describes them, and no other."""

from __future__ import annotations

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from tools.proto.envoy_binary import envoy_files

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


def envoy_pool() -> DescriptorPool:
    """A pool of all files in the binary; what they import and the binary lacks stands in it as an empty file."""
    files = {file.name: file for file in envoy_files()}
    for module in _WELL_KNOWN:
        files[module.DESCRIPTOR.name] = FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    pool = DescriptorPool()
    added: set[str] = set()

    def add(name: str) -> None:
        if name not in added:
            added.add(name)
            file = files.get(name, FileDescriptorProto(name=name))
            for imported in file.dependency:
                add(imported)
            pool.AddSerializedFile(file.SerializeToString())

    for name in files:
        add(name)
    return pool
