"""The packed descriptor set is current, complete and what Envoy itself has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

from xds.proto import descriptors, generate
from xds.proto.envoy_binary import envoy_files

Types = tuple[dict[str, DescriptorProto], dict[str, EnumDescriptorProto]]

# Where Envoy 1.40 and envoy-data-plane 2.2.0 were made from different states of the same file.
DRIFT = {
    ("google.api.expr.v1alpha1.Decl.FunctionDecl", "doc"),
    ("envoy.extensions.filters.http.mcp_json_rest_bridge.v3.ServerInfo", "supported_protocol_versions"),
}


def _types(files: Iterable[FileDescriptorProto]) -> Types:
    messages: dict[str, DescriptorProto] = {}
    enums: dict[str, EnumDescriptorProto] = {}

    def add(scope: str, inner: Iterable[DescriptorProto], inner_enums: Iterable[EnumDescriptorProto]) -> None:
        enums.update({f"{scope}.{enum.name}": enum for enum in inner_enums})
        for message in inner:
            messages[f"{scope}.{message.name}"] = message
            add(f"{scope}.{message.name}", message.nested_type, message.enum_type)

    for file in files:
        add(file.package, file.message_type, file.enum_type)
    return messages, enums


def _shape(message: DescriptorProto, field: FieldDescriptorProto) -> tuple[object, ...]:
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    return field.name, field.number, field.type, field.label, field.type_name, field.proto3_optional, oneof


@pytest.fixture(scope="module")
def ours() -> Types:
    return _types(descriptors.load().file)


@pytest.fixture(scope="module")
def envoys() -> Types:
    return _types(envoy_files())


def test_descriptor_set_is_current() -> None:
    """Made anew in a process of its own, with another hash seed, it is the same."""
    command = [sys.executable, "-m", "xds.proto.generate", "descriptors", "--check"]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_sees_another_release() -> None:
    _, content = descriptors.unpack(descriptors.PATH.read_bytes())
    other = descriptors.pack("envoy-data-plane 0.0.1", descriptors.load())
    assert descriptors.unpack(other)[1] == content
    assert generate.stale_files({descriptors.PATH: other}) == [descriptors.PATH]


def test_messages_are_those_of_envoy(ours: Types, envoys: Types) -> None:
    common = set(ours[0]) & set(envoys[0])
    assert len(common) > 1400
    differences = {
        (name, field.name)
        for name in common
        for field in ours[0][name].field
        if _shape(ours[0][name], field) not in {_shape(envoys[0][name], other) for other in envoys[0][name].field}
    }
    assert differences <= DRIFT


def test_enums_are_those_of_envoy(ours: Types, envoys: Types) -> None:
    common = set(ours[1]) & set(envoys[1])
    assert len(common) > 150
    for name in common:
        values = {(value.name, value.number) for value in ours[1][name].value}
        assert values <= {(value.name, value.number) for value in envoys[1][name].value}, name


def test_enum_names_are_not_mangled(ours: Types, envoys: Types) -> None:
    """Every enum that a field of a common message names is one that Envoy has."""
    mangled = {
        name
        for name, enum in ours[1].items()
        if name not in envoys[1]
        and any(other.name.lower() == enum.name.lower() for other in envoys[1].values())
        and name.rpartition(".")[0] in envoys[0]
    }
    assert mangled == set()


@pytest.mark.parametrize(
    "name",
    [
        "xds.type.v3.TypedStruct",
        "udpa.type.v1.TypedStruct",
        "xds.core.v3.Resource",
        "xds.core.v3.ResourceName",
        "xds.data.orca.v3.OrcaLoadReport",
        "xds.type.matcher.v3.IPMatcher",
        "xds.type.matcher.v3.CelMatcher",
        "xds.type.matcher.v3.ServerNameMatcher",
        "xds.type.v3.Int64Range",
    ],
)
def test_supplement_is_complete(ours: Types, envoys: Types, name: str) -> None:
    mine, envoy = ours[0][name], envoys[0][name]
    assert [_shape(mine, field) for field in mine.field] == [_shape(envoy, field) for field in envoy.field]


def test_services_are_those_of_envoy() -> None:
    def methods(files: Iterable[FileDescriptorProto]) -> dict[str, set[tuple[object, ...]]]:
        return {
            f"{file.package}.{service.name}": {
                (one.name, one.input_type, one.output_type, one.client_streaming, one.server_streaming)
                for one in service.method
            }
            for file in files
            for service in file.service
        }

    mine, envoy = methods(descriptors.load().file), methods(envoy_files())
    common = set(mine) & set(envoy)
    assert len(common) >= 11
    assert {name: mine[name] for name in common} == {name: envoy[name] for name in common}


def test_v2_api_is_included(ours: Types) -> None:
    assert {"envoy.api.v2.Cluster", "envoy.api.v2.DiscoveryRequest", "envoy.api.v2.auth.Secret"} <= set(ours[0])


def test_digits_in_names_keep_their_spelling(ours: Types) -> None:
    fields = {field.name for field in ours[0]["envoy.config.cluster.v3.OutlierDetection"].field}
    assert {"consecutive_5xx", "enforcing_consecutive_5xx"} <= fields
