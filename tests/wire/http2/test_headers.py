"""Header blocks: what any decoder reads of ours, and what we read of any encoder's."""

from __future__ import annotations

from functools import lru_cache
from urllib.parse import unquote

import h2.events
import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.http2.talk import REQUEST, Talk, greeted, opened, settings, written
from xds.wire.http2 import frames as f
from xds.wire.http2.connection import ServerConnection
from xds.wire.http2.headers import (
    EMPTY_TABLE,
    RESPONSE_HEAD,
    decode,
    encode,
    keep_table,
    read_request,
    read_timeout,
    trailers,
)
from xds.wire.http2.stream import RequestReceived


def decoded(block: bytes) -> list[tuple[str, str]]:
    decoder = hpack.Decoder(max_header_list_size=1 << 20)
    return [(str(name), str(value)) for name, value in decoder.decode(block)]


names = st.text("abcdefghijklmnopqrstuvwxyz0123456789-_.", min_size=1, max_size=40)
values = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=300)


@given(st.lists(st.tuples(names, values), max_size=20))
def test_blocks_are_read_by_any_decoder(fields: list[tuple[str, str]]) -> None:
    assert decoded(encode(fields)) == fields


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 254, 255, 256, 16_383, 16_511, 16_512, 100_000])
def test_values_of_any_length(size: int) -> None:
    assert decoded(encode([("k", "v" * size)])) == [("k", "v" * size)]


@given(st.text(max_size=200))
def test_messages_are_percent_encoded(text: str) -> None:
    found = dict(decoded(trailers(3, text, only=False)))
    assert found["grpc-status"] == "3"
    told = found.get("grpc-message", "")
    assert all(0x20 <= ord(character) < 0x7F for character in told)
    assert unquote(told) == text.encode(errors="replace").decode()


def test_fields_that_a_message_keeps_and_encodes() -> None:
    assert dict(decoded(trailers(0, "plain: 'text', 100%\n\u00e4", only=False)))["grpc-message"] == (
        "plain: 'text', 100%25%0A%C3%A4"
    )
    assert "grpc-message" not in dict(decoded(trailers(0, "", only=False)))


def test_trailers_only_begin_with_the_head() -> None:
    assert trailers(5, "", only=True).startswith(RESPONSE_HEAD)
    found = decoded(trailers(5, "gone", (("x-a", "1"),), only=True))
    assert found[:2] == [(":status", "200"), ("content-type", "application/grpc")]
    assert found[-3:] == [("grpc-status", "5"), ("grpc-message", "gone"), ("x-a", "1")]


def test_the_head_of_a_request() -> None:
    fields = [
        *REQUEST,
        ("te", "trailers"),
        ("grpc-timeout", "250m"),
        ("grpc-encoding", "gzip"),
        ("grpc-accept-encoding", "gzip"),
        ("user-agent", "grpc-x/1"),
        ("authorization", "Bearer t"),
        ("x-twice", "1"),
        ("x-twice", "2"),
    ]
    head = read_request(fields)
    assert (head.method, head.path, head.content_type) == ("POST", "/s/M", "application/grpc")
    assert (head.timeout_s, head.encoding) == (0.25, "gzip")
    assert head.metadata == (
        ("user-agent", "grpc-x/1"),
        ("authorization", "Bearer t"),
        ("x-twice", "1"),
        ("x-twice", "2"),
    )


def test_the_head_of_a_plain_request() -> None:
    head = read_request(REQUEST)
    assert (head.timeout_s, head.encoding, head.metadata) == (None, "identity", ())


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1H", 3600),
     ("2M", 120), ("3S", 3), ("4m", 0.004), ("5u", 5e-6), ("6n", 6e-9), ("0n", 0), ("99999999H", 99999999 * 3600)],
)  # fmt: skip
def test_timeouts(text: str, seconds: float) -> None:
    assert read_timeout(text) == pytest.approx(seconds)


