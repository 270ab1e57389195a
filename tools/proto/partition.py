"""Divides types into files whose imports have no cycles.

The original file of a type is not known, and no reader needs it: only the full name of a type counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto

from tools.proto.describe import TypeProto

_WELL_KNOWN = "google.protobuf."
_WELL_KNOWN_FILES = {
    "Any": "any",
    "BoolValue": "wrappers",
    "BytesValue": "wrappers",
    "DoubleValue": "wrappers",
    "Duration": "duration",
    "Empty": "empty",
    "FieldMask": "field_mask",
    "FloatValue": "wrappers",
    "Int32Value": "wrappers",
    "Int64Value": "wrappers",
    "ListValue": "struct",
    "NullValue": "struct",
    "StringValue": "wrappers",
    "Struct": "struct",
    "Timestamp": "timestamp",
    "UInt32Value": "wrappers",
    "UInt64Value": "wrappers",
    "Value": "struct",
    "DescriptorProto": "descriptor",
    "FileDescriptorProto": "descriptor",
    "FileDescriptorSet": "descriptor",
}


def partition(types: Mapping[str, TypeProto]) -> list[FileDescriptorProto]:
    """Files of top-level types, given by full name: each file follows those that it imports."""
    ordered = sorted(types)
    edges = {name: sorted({_root(types, use) for use in _uses(types[name])}) for name in ordered}
    components = _components(edges)
    files = {name: _file_name(group) for group in components for name in group}
    return [_file(types, group, edges, files) for group in components]


def _uses(one: TypeProto) -> Iterator[str]:
    """Full names of the types that the fields of a type and of those nested in it hold."""
    if isinstance(one, DescriptorProto):
        yield from (field.type_name.removeprefix(".") for field in one.field if field.type_name)
        for nested in one.nested_type:
            yield from _uses(nested)


def _root(types: Mapping[str, TypeProto], full_name: str) -> str:
    """The top-level type that contains a type; a well-known type is returned unchanged."""
    root = full_name
    while root not in types and not root.startswith(_WELL_KNOWN):
        root = root.rpartition(".")[0]
        if not root:
            raise KeyError(full_name)
    return root


def _components(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan), dependencies first: a file each."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(root: str) -> None:
        index[root] = low[root] = len(index)
        stack.append(root)
        for target in edges[root]:
            if target not in edges:
                continue
            if target not in index:
                visit(target)
                low[root] = min(low[root], low[target])
            elif target in stack:
                low[root] = min(low[root], index[target])
        if low[root] == index[root]:
            position = stack.index(root)
            found.append(sorted(stack[position:]))
            del stack[position:]

    for root in edges:
        if root not in index:
            visit(root)
    return found


def _file_name(group: list[str]) -> str:
    package, _, name = group[0].rpartition(".")
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return f"{package.replace('.', '/')}/{snake}.proto"


def _file(
    types: Mapping[str, TypeProto], group: list[str], edges: Mapping[str, Iterable[str]], files: Mapping[str, str]
) -> FileDescriptorProto:
    name, package = files[group[0]], group[0].rpartition(".")[0]
    used = {use for root in group for use in edges[root]}
    imports = {files[use] if use in files else _well_known_file(use) for use in used} - {name}
    file = FileDescriptorProto(name=name, package=package, syntax="proto3", dependency=sorted(imports))
    for one in (types[root] for root in group):
        if isinstance(one, DescriptorProto):
            file.message_type.append(one)
        else:
            file.enum_type.append(one)
    return file


def _well_known_file(full_name: str) -> str:
    return f"google/protobuf/{_WELL_KNOWN_FILES[full_name.removeprefix(_WELL_KNOWN)]}.proto"
