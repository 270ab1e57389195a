"""The descriptors of Envoy's contrib extensions, from the Go module ``go-control-plane/contrib``.

``python -m tools.proto.contrib`` fetches the module with ``go mod download``, takes the serialized descriptors out of
its generated files, and writes `PATH`, which is checked in: generating the rest needs no Go. The descriptors keep their
options, so that validation rules and sensitive fields are extracted like those of Envoy itself.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from xds.proto import descriptors

PATH = Path(__file__).with_name("contrib_descriptors.bin")
MODULE = "github.com/envoyproxy/go-control-plane/contrib"
VERSION = "v1.36.1-0.20260729145720-a2d8c7492908"

_RAW = re.compile(r'_rawDesc = "" \+\n((?:\t"(?:[^"\\]|\\.)*"(?: \+)?\n)+)')
_LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{3}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_NAMED = {b"a": 7, b"b": 8, b"f": 12, b"n": 10, b"r": 13, b"t": 9, b"v": 11, b"\\": 92, b'"': 34}
_TIMEOUT_S = 300.0


def contrib_files() -> tuple[FileDescriptorProto, ...]:
    """The files that are checked in."""
    packed = descriptors.unpack(PATH.read_bytes())[1]
    return tuple(FileDescriptorSet.FromString(packed).file)


def fetch() -> bytes:
    """The content of `PATH`, from the module. Raises ``RuntimeError`` when Go cannot fetch it."""
    found = sorted(_files(_module()), key=lambda file: file.name)
    return descriptors.pack(f"{MODULE} {VERSION}", FileDescriptorSet(file=found))


def _module() -> Path:
    with TemporaryDirectory() as directory:
        run = subprocess.run(
            ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"],
            cwd=directory,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    if run.returncode != 0:
        raise RuntimeError(f"go mod download: {run.stderr.decode(errors='replace') or run.stdout.decode()}")
    return Path(json.loads(run.stdout)["Dir"])


def _files(folder: Path) -> Iterator[FileDescriptorProto]:
    for path in sorted(folder.rglob("*.pb.go")):
        raw = _RAW.search(path.read_text(encoding="utf-8"))
        if raw is not None:
            yield FileDescriptorProto.FromString(b"".join(map(_bytes, _LITERAL.findall(raw[1]))))


def _bytes(literal: str) -> bytes:
    """The bytes that a string literal of Go stands for."""
    return _ESCAPE.sub(lambda found: _character(found[1]), literal.encode())


def _character(escape: bytes) -> bytes:
    if escape in _NAMED:
        return bytes((_NAMED[escape],))
    if escape[:1] in (b"u", b"U"):
        return chr(int(escape[1:], 16)).encode()
    return bytes((int(escape[1:], 16),)) if escape[:1] == b"x" else bytes((int(escape, 8),))


def main() -> None:
    """Run the program."""
    PATH.write_bytes(fetch())
    sys.stdout.write(f"{PATH.name}: {len(contrib_files())} files\n")


if __name__ == "__main__":
    main()
