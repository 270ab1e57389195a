"""Prints the options of Envoy's .proto files as JSON. It runs in the environment of `reference`.

Standard input is a serialized ``FileDescriptorSet`` of Envoy itself; its messages replace those of xds-protos.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

# Not part of Envoy's API; google.protobuf has these modules itself.
_NO_API = ("google", "grpc", "test")


def _extension(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def _installed_files(kind: Any) -> Iterator[Any]:
    """The files of xds-protos."""
    spec = importlib.util.find_spec("xds")
    assert spec is not None and spec.submodule_search_locations
    root = Path(next(iter(spec.submodule_search_locations))).parent
    for path in sorted(root.rglob("*_pb2.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] not in _NO_API:
            yield kind.FromString(importlib.import_module(".".join(parts)).DESCRIPTOR.serialized_pb)


def types_of(files: Iterable[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The messages and the enums of the files, nested ones included, by full name."""
    messages: dict[str, Any] = {}
    enums: dict[str, Any] = {}

    def add(scope: str, inner: Iterable[Any], inner_enums: Iterable[Any]) -> None:
        enums.update({f"{scope}.{enum.name}": enum for enum in inner_enums})
        for message in inner:
            messages[f"{scope}.{message.name}"] = message
            add(f"{scope}.{message.name}", message.nested_type, message.enum_type)

    for file in files:
        add(file.package, file.message_type, file.enum_type)
    return messages, enums


class _Options:
    """The options that matter, as plain values."""

    def __init__(self) -> None:
        self._to_dict = _extension("google.protobuf.json_format", "MessageToDict")
        self._rules = _extension("validate.validate_pb2", "rules")
        self._required = _extension("validate.validate_pb2", "required")
        self._sensitive = _extension("udpa.annotations.sensitive_pb2", "sensitive")
        deprecation = "envoy.annotations.deprecation_pb2"
        self._field = [
            _extension(deprecation, name) for name in ("disallowed_by_default", "deprecated_at_minor_version")
        ]
        self._value = [
            _extension(deprecation, name) for name in ("disallowed_by_default_enum", "deprecated_at_minor_version_enum")
        ]

    def message(self, message: Any) -> dict[str, Any]:
        fields = {field.name: found for field in message.field if (found := self._of_field(field))}
        oneofs = [oneof.name for oneof in message.oneof_decl if oneof.options.Extensions[self._required]]
        return {
            **({"required_oneofs": oneofs} if oneofs else {}),
            **({"fields": fields} if fields else {}),
        }

    def _of_field(self, field: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if field.options.HasExtension(self._rules):
            rules = self._to_dict(field.options.Extensions[self._rules], preserving_proto_field_name=True)
            found = {"rules": rules} if rules else {}
        if field.options.Extensions[self._sensitive]:
            found["sensitive"] = True
        if field.options.deprecated:
            found["deprecated"] = self._deprecation(field.options, self._field)
        return found

    def enum(self, enum: Any) -> dict[str, Any]:
        return {
            value.name: self._deprecation(value.options, self._value)
            for value in enum.value
            if value.options.deprecated
        }

    @staticmethod
    def _deprecation(options: Any, extensions: list[Any]) -> dict[str, Any]:
        disallowed, since = (options.Extensions[extension] for extension in extensions)
        return {**({"disallowed": True} if disallowed else {}), **({"since": since} if since else {})}


def main() -> None:
    """Print the annotations of all messages and enums that have any."""
    descriptor = importlib.import_module("google.protobuf.descriptor_pb2")
    messages, enums = types_of(_installed_files(descriptor.FileDescriptorProto))
    envoys = types_of(descriptor.FileDescriptorSet.FromString(sys.stdin.buffer.read()).file)
    options = _Options()
    everything = {
        "release": f"xds-protos {importlib.metadata.version('xds-protos')}",
        "messages": {name: options.message(one) for name, one in {**messages, **envoys[0]}.items()},
        "enums": {name: options.enum(one) for name, one in {**enums, **envoys[1]}.items()},
    }
    json.dump(everything, sys.stdout)


if __name__ == "__main__":
    main()
