"""Our messages of the Linkerd API are Linkerd's own, field by field; we leave fields and messages out, and add none."""

from __future__ import annotations

import json

import pytest
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.linkerd.proto.linkerd_api import RECORDED, Described, describe
from xds.linkerd.proto import (
    destination_pb2,
    http_route_pb2,
    http_types_pb2,
    identity_pb2,
    inbound_pb2,
    meta_pb2,
    net_pb2,
    outbound_pb2,
)

MODULES = (
    destination_pb2,
    http_route_pb2,
    http_types_pb2,
    identity_pb2,
    inbound_pb2,
    meta_pb2,
    net_pb2,
    outbound_pb2,
)
# Of these we have every field: nothing that a proxy may send or read is missing.
WHOLE = (
    "destination.Update", "destination.WeightedAddr", "destination.DestinationProfile", "destination.Route",
    "destination.TlsIdentity", "destination.ProtocolHint", "destination.GetDestination", "outbound.TrafficSpec",
    "inbound.PortSpec", "http_route.HttpRouteMatch", "http_route.HeaderMatch", "http_route.QueryParamMatch",
)  # fmt: skip


def _described(file: FileDescriptor) -> Described:
    found = FileDescriptorProto()
    file.CopyToProto(found)
    return describe([found])


@pytest.fixture(scope="module")
def theirs() -> Described:
    found: Described = json.loads(RECORDED.read_text())
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])
def test_our_messages_are_linkerds(module: object, theirs: Described) -> None:
    ours = _described(module.DESCRIPTOR)  # type: ignore[attr-defined]
    assert ours
    wrong = {
        f"{name}.{member}": (text, theirs.get(name, {}).get(member))
        for name, members in ours.items()
        for member, text in members.items()
        if theirs.get(name, {}).get(member) != text
    }
    assert not wrong
    assert set(ours) <= set(theirs)


def test_messages_of_which_nothing_may_be_missing_are_whole(theirs: Described) -> None:
    ours = {name: members for module in MODULES for name, members in _described(module.DESCRIPTOR).items()}
    for short in WHOLE:
        name = f"io.linkerd.proxy.{short}"
        assert ours[name] == theirs[name]
