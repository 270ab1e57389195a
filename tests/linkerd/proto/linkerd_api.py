"""Messages of the Linkerd API as text: fields with numbers, types, labels and oneofs, and the methods of services.

``python -m tests.linkerd.proto.linkerd_api FOLDER`` describes Linkerd's own ``.proto`` files; ``linkerd_api.json`` is
what it wrote for linkerd2-proxy-api 0.18.0.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

RECORDED = Path(__file__).with_name("linkerd_api.json")
FILES = ("destination", "net", "meta", "http_types", "http_route", "outbound", "inbound", "identity")

Described = dict[str, dict[str, str]]


def describe(files: Iterable[FileDescriptorProto]) -> Described:
    """Fields, values of enums and methods by the name of the message, the enum or the service."""
    found: Described = {}
    for file in files:
        for message in file.message_type:
            found |= dict(_messages(f"{file.package}.{message.name}", message))
        for service in file.service:
            found[f"{file.package}.{service.name}"] = {
                one.name: f"{one.input_type} -> {'stream ' * one.server_streaming}{one.output_type}"
                for one in service.method
            }
    return found


def _messages(name: str, message: DescriptorProto) -> Iterator[tuple[str, dict[str, str]]]:
    yield name, {field.name: _field(message, field) for field in message.field}
    for enum in message.enum_type:
        yield f"{name}.{enum.name}", {value.name: str(value.number) for value in enum.value}
    for nested in message.nested_type:
        yield from _messages(f"{name}.{nested.name}", nested)


def _field(message: DescriptorProto, field: FieldDescriptorProto) -> str:
    kind = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()
    label = FieldDescriptorProto.Label.Name(field.label).removeprefix("LABEL_").lower()
    oneof = f" in {message.oneof_decl[field.oneof_index].name}" if field.HasField("oneof_index") else ""
    return f"{field.number} {label} {kind} {field.type_name}".strip() + oneof


def of_folder(folder: Path) -> Described:
    """What the ``.proto`` files in a folder say. Raises ``RuntimeError`` if they cannot be compiled."""
    protoc = importlib.import_module("grpc_tools.protoc")
    well_known = Path(str(protoc.__file__)).parent / "_proto"
    with TemporaryDirectory() as directory:
        output = Path(directory) / "set"
        paths = [str(folder / f"{name}.proto") for name in FILES]
        argv = ["protoc", f"-I{well_known}", f"-I{folder}", f"--descriptor_set_out={output}", *paths]
        if protoc.main(argv):
            raise RuntimeError(f"protoc refuses the files of {folder}")
        return describe(FileDescriptorSet.FromString(output.read_bytes()).file)


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(of_folder(Path(sys.argv[1])), indent=1, sort_keys=True) + "\n")