@given(st.lists(st.lists(st.tuples(names, values), max_size=5), min_size=1, max_size=5))
def test_tables_of_the_client_are_followed(requests: list[list[tuple[str, str]]]) -> None:
    """Its encoder refers to what it sent before, and changes the size of its table."""
    # Fields with a rule of their own: a value that breaks it is refused.
    own = {"te", "connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"}
    own |= {"grpc-timeout", "content-length"}
    encoder = hpack.Encoder()
    server = greeted()
    for index, more in enumerate(requests):
        metadata = [field for field in more if field[0] not in own]
        encoder.header_table_size = 4_096 >> (index % 3)
        block = encoder.encode([*REQUEST, *metadata])
        (event,) = server.receive(f.frame(f.HEADERS, f.END_HEADERS, 2 * index + 1, block))
        assert isinstance(event, RequestReceived)
        assert [field for field in event.head.metadata if field[0] != "user-agent"] == [
            field
            for field in metadata
            if field[0] not in {"content-type", "grpc-encoding", "grpc-accept-encoding", "user-agent"}
        ]


def test_a_value_that_is_no_utf8_is_a_value() -> None:
    server = greeted()
    block = encode(REQUEST) + b"\x00\x03x-a\x02\xff\xe4"
    (event,) = server.receive(f.frame(f.HEADERS, f.END_HEADERS, 1, block))
    assert isinstance(event, RequestReceived)
    assert event.head.metadata == (("x-a", "\xff\xe4"),)


@pytest.mark.parametrize("size", [0, 100])
def test_a_client_with_a_smaller_table_gets_a_table_size_update(size: int) -> None:
    """RFC 7541 4.2: strict decoders fail on a header block that does not begin with it. h2 is one."""
    talk = Talk(HEADER_TABLE_SIZE=size)
    stream, other = talk.open(1), talk.open(3)
    for each in (stream, other):
        talk.server.send_message(each, b"x")
        talk.server.end(each, 0)
    talk.client.update_settings({f.HEADER_TABLE_SIZE: 50})
    talk.exchange()
    talk.server.end(talk.open(5), 0)
    talk.exchange()
    assert len(talk.received(h2.events.StreamEnded)) == 3


def test_a_long_block_is_sent_in_several_frames() -> None:
    talk = Talk()
    stream = talk.open()
    metadata = tuple((f"x-{index}", "v" * 3_000) for index in range(15))
    talk.client.decoder.max_header_list_size = 1 << 20
    talk.server.send_head(stream, metadata)
    talk.server.end(stream, 0, "m" * 40_000)
    talk.exchange()
    (head,), (tail,) = talk.received(h2.events.ResponseReceived), talk.received(h2.events.TrailersReceived)
    assert tuple(head.headers)[-15:] == metadata
    assert dict(tail.headers)["grpc-message"] == "m" * 40_000


def test_settings_that_mean_nothing_to_us_are_ignored() -> None:
    server = greeted()
    server.receive(settings((f.HEADER_TABLE_SIZE, 2**20), (f.MAX_CONCURRENT_STREAMS, 0), (0x8, 1), (0xFFFF, 7)))
    assert [(frame.kind, frame.flags) for frame in written(server)] == [(f.SETTINGS, f.ACK)]
    (stream,) = opened(server, 1)
    server.send_head(stream)
    assert written(server) == [(f.HEADERS, f.END_HEADERS, 1, RESPONSE_HEAD)]


blocks = st.lists(
    st.tuples(st.lists(st.tuples(names, values), max_size=8), st.none() | st.integers(0, 4_096)), min_size=1, max_size=6
)


@given(blocks)
def test_a_table_between_blocks_is_as_good_as_one_decoder(
    conversation: list[tuple[list[tuple[str, str]], int | None]],
) -> None:
    encoder, table = hpack.Encoder(), EMPTY_TABLE
    for fields, size in conversation:
        if size is not None:
            encoder.header_table_size = size
        found, table = decode(table, encoder.encode([*fields, *fields]))
        assert found == [*fields, *fields]
        assert sum(32 + len(name) + len(value) for name, value in table.entries) <= table.size


def test_connections_of_a_fleet_share_their_header_table() -> None:
    share = lru_cache(keep_table)
    for token in ("a", "a", "b", "a"):
        head = hpack.Encoder().encode([*REQUEST, ("authorization", f"Bearer {token}")])
        ServerConnection(share_table=share).receive(f.PREFACE + settings() + f.frame(f.HEADERS, f.END_HEADERS, 1, head))
    assert share.cache_info()[:2] == (2, 2)
