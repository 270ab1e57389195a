"""Types of the user's own: from protoc's descriptor sets into the schema, or a clear refusal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from xds.codec import schema
from xds.codec.schema import DescriptorSetError, add_sets

# As Envoy's own files are called, with less in them; a set often brings such a copy along.
ADDRESS = """
syntax = "proto3";
package envoy.config.core.v3;
message Pipe { string path = 1; uint32 mode = 2; }
message Address { oneof address { Pipe pipe = 2; } }
"""
FILTER = """
syntax = "proto3";
package acme.filters.v1;
import "envoy/config/core/v3/address.proto";
import "google/protobuf/duration.proto";
import "acme/common.proto";
message Filter {
  string name = 1;
  envoy.config.core.v3.Address upstream = 2;
  google.protobuf.Duration wait = 3;
  acme.common.Level level = 4;
  map<string, Rule> rules = 5;
  message Rule { bool on = 1; Kind kind = 2; enum Kind { NONE = 0; SOME = 1; } }
}
"""
COMMON = """
syntax = "proto3";
package acme.common;
enum Level { LOW = 0; HIGH = 1; }
"""
FILES = {"envoy/config/core/v3/address.proto": ADDRESS, "acme/filter.proto": FILTER, "acme/common.proto": COMMON}


def _compile(folder: Path, files: dict[str, str], main: Sequence[str], *flags: str, name: str = "set.pb") -> Path:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    output = folder / name
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--descriptor_set_out={output}"]
    subprocess.run([*command, *flags, *main], check=True, cwd=folder, timeout=60)
    return output


@pytest.fixture
def pool() -> DescriptorPool:
    """A pool like the schema's, of its own."""
    return schema.shipped_pool()


def test_types_are_known_with_the_types_that_they_refer_to(pool: DescriptorPool, tmp_path: Path) -> None:
    assert add_sets(pool, [_compile(tmp_path, FILES, ["acme/filter.proto"], "--include_imports")]) == [
        "acme.filters.v1.Filter"
    ]
    filter_type: Any = pool.FindMessageTypeByName("acme.filters.v1.Filter")
    address = filter_type.fields_by_name["upstream"].message_type
    assert "socket_address" in address.fields_by_name, "the Address that was known, not the copy"
    assert filter_type.fields_by_name["level"].enum_type.values_by_name["HIGH"].number == 1


def test_imports_may_come_from_known_types_or_another_set(pool: DescriptorPool, tmp_path: Path) -> None:
    first = _compile(tmp_path, FILES, ["acme/filter.proto"], name="filter.pb")
    second = _compile(tmp_path, FILES, ["acme/common.proto"], name="common.pb")
    add_sets(pool, [first, second])
    assert pool.FindMessageTypeByName("acme.filters.v1.Filter.Rule") is not None


def test_the_same_set_may_come_again(pool: DescriptorPool, tmp_path: Path) -> None:
    found = _compile(tmp_path, FILES, ["acme/filter.proto"], "--include_imports")
    assert add_sets(pool, [found, found]) == ["acme.filters.v1.Filter"]
    assert add_sets(pool, [found]) == []


def _refused(pool: DescriptorPool, *paths: Path) -> str:
    with pytest.raises(DescriptorSetError) as caught:
        add_sets(pool, paths)
    assert str(caught.value).startswith(str(paths[-1]))
    return str(caught.value)


def test_a_missing_file(pool: DescriptorPool, tmp_path: Path) -> None:
    assert "No such file" in _refused(pool, tmp_path / "nothing.pb")


@pytest.mark.parametrize("content", [b"", b"syntax = 'proto3';", b"\xff" * 20, b"\x0a\x00"])
def test_a_file_that_is_no_set(pool: DescriptorPool, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.proto"
    file.write_bytes(content)
    assert "not a descriptor set" in _refused(pool, file)


def test_a_type_that_contradicts_a_known_one(pool: DescriptorPool, tmp_path: Path) -> None:
    text = ADDRESS.replace("string path = 1", "string route = 1")
    found = _compile(tmp_path, {"a.proto": text}, ["a.proto"])
    assert "envoy.config.core.v3.Pipe.route contradicts" in _refused(pool, found)


def test_a_reference_to_an_unknown_type(pool: DescriptorPool, tmp_path: Path) -> None:
    found = _compile(tmp_path, FILES, ["acme/filter.proto"])
    assert "refers to acme.common.Level, which is in no descriptor set" in _refused(pool, found)


def test_two_sets_that_disagree(pool: DescriptorPool, tmp_path: Path) -> None:
    first = _compile(tmp_path, FILES, ["acme/common.proto"], name="a.pb")
    second = _compile(
        tmp_path, {"acme/common.proto": COMMON.replace("HIGH", "TOP")}, ["acme/common.proto"], name="b.pb"
    )
    assert "acme/common.proto differs" in _refused(pool, first, second)


def test_a_set_of_nonsense(pool: DescriptorPool, tmp_path: Path) -> None:
    nonsense = FileDescriptorSet()
    file = nonsense.file.add(name="a.proto", package="a")
    file.message_type.add(name="not a name")
    path = tmp_path / "a.pb"
    path.write_bytes(nonsense.SerializeToString())
    _refused(pool, path)


def test_resources_of_such_types_are_read_and_shown(tmp_path: Path) -> None:
    """In a process of its own: the schema keeps what it learns."""
    found = _compile(tmp_path, FILES, ["acme/filter.proto"], "--include_imports")
    program = """
import sys
from pathlib import Path
from xds.codec import schema
from xds.codec.render import render_resource
from xds.codec.resources import decode_resource
from xds.model.errors import ValidationError
schema.add_descriptor_sets([Path(sys.argv[1])])
T = "type.googleapis.com/"
own = {"@type": T + "acme.filters.v1.Filter", "name": "f", "wait": "1s", "level": "HIGH"}
own["rules"] = {"a": {"kind": "SOME"}}
packed = {"@type": T + "envoy.config.core.v3.TypedExtensionConfig", "name": "e", "typed_config": own}
for value in (own, packed):
    assert render_resource(decode_resource(value)) == value, value
try:
    decode_resource({**own, "levle": 1, "@type": T + "acme.filters.v1.Filter"})
except ValidationError as error:
    assert error.violations[0].hint == 'did you mean "level"?'
try:
    decode_resource({"@type": T + "acme.filters.v1.Fliter"})
except ValidationError as error:
    assert "acme.filters.v1.Filter" in error.violations[0].hint
print("read")
"""
    done: Any = subprocess.run(
        [sys.executable, "-c", program, found], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "read\n", done.stderr
