"""Envoy's message types as its own binary describes them, and no other."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from tools.proto.envoy_binary import envoy_files
from xds.codec.schema import WELL_KNOWN


def envoy_pool() -> DescriptorPool:
    """A pool of all files in the binary; what they import and the binary lacks stands in it as an empty file."""
    files = {file.name: file for file in envoy_files()}
    for module in WELL_KNOWN:
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
