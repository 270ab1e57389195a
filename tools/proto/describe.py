"""Envoy's API as descriptors, read from the metadata of envoy-data-plane.

envoy-data-plane (betterproto2) keeps what its data classes need of the .proto files: field numbers, names, types,
oneofs, enum values. Two parts of a descriptor are missing: the file of a type, which `partition` chooses anew, and the
exact name of an enum, which is restored from its class name and from the messages beside it.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import re
import warnings
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FieldDescriptorProto

TypeProto = DescriptorProto | EnumDescriptorProto

_ROOT = "envoy_data_plane."
# The real google.protobuf serves these; validate and the annotations only describe other .proto files.
LEFT_OUT = re.compile(r"(google\.protobuf|pb|validate|(envoy|udpa|xds)\.annotations)\.")
_PYTHON_SUFFIX = re.compile(r"_$")

# Class name -> full name, where the longest message name that starts an enum's class name is not its parent, or
# where its name lost its spelling.
_ENUM_NAMES: Mapping[str, str] = {
    "envoy.config.core.v3.ProxyProtocolPassThroughTlVsPassTlVsMatchType": (
        "envoy.config.core.v3.ProxyProtocolPassThroughTLVs.PassTLVsMatchType"
    ),
    "envoy.config.route.v3.RetryPolicyResetHeaderFormat": "envoy.config.route.v3.RetryPolicy.ResetHeaderFormat",
    "envoy.data.accesslog.v2.HttpAccessLogEntryHttpVersion": "envoy.data.accesslog.v2.HTTPAccessLogEntry.HTTPVersion",
    "envoy.data.accesslog.v2.TlsPropertiesTlsVersion": "envoy.data.accesslog.v2.TLSProperties.TLSVersion",
    "envoy.data.accesslog.v3.HttpAccessLogEntryHttpVersion": "envoy.data.accesslog.v3.HTTPAccessLogEntry.HTTPVersion",
    "envoy.data.accesslog.v3.TlsPropertiesTlsVersion": "envoy.data.accesslog.v3.TLSProperties.TLSVersion",
    "envoy.data.core.v2alpha.HealthCheckFailureType": "envoy.data.core.v2alpha.HealthCheckFailureType",
    "envoy.data.core.v3.HealthCheckFailureType": "envoy.data.core.v3.HealthCheckFailureType",
    "envoy.extensions.common.ratelimit.v3.XRateLimitHeadersRfcVersion": (
        "envoy.extensions.common.ratelimit.v3.XRateLimitHeadersRFCVersion"
    ),
    "envoy.extensions.filters.http.ratelimit.v3.RateLimitXRateLimitHeadersRfcVersion": (
        "envoy.extensions.filters.http.ratelimit.v3.RateLimit.XRateLimitHeadersRFCVersion"
    ),
    "envoy.service.status.v3.ClientConfigStatus": "envoy.service.status.v3.ClientConfigStatus",
    "io.prometheus.client.MetricType": "io.prometheus.client.MetricType",
}


@dataclasses.dataclass
class TypeNode:
    """A message or enum with what is nested in it. ``fields`` is empty for an enum."""

    full_name: str
    cls: Any
    children: list[TypeNode] = dataclasses.field(default_factory=list)

    @property
    def name(self) -> str:
        return self.full_name.rpartition(".")[2]


class Schema:
    """The types of envoy-data-plane by full name, and the tree they form."""

    def __init__(self) -> None:
        modules = import_all()
        pool = importlib.import_module(_ROOT + "message_pool").default_message_pool
        self.names: dict[Any, str] = {cls: url.partition("/")[2] for cls, url in pool.type_to_url.items()}
        self.packages = {module.__name__.removeprefix(_ROOT) for module in modules}
        for module in modules:
            self.names.update(_enum_names(module, self.names))
        self.roots = self._tree()

    def _tree(self) -> dict[str, TypeNode]:
        """Top-level types by full name, in alphabetic order."""
        nodes = {name: TypeNode(name, cls) for cls, name in self.names.items() if not LEFT_OUT.match(name)}
        roots: dict[str, TypeNode] = {}
        for name in sorted(nodes):
            parent = name.rpartition(".")[0]
            if parent in self.packages:
                roots[name] = nodes[name]
            else:
                nodes[parent].children.append(nodes[name])
        return roots


def import_all() -> list[Any]:
    """Import all modules of envoy-data-plane, so that all its messages are known. Takes seconds."""
    package = importlib.import_module(_ROOT.rstrip("."))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [importlib.import_module(info.name) for info in pkgutil.walk_packages(package.__path__, _ROOT)]


def _enum_names(module: Any, names: Mapping[Any, str]) -> dict[Any, str]:
    """Full names of a module's enums: ``ClusterLbPolicy`` is ``LbPolicy`` within ``Cluster``."""
    enum_type = importlib.import_module("betterproto2").Enum
    own = [cls for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__]
    parents = {cls.__name__: names[cls] for cls in own if cls in names}
    package = module.__name__.removeprefix(_ROOT)
    return {cls: _enum_name(cls.__name__, package, parents) for cls in own if issubclass(cls, enum_type)}


