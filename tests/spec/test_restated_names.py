"""A request whose names are looked up by their bytes says the same as one that is read whole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xds.model.errors import RemoteProtocolError
from xds.model.names import canonical_names
from xds.proto import wire_pb2
from xds.protocol.decode import CUT_FROM_BYTES, KEPT_BYTES, RequestDecoder, cut_names
from xds.protocol.requests import ErrorDetail, Request

TYPE_URL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
# Names and texts that look like the field behind the names.
TRAPS = [TYPE_URL, '"\x45' + TYPE_URL, '"', "*", "xdstp://a/t/n?b=1&a=2", "ü", ""]
TEXTS = st.one_of(st.sampled_from(TRAPS), st.text(max_size=8))
DECODER = RequestDecoder()
FILLER = [f"cluster-{index}" for index in range(500)]


def whole(data: bytes) -> Request:
    """The request as protobuf alone reads it."""
    message = wire_pb2.DiscoveryRequest.FromString(data)
    error = ErrorDetail(message.error_detail.code, message.error_detail.message)
    return Request(
        type_url=message.type_url,
        names=canonical_names(message.resource_names),
        version_info=message.version_info,
        nonce=message.response_nonce,
        error=error if message.HasField("error_detail") else None,
        node=message.node,
    )


@given(
    names=st.lists(TEXTS, max_size=6),
    type_url=st.sampled_from([TYPE_URL, ""]),
    version=TEXTS,
    nonce=TEXTS,
    node=st.binary(max_size=200),
    refusal=st.one_of(st.none(), TEXTS),
)
def test_restated_names_are_those_of_the_request(
    names: list[str], type_url: str, version: str, nonce: str, node: bytes, refusal: str | None
) -> None:
    message = wire_pb2.DiscoveryRequest(
        type_url=type_url, version_info=version, response_nonce=nonce, node=node, resource_names=[*FILLER, *names]
    )
    if refusal is not None:
        message.error_detail.message = refusal
    data = message.SerializeToString()
    assert len(data) > CUT_FROM_BYTES
    for _ in range(2):  # read, then known
        assert DECODER.decode_sotw(data) == whole(data)


@pytest.mark.parametrize("repeated", ["n" * 400, *(pytest.param(each, marks=pytest.mark.soak) for each in TRAPS)])
def test_a_request_that_is_too_long_to_be_kept_is_read_whole(repeated: str) -> None:
    names = [f"{repeated}{index}" for index in range(3 * KEPT_BYTES // (len(repeated.encode()) + 3))]
    sotw = wire_pb2.DiscoveryRequest(
        type_url=TYPE_URL, version_info="1", response_nonce="1", node=b"node", resource_names=names
    ).SerializeToString()
    assert len(sotw) > KEPT_BYTES
    assert DECODER.decode_sotw(sotw) == whole(sotw)
    delta = wire_pb2.DeltaDiscoveryRequest(
        type_url=TYPE_URL, response_nonce="1", node=b"node", resource_names_subscribe=names
    ).SerializeToString()
    assert DECODER.decode_delta(delta) == Request(TYPE_URL, names=canonical_names(names), nonce="1", node=b"node")


@given(cut=st.integers(0, 6000), junk=st.binary(max_size=6))
def test_damaged_requests_are_judged_as_a_whole(cut: int, junk: bytes) -> None:
    data = wire_pb2.DiscoveryRequest(type_url=TYPE_URL, response_nonce="1", resource_names=FILLER).SerializeToString()
    damaged = data[:cut] + junk + data[cut + len(junk) :]
    try:
        expected = whole(damaged)
    except Exception:
        with pytest.raises(RemoteProtocolError):
            DECODER.decode_sotw(damaged)
    else:
        assert DECODER.decode_sotw(damaged) == expected


def test_equal_names_are_one_object_for_all_streams() -> None:
    first, second = (
        wire_pb2.DiscoveryRequest(type_url=TYPE_URL, response_nonce=nonce, resource_names=FILLER).SerializeToString()
        for nonce in ("1", "2")
    )
    assert cut_names(first) is not None
    assert DECODER.decode_sotw(first).names is DECODER.decode_sotw(second).names


@pytest.mark.parametrize("message", [wire_pb2.DiscoveryRequest, wire_pb2.DeltaDiscoveryRequest])
def test_first_requests_of_a_fleet_are_kept_once(message: type[wire_pb2.DiscoveryRequest]) -> None:
    """A node of its own is no part of what is kept, however short it is."""
    decoder = RequestDecoder()
    decode = decoder.decode_sotw if message is wire_pb2.DiscoveryRequest else decoder.decode_delta
    for number in range(5):
        node = wire_pb2.Node(id=f"node-{number}").SerializeToString()
        found = decode(message(node=node, type_url=TYPE_URL).SerializeToString())
        assert (bytes(found.node), found.type_url) == (node, TYPE_URL)
    assert len(decoder._sotw) + len(decoder._delta) == 1
