"""Streams under rules that change, certificates and tokens."""

from __future__ import annotations

from hashlib import sha256

import grpc
import pytest

from tests.server.conftest import DELTA, SOTW, Harness, RawStream, Start, shown, tls, within
from tests.support.pki import CertificateAuthority
from xds.access.authorisation import Access, ClaimPattern, NodeAuthMode, NodeRule, NodeRules, PrincipalPattern
from xds.access.tokens import Grant, Tokens
from xds.fleet.event_log import EventFilter, EventKind
from xds.model.errors import RemoteProtocolError
from xds.model.node import Node
from xds.model.resource_type import CLUSTER
from xds.proto import wire_pb2
from xds.server.refusals import REPORTED_BURST

LRS = "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats"
DENIED, UNAUTHENTICATED = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED


def tokens(**scopes: str) -> Tokens:
    return Tokens(
        (sha256(name.encode()).hexdigest(), Grant(name, frozenset({scope}))) for name, scope in scopes.items()
    )


def rules(principal: str, node_id: str, mode: NodeAuthMode = NodeAuthMode.ENFORCE) -> NodeRules:
    return NodeRules(mode, (NodeRule(PrincipalPattern(principal), ClaimPattern(node_id)),))


# -- certificates ------------------------------------------------------------------------------------------------------


async def test_a_certificate_is_a_credential_beside_tokens(start: Start, authority: CertificateAuthority) -> None:
    """Certificates authenticate: where tokens are set up as well, one of them is enough. A wrong token is refused."""
    server = await tls(start, authority, tokens=tokens(reader="read", proxy="xds"))
    channel = await server.channel(shown(authority, authority.issue("edge-1")))
    for authorization, code in (
        ("", None),
        ("Bearer proxy", None),
        ("Bearer reader", DENIED),
        ("Bearer x", UNAUTHENTICATED),
    ):
        stream = RawStream(channel, SOTW, [("authorization", authorization)] if authorization else [])
        if code is not None:
            assert (await stream.ended())[0] is code
            continue
        await stream.request()
        assert (await stream.receive()).version_info == "1"


async def test_a_client_without_a_certificate_needs_a_token(start: Start, authority: CertificateAuthority) -> None:
    server = await tls(start, authority, client_cert_optional=True, tokens=tokens(proxy="xds"))
    channel = await server.channel(grpc.ssl_channel_credentials(authority.pem.encode()))
    code, message = await RawStream(channel).ended()
    assert (code, message) == (UNAUTHENTICATED, "a client certificate or a valid bearer token is required")
    stream = RawStream(channel, SOTW, [("authorization", "Bearer proxy")])
    await stream.request()
    assert (await stream.receive()).version_info == "1"
    other = CertificateAuthority(authority.path.parent, "other-ca")
    foreign = await server.channel(shown(authority, other.issue("foreign")))
    assert (await RawStream(foreign).ended())[0] is grpc.StatusCode.UNAVAILABLE


# -- rules that change -------------------------------------------------------------------------------------------------


async def opened(server: Harness, token: str, method: str = SOTW, node_id: str = "n1") -> RawStream:
    stream = await server.stream(method, authorization=f"Bearer {token}")
    if method == LRS:
        named = wire_pb2.Node(id=node_id).SerializeToString()
        await stream.send(wire_pb2.LoadStatsRequest(node=named).SerializeToString())
        await within(stream.call.read())
    else:
        await stream.request(node_id=node_id)
        await stream.receive()
    return stream


@pytest.mark.parametrize("method", [SOTW, DELTA, LRS])
async def test_a_token_that_is_taken_back_ends_its_streams(start: Start, method: str) -> None:
    access = Access(tokens(old="xds", kept="xds", changed="xds"))
    server = await start(access=access)
    server.push({"c1": "a"})
    old, kept, changed = [await opened(server, token, method) for token in ("old", "kept", "changed")]
    access.assign(Access(tokens(kept="xds", changed="read")))
    assert await server.server.reauthorize() == 2
    assert (await old.ended())[0] is UNAUTHENTICATED
    assert (await changed.ended())[0] is DENIED
    assert not kept.call.done()


@pytest.mark.parametrize("method", [SOTW, LRS])
async def test_rules_that_come_into_force_end_streams(start: Start, method: str) -> None:
    access = Access(tokens(a="xds"))
    server = await start(access=access)
    server.push({"c1": "a"})
    mine, other = await opened(server, "a", method, "n1"), await opened(server, "a", method, "n2")
    access.assign(Access(tokens(a="xds"), nodes=rules("token:a", "n1", NodeAuthMode.AUDIT)))
    assert await server.server.reauthorize() == 0
    assert server.metrics.node_audits == 1
    access.assign(Access(tokens(a="xds"), nodes=rules("token:a", "n1")))
    assert await server.server.reauthorize() == 1
    assert (await other.ended())[0] is DENIED
    assert not mine.call.done()


async def test_scopes_of_tokens_narrow_whatever_the_mode(start: Start) -> None:
    server = await start(tokens=tokens(node="xds:node/edge-*", group="xds:group/edge"))
    server.push({"c1": "a"}, "edge")
    server.push({"c1": "b"})
    for token, node_id, cluster, fits in (
        ("node", "edge-1", "", True),
        ("node", "core-1", "", False),
        ("group", "any", "edge", True),
        ("group", "any", "", False),  # of default
    ):
        named = wire_pb2.Node(id=node_id, cluster=cluster).SerializeToString()
        for method, kind in ((SOTW, wire_pb2.DiscoveryRequest), (DELTA, wire_pb2.DeltaDiscoveryRequest)):
            stream = await server.stream(method, authorization=f"Bearer {token}")
            await stream.send(kind(type_url=CLUSTER, node=named).SerializeToString())
            if fits:
                assert (await stream.receive()).resources
            else:
                assert (await stream.ended())[0] is DENIED


# -- what is told ------------------------------------------------------------------------------------------------------


async def test_a_flood_of_refusals_is_counted_and_logged_within_bounds(start: Start) -> None:
    server = await start(access=Access(nodes=rules("token:a", "n1")))
    identity = server.server.access.admit("")
    assert identity is not None
    for number in range(1000):
        with pytest.raises(RemoteProtocolError, match="may not be node"):
            server.server.node_auth.check(identity, Node(f"n{number}"), "", "ADS", "peer")
    assert server.metrics.refused["node"] == 1000
    told = server.fleet.events.after(0, EventFilter(frozenset({EventKind.AUTH})), 2000).events
    assert 0 < len(told) <= REPORTED_BURST + 10
    assert (told[0].action, told[0].node, told[0].details["service"]) == ("refused", "n0", "ADS")
