"""Authentication of calls: tokens and scopes; options of TLS; streams that an operator ends."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path

import grpc
import pytest

from tests.server.conftest import Harness, Start
from xds.access.tokens import Grant, Tokens
from xds.server.auth import _delay_s
from xds.server.options import ServerOptions
from xds.server.tls import pem_files


async def test_a_token_for_other_things_opens_no_stream(start: Start) -> None:
    reader, proxy = Grant("reader", frozenset({"read"})), Grant("proxy", frozenset({"xds"}))
    tokens = Tokens([(sha256(b"r").hexdigest(), reader), (sha256(b"p").hexdigest(), proxy)])
    server = await start(tokens=tokens)
    server.push({"c1": "a"})
    refused = await server.stream(authorization="Bearer r")
    assert await refused.ended() == (grpc.StatusCode.PERMISSION_DENIED, "the token lacks the scope xds")
    stream = await server.stream(authorization="Bearer p")
    await stream.request()
    assert (await stream.receive()).version_info == "1"


def test_tls_settings_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="both"):
        pem_files(ServerOptions(tls_certificate=tmp_path))
    with pytest.raises(ValueError, match="need TLS"):
        pem_files(ServerOptions(client_ca=tmp_path))


def test_the_ends_of_streams_whose_certificates_expire_at_once_are_spread_over_the_minute() -> None:
    peers = [f"ipv4:10.0.{number >> 8}.{number & 255}:4711" for number in range(3_000)]
    delays_s = [_delay_s(peer, 60.0) for peer in peers]
    assert delays_s == [_delay_s(peer, 60.0) for peer in peers], "the same for all streams of a connection"
    assert all(0 <= delay_s < 60 for delay_s in delays_s)
    in_each = Counter(int(delay_s // 6) for delay_s in delays_s)
    assert all(200 < in_each[number] < 400 for number in range(10))
    assert ServerOptions().expiry_spread_s == 60.0


async def test_a_node_can_be_disconnected(server: Harness) -> None:
    stream, other = await server.stream(), await server.stream()
    await stream.request(node_id="n1")
    await other.request(node_id="n2")
    await stream.receive()
    await other.receive()
    assert server.server.disconnect("n3") == 0
    assert server.server.disconnect("n1") == 1
    assert await stream.ended() == (grpc.StatusCode.OK, "")
    assert server.fleet.connected() == {"n2"}