def _enum_name(name: str, package: str, parents: Mapping[str, str]) -> str:
    flat = f"{package}.{name}"
    if flat in _ENUM_NAMES:
        return _ENUM_NAMES[flat]
    fitting = [parent for parent in parents if name.startswith(parent) and name != parent]
    if not fitting:
        return flat
    parent = max(fitting, key=len)
    return f"{parents[parent]}.{name[len(parent) :]}"


def describe() -> dict[str, TypeProto]:
    """All top-level types by full name, in alphabetic order, the same for the same envoy-data-plane."""
    schema = Schema()
    return {name: _type(schema, node) for name, node in schema.roots.items()}


def _type(schema: Schema, node: TypeNode) -> TypeProto:
    return _message(schema, node) if dataclasses.is_dataclass(node.cls) else _enum(node)


def _enum(node: TypeNode) -> EnumDescriptorProto:
    renamed = node.cls.betterproto_value_to_renamed_proto_names()
    enum = EnumDescriptorProto(name=node.name)
    for name, member in node.cls.__members__.items():
        enum.value.add(name=renamed.get(member.value, name), number=member.value)
    if len(node.cls) < len(node.cls.__members__):
        enum.options.allow_alias = True
    return enum


def _message(schema: Schema, node: TypeNode) -> DescriptorProto:
    message = DescriptorProto(name=node.name)
    for field in _fields(node.cls):
        _add_field(schema, node, field, message)
    add_synthetic_oneofs(message)
    for child in node.children:
        described = _type(schema, child)
        if isinstance(described, DescriptorProto):
            message.nested_type.append(described)
        else:
            message.enum_type.append(described)
    return message


def _fields(cls: Any) -> list[Any]:
    return list(dataclasses.fields(cls)) if dataclasses.is_dataclass(cls) else []


def _meta(field: Any) -> Any:
    return field.metadata["betterproto"]


def _target(schema: Schema, cls: Any, field: Any) -> str:
    """The full name of the message or enum that a field (a map's value) holds; empty for a scalar."""
    meta = _meta(field)
    value = meta.map_meta[1] if meta.map_meta else meta
    if value.proto_type not in ("message", "enum"):
        return ""
    if value.unwrap:
        return schema.names[value.unwrap()]
    by_field = cls._betterproto.cls_by_field
    return schema.names[by_field[f"{field.name}.value" if meta.map_meta else field.name]]


def _add_field(schema: Schema, node: TypeNode, field: Any, message: DescriptorProto) -> None:
    meta = _meta(field)
    name = _PYTHON_SUFFIX.sub("", field.name)  # in_, from_: Python's keywords
    target = _target(schema, node.cls, field)
    if meta.map_meta:
        entry = _map_entry(name, meta.map_meta, target)
        message.nested_type.append(entry)
        added = _typed_field(name, meta.number, "message", f"{node.full_name}.{entry.name}")
    else:
        added = _typed_field(name, meta.number, meta.proto_type, target)
    if meta.map_meta or meta.repeated:
        added.label = FieldDescriptorProto.LABEL_REPEATED
    elif meta.group:
        added.oneof_index = oneof_index(message, meta.group)
    elif meta.optional and meta.proto_type != "message":
        added.proto3_optional = True
    message.field.append(added)


def _typed_field(name: str, number: int, proto_type: str, target: str) -> FieldDescriptorProto:
    field = FieldDescriptorProto(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    field.type = FieldDescriptorProto.Type.Value(f"TYPE_{proto_type.upper()}")
    if target:
        field.type_name = f".{target}"
    return field


def _map_entry(name: str, metas: tuple[Any, Any], target: str) -> DescriptorProto:
    camel = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    entry = DescriptorProto(name=f"{camel}Entry")
    entry.field.append(_typed_field("key", 1, metas[0].proto_type, ""))
    entry.field.append(_typed_field("value", 2, metas[1].proto_type, target))
    entry.options.map_entry = True
    return entry


def oneof_index(message: DescriptorProto, group: str) -> int:
    """The index of a oneof in a message; a new one is added."""
    names = [oneof.name for oneof in message.oneof_decl]
    if group not in names:
        message.oneof_decl.add(name=group)
        names.append(group)
    return names.index(group)


def add_synthetic_oneofs(message: DescriptorProto) -> None:
    """Add a oneof for each proto3 ``optional`` field, after the real oneofs."""
    for field in message.field:
        if field.proto3_optional:
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
