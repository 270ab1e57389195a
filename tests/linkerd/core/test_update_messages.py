"""The bytes of updates: those of the protobuf messages, in parts that clients take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from xds.linkerd.core.authority import ProtocolGeneration
from xds.linkerd.core.endpoint import (
    DestinationEndpoint,
    DestinationState,
    Hint,
    Http2Params,
    MeshRole,
    ZoneLocality,
    ordered,
    parse_address,
)
from xds.linkerd.core.update_messages import (
    Add,
    NoEndpoints,
    Remove,
    SharedMessages,
    encoded_endpoint,
    heartbeat,
    updates,
)
from xds.linkerd.proto import conduit_destination_pb2 as conduit
from xds.linkerd.proto import destination_pb2 as today
from xds.linkerd.proto import net_pb2

TEXTS = st.text(max_size=8)
LABELS = st.dictionaries(st.sampled_from(["pod", "node", "a", "zz"]), TEXTS, max_size=3)
ROLES = st.builds(
    MeshRole,
    st.sampled_from(["", "a.b", "spiffe://x"]),
    st.sampled_from(["", "n.b"]),
    st.sampled_from(list(Hint)),
    st.integers(0, 65_534),
    st.sampled_from(["", "h:80"]),
    st.none()
    | st.builds(
        Http2Params,
        *(st.integers(0, 9), st.integers(0, 9), st.booleans(), st.sampled_from([0, 1.5]), st.just(2), st.booleans()),
        *(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    ),
)
ENDPOINTS = st.builds(
    DestinationEndpoint,
    (st.ip_addresses(v=4) | st.ip_addresses(v=6)).map(str),
    st.integers(1, 65_535),
    st.integers(1, 2**32 - 1),
    st.integers(1, 2**32 - 1),
    LABELS.map(lambda found: tuple(sorted(found.items()))),
    ROLES,
    st.sampled_from(["", "z1"]),
)


@given(ENDPOINTS, st.sampled_from(list(ZoneLocality)))
def test_an_endpoint_is_its_message(one: DestinationEndpoint, zone_locality: ZoneLocality) -> None:
    body = encoded_endpoint(one, zone_locality, ProtocolGeneration.LINKERD)
    message = today.WeightedAddrSet.FromString(body)
    assert message.ByteSize() == len(body), "nothing is written twice, and no default"
    (found,) = message.addrs
    assert (found.addr, found.weight) == (_tcp_address(one), one.weight)
    zone = {"zone": one.zone} if one.zone else {}
    assert dict(found.metric_labels) == {**dict(one.labels), **zone, "zone_locality": zone_locality.value}
    assert found.authority_override.authority_override == one.mesh.authority_override
    identity = found.tls_identity
    assert one.mesh.identity in (identity.dns_like_identity.name, identity.uri_like_identity.uri)


@given(ENDPOINTS)
def test_an_endpoint_of_2018_is_a_part_of_it(one: DestinationEndpoint) -> None:
    body = encoded_endpoint(one, ZoneLocality.LOCAL, ProtocolGeneration.CONDUIT)
    (found,) = conduit.WeightedAddrSet.FromString(body).addrs
    assert conduit.WeightedAddrSet(addrs=[found]).SerializeToString(deterministic=True) == body
    (of_today,) = today.WeightedAddrSet.FromString(body).addrs
    assert of_today.addr == _tcp_address(one) and of_today.weight == one.share
    assert set(found.metric_labels) <= {"k8s_pod"}


def _tcp_address(one: DestinationEndpoint) -> net_pb2.TcpAddress:
    address = parse_address(one.address)
    if address.version == 4:
        return net_pb2.TcpAddress(ip=net_pb2.IPAddress(ipv4=int(address)), port=one.port)
    v6 = net_pb2.IPv6(first=int(address) >> 64, last=int(address) & (2**64 - 1))
    return net_pb2.TcpAddress(ip=net_pb2.IPAddress(ipv6=v6), port=one.port)


CACHE_BYTES = 4 << 20


def _many(number: int) -> tuple[DestinationEndpoint, ...]:
    label = (("pod", "p" * 150),)
    return ordered(
        DestinationEndpoint(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", 80, labels=label) for n in range(number)
    )


def test_messages_that_are_kept_for_other_streams_are_bounded() -> None:
    """A client may ask for one service by each of 65,535 ports: each answer has the size of the service."""
    shared, endpoints = SharedMessages(CACHE_BYTES), _many(2_000)
    states = [DestinationState(True, endpoints) for _ in range(300)]
    for state in states:
        shared.between(None, state, ProtocolGeneration.LINKERD)
    assert shared.cached_bytes <= CACHE_BYTES
    last = shared.between(None, states[-1], ProtocolGeneration.LINKERD)
    assert shared.between(None, states[-1], ProtocolGeneration.LINKERD) is last
    assert shared.between(None, states[0], ProtocolGeneration.LINKERD) == last
    huge = DestinationState(True, _many(30_000))
    assert shared.between(None, huge, ProtocolGeneration.LINKERD) is shared.between(
        None, huge, ProtocolGeneration.LINKERD
    )


def test_a_heartbeat_says_nothing_new() -> None:
    assert heartbeat(is_empty=False, exists=True).hex() == "0a00"
    assert heartbeat(is_empty=True, exists=True).hex() == "1a020801"
    assert heartbeat(is_empty=True, exists=False).hex() == "1a00"


A, B, C = (DestinationEndpoint(f"10.0.0.{n}", 80) for n in (1, 2, 3))
NONE, EMPTY = DestinationState(False), DestinationState(True)


def _state(*endpoints: DestinationEndpoint, zone: str = "") -> DestinationState:
    return DestinationState(True, ordered(endpoints), (), zone)


def test_the_messages_of_each_change() -> None:
    assert updates(None, NONE) == [NoEndpoints(False)]
    assert updates(None, EMPTY) == [NoEndpoints(True)]
    assert updates(NONE, EMPTY) == [NoEndpoints(True)]
    assert updates(EMPTY, DestinationState(True)) == []
    assert updates(NONE, _state(A)) == [Add((A,), (), "")]
    assert updates(_state(A), EMPTY) == [NoEndpoints(True)]
    assert updates(_state(A), NONE) == [NoEndpoints(False)]
    assert updates(_state(A, B), _state(B, C)) == [Add((C,), (), ""), Remove((A.numeric_address,))]
    assert updates(_state(A, B), _state(A, B)) == []


def test_a_client_that_moves_gets_the_endpoints_near_it() -> None:
    near, far = DestinationEndpoint("10.0.0.1", 80, zone="z1"), DestinationEndpoint("10.0.0.2", 80)
    assert updates(_state(near, far, zone="z2"), _state(near, far, zone="z1")) == [Add((near,), (), "z1")]


def test_changed_labels_of_all_endpoints_are_sent_with_all_endpoints() -> None:
    now = DestinationState(True, (A, B), (("service", "web"),))
    assert updates(_state(A, B), now) == [Add((A, B), (("service", "web"),), "")]
