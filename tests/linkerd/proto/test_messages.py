"""The messages of both generations of the Linkerd API have the bytes that Linkerd's own definitions give."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv6Address

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from xds.linkerd.proto import conduit_common_pb2 as common
from xds.linkerd.proto import conduit_destination_pb2 as conduit
from xds.linkerd.proto import destination_pb2 as today
from xds.linkerd.proto import net_pb2 as net

HOST = "web.default.svc.cluster.local"
ADDRESS = 0x0A010203  # 10.1.2.3: a big-endian number in a little-endian field
V6 = int(IPv6Address("2001:db8::1"))


def _place(port: int = 8080) -> net.TcpAddress:
    return net.TcpAddress(ip=net.IPAddress(ipv4=ADDRESS), port=port)


def _name(text: str) -> today.TlsIdentity.DnsLikeIdentity:
    return today.TlsIdentity.DnsLikeIdentity(name=text)


_DUAL = net.IPv6(first=V6 >> 64, last=V6 & (2**64 - 1))
_LABELLED = today.WeightedAddrSet(
    addrs=[today.WeightedAddr(addr=_place(), weight=10000)], metric_labels={"service": "web"}
)
_MESHED = today.WeightedAddr(
    addr=_place(),
    weight=10000,
    protocol_hint=today.ProtocolHint(h2=today.ProtocolHint.H2()),
    tls_identity=today.TlsIdentity(dns_like_identity=_name("a.b"), server_name=_name("a.b")),
)
_OPAQUE = today.WeightedAddr(
    addr=_place(3306),
    weight=10000,
    protocol_hint=today.ProtocolHint(
        opaque=today.ProtocolHint.Opaque(), opaque_transport=today.ProtocolHint.OpaqueTransport(inbound_port=4143)
    ),
)
_REQUEST = today.GetDestination(path=f"{HOST}:80", context_token='{"ns":"default","nodeName":"n1"}')
_PROFILE = today.DestinationProfile(
    fully_qualified_name=HOST,
    retry_budget=today.RetryBudget(retry_ratio=0.2, min_retries_per_second=10, ttl=Duration(seconds=10)),
)
_OF_2018 = conduit.WeightedAddr(addr=common.TcpAddress(ip=common.IPAddress(ipv4=ADDRESS), port=8080), weight=1)
_SET_OF_2018 = conduit.WeightedAddrSet(addrs=[_OF_2018], metric_labels={"k8s_service": "web:80"})

GOLDEN: list[tuple[Message, str]] = [
    (_place(), "0a050d0302010a10903f"),
    (
        net.TcpAddress(ip=net.IPAddress(ipv6=_DUAL), port=80),
        "0a1412120900000000b80d01201101000000000000001050",
    ),
    (today.Update(add=today.WeightedAddrSet()), "0a00"),
    (today.Update(no_endpoints=today.NoEndpoints(exists=True)), "1a020801"),
    (today.Update(no_endpoints=today.NoEndpoints(exists=False)), "1a00"),
    (today.Update(add=_LABELLED), "0a210a0f0a0a0a050d0302010a10903f18904e120e0a07736572766963651203776562"),
    (today.Update(remove=today.AddrSet(addrs=[_place()])), "120c0a0a0a050d0302010a10903f"),
    (_MESHED, "0a0a0a050d0302010a10903f18904e2a0e0a050a03612e6222050a03612e6232020a00"),
    (_OPAQUE, "0a0a0a050d0302010a10ea1918904e3207120308af201a00"),
    (
        _REQUEST,
        "12207765622e64656661756c742e7376632e636c75737465722e6c6f63616c3a38301a207b226e73223a2264656661756c74222c226e6f"
        "64654e616d65223a226e31227d",
    ),
    (_PROFILE, "120b0dcdcc4c3e100a1a02080a2a1d7765622e64656661756c742e7376632e636c75737465722e6c6f63616c"),
    (
        common.Destination(scheme="k8s", path=f"{HOST}:80"),
        "0a036b387312207765622e64656661756c742e7376632e636c75737465722e6c6f63616c3a3830",
    ),
    (
        conduit.Update(add=_SET_OF_2018),
        "0a270a0e0a0a0a050d0302010a10903f180112150a0b6b38735f7365727669636512067765623a3830",
    ),
]


@pytest.mark.parametrize(("message", "expected"), GOLDEN, ids=[str(index) for index in range(len(GOLDEN))])
def test_golden_bytes_both_ways(message: Message, expected: str) -> None:
    assert message.SerializeToString(deterministic=True).hex() == expected
    assert type(message).FromString(bytes.fromhex(expected)) == message


def _fields(descriptor: Descriptor) -> Iterator[tuple[str, int, int, bool]]:
    for field in descriptor.fields:
        yield field.name, field.number, field.type, field.is_repeated


@pytest.mark.parametrize("name", ["Update", "AddrSet", "WeightedAddrSet", "WeightedAddr", "NoEndpoints"])
def test_messages_of_2018_are_a_part_of_those_of_today(name: str) -> None:
    old, new = (file.DESCRIPTOR.message_types_by_name[name] for file in (conduit, today))
    assert set(_fields(old)) <= set(_fields(new))
    if name != "WeightedAddr":
        assert set(_fields(old)) == set(_fields(new))


def test_services_have_the_names_that_clients_call() -> None:
    assert conduit.DESCRIPTOR.services_by_name["Destination"].full_name == "conduit.proxy.destination.Destination"
    service = today.DESCRIPTOR.services_by_name["Destination"]
    assert service.full_name == "io.linkerd.proxy.destination.Destination"
    assert [method.name for method in service.methods] == ["Get", "GetProfile"]
