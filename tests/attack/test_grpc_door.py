"""HTTP/2 and gRPC attacks on the gRPC port: what costs the server is cut off, and the good client notices nothing."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Callable
from contextlib import ExitStack
from itertools import repeat

import grpc
import hpack
import pytest

from tests.attack.attacks import BATCH, FLOODS, LRS, MIB, WHOLE, batches, large_node, opening
from tests.attack.conftest import Beside, resident
from tests.attack.raw_http import is_closed
from tests.attack.raw_http2 import HELLO, RawHttp2, head
from tests.support.grpc_stream import DELTA, SOTW, GrpcStream, sotw
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import ServerProcess
from tests.wire.http2.talk import message
from xds.model.node import NODE_BYTES
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.proto import wire_pb2
from xds.wire.http2 import frames as f
from xds.wire.http2.frames import ErrorCode

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("frame", FLOODS.values(), ids=FLOODS)
def test_frames_without_end_are_cut(victim: ServerProcess, beside: Beside, frame: Callable[[int], bytes]) -> None:
    before = resident(victim)
    with beside(victim) as bystander, RawHttp2(victim.grpc_port) as attacker:
        attacker.flood(batches(frame))
        bystander.served()
        wait_until(lambda: attacker.is_over, "the connection ends")
    assert resident(victim) - before < 40 * MIB


def test_empty_data_is_cut(victim: ServerProcess, beside: Beside) -> None:
    with beside(victim), RawHttp2(victim.grpc_port) as attacker:
        attacker.send(opening(1))
        attacker.flood(repeat(f.frame(f.DATA, 0, 1) * BATCH, 200))
        wait_until(lambda: attacker.is_over, "the connection ends")


class TestHeaders:
    def test_continuation_without_end(self, victim: ServerProcess, beside: Beside) -> None:
        with beside(victim), RawHttp2(victim.grpc_port) as attacker:
            attacker.send(f.frame(f.HEADERS, 0, 1, head()))
            attacker.flood(repeat(f.frame(f.CONTINUATION, 0, 1, b"") * BATCH, 10))
            assert attacker.goaway() is ErrorCode.ENHANCE_YOUR_CALM

    def test_a_few_bytes_that_stand_for_megabytes(self, victim: ServerProcess, beside: Beside) -> None:
        before = resident(victim)
        bomb = hpack.Encoder().encode([("x", "v" * 3_900)]) + b"\xbe" * 10_000
        blocks = [bomb[at : at + 16_000] for at in range(0, len(bomb), 16_000)]
        with beside(victim), RawHttp2(victim.grpc_port) as attacker:
            for number in range(100):
                first = f.frame(f.HEADERS, WHOLE if len(blocks) == 1 else 0, 2 * number + 1, blocks[0])
                if not attacker.send(first):
                    break
            assert attacker.goaway() is ErrorCode.ENHANCE_YOUR_CALM
        assert resident(victim) - before < 20 * MIB

    def test_a_frame_that_is_too_large(self, victim: ServerProcess) -> None:
        with RawHttp2(victim.grpc_port) as attacker:
            attacker.send(f.frame(f.HEADERS, WHOLE, 1, bytes(20_000)))
            assert attacker.goaway() is ErrorCode.FRAME_SIZE_ERROR

    def test_the_last_stream_id_and_a_head_of_15_kb_are_answered(self, victim: ServerProcess) -> None:
        health = "/grpc.health.v1.Health/Check"
        with RawHttp2(victim.grpc_port) as attacker:
            large = head(health, ("x-large", "v" * 10_000), ("x-larger", "w" * 4_000))
            assert 14_000 < len(large) < f.DEFAULT_MAX_FRAME
            call = f.frame(f.DATA, f.END_STREAM, 1, message(b""))
            attacker.send(f.frame(f.HEADERS, WHOLE, 1, large) + call)
            last = (1 << 31) - 1
            attacker.send(
                f.frame(f.HEADERS, WHOLE, last, head(health)) + f.frame(f.DATA, f.END_STREAM, last, message(b""))
            )
            wait_until(
                lambda: {1, last} <= {each.stream_id for each in attacker.frames() if each.kind == f.DATA}, "answered"
            )

    def test_a_content_length_that_is_not_true(self, victim: ServerProcess, beside: Beside) -> None:
        """A proxy in between may believe the wrong content-length."""
        with beside(victim), RawHttp2(victim.grpc_port) as attacker:
            block = head("/grpc.health.v1.Health/Check", ("content-length", "7"))
            attacker.send(f.frame(f.HEADERS, WHOLE, 1, block) + f.frame(f.DATA, f.END_STREAM, 1, message(b"")))
            assert attacker.reset(1) is ErrorCode.PROTOCOL_ERROR
            attacker.send(f.frame(f.HEADERS, WHOLE, 3, block) + f.frame(f.DATA, 0, 3, message(b"more")))
            assert attacker.reset(3) is ErrorCode.PROTOCOL_ERROR
            honest = head("/grpc.health.v1.Health/Check", ("content-length", "5"))
            attacker.send(f.frame(f.HEADERS, WHOLE, 5, honest) + f.frame(f.DATA, f.END_STREAM, 5, message(b"")))
            wait_until(
                lambda: any(each.kind == f.DATA and each.stream_id == 5 for each in attacker.frames()), "answered"
            )

    def test_a_stream_that_was_passed_over(self, victim: ServerProcess, beside: Beside) -> None:
        with beside(victim), RawHttp2(victim.grpc_port) as attacker:
            attacker.send(opening(9) + opening(5))
            assert attacker.goaway() is ErrorCode.PROTOCOL_ERROR


class TestOtherTalk:
    @pytest.mark.parametrize(
        "said",
        [
            b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00",
            b"\0" * 1_000,
            b"PRI * HTTP/1.1\r\n\r\n",
        ],
        ids=["HTTP/1.1", "TLS", "zeros", "half a preface"],
    )
    def test_bytes_that_are_not_http2(self, victim: ServerProcess, beside: Beside, said: bytes) -> None:
        with beside(victim), RawHttp2(victim.grpc_port, hello=said) as attacker:
            wait_until(lambda: attacker.is_over, "closed")

    def test_connections_that_say_little_or_nothing(self, victim: ServerProcess, beside: Beside) -> None:
        with ExitStack() as stack, beside(victim) as bystander:
            for number in range(500):
                idle = stack.enter_context(socket.create_connection((LOOPBACK, victim.grpc_port), 10))
                idle.sendall((b"", HELLO[:10], HELLO, HELLO + opening(1))[number % 4])
            bystander.served()
            assert not is_closed(idle)  # keepalive ends it, later


class TestMessages:
    def test_one_that_says_4_gib(self, victim: ServerProcess, beside: Beside) -> None:
        with beside(victim), RawHttp2(victim.grpc_port) as attacker:
            attacker.send(opening(1) + f.frame(f.DATA, 0, 1, b"\0\xff\xff\xff\xff" + bytes(1_000)))
            ends = wait_until(lambda: [each for each in attacker.frames() if each.kind == f.HEADERS], "a status")
            assert b"grpc-status\x018" in ends[-1].payload

    def test_a_gzip_bomb(self, victim: ServerProcess, beside: Beside) -> None:
        before = resident(victim)
        bomb = gzip.compress(bytes(200 * MIB), 1)
        with beside(victim), RawHttp2(victim.grpc_port) as attacker:
            attacker.send(f.frame(f.HEADERS, WHOLE, 1, head(SOTW, ("grpc-encoding", "gzip"))))
            framed = b"\x01" + len(bomb).to_bytes(4, "big") + bomb
            attacker.flood(f.frame(f.DATA, 0, 1, framed[at : at + 16_000]) for at in range(0, 60_000, 16_000))
            attacker.flood(f.frame(f.DATA, 0, 1, framed[at : at + 16_000]) for at in range(64_000, len(framed), 16_000))
            wait_until(lambda: attacker.is_over or b"grpc-status" in attacker.received, "refused")
        assert resident(victim) - before < 60 * MIB

    def test_too_many_names(self, victim: ServerProcess, beside: Beside) -> None:
        with beside(victim), GrpcStream(victim.grpc_port) as stream:
            code, told = stream.send(sotw(ENDPOINT, map(str, range(100_000)))).refusal()
            assert code is EXHAUSTED and "100000" in told

    def test_one_name_many_times_is_one_name(self, victim: ServerProcess, beside: Beside) -> None:
        with beside(victim), GrpcStream(victim.grpc_port) as stream:
            assert len(stream.send(sotw(CLUSTER, ["served"] * 19_999)).receive().resources) == 1


class TestNodes:
    """Reading a node of 6 MB once took seconds, and 45 MB of memory as long as its stream was open."""

    @pytest.mark.parametrize(
        ("method", "request_of"),
        [
            (SOTW, lambda node: wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=node)),
            (DELTA, lambda node: wire_pb2.DeltaDiscoveryRequest(type_url=CLUSTER, node=node)),
            (LRS, lambda node: wire_pb2.LoadStatsRequest(node=node)),
        ],
        ids=["SotW", "Delta", "LRS"],
    )
    def test_twenty_large_nodes(
        self,
        victim: ServerProcess,
        beside: Beside,
        method: str,
        request_of: Callable[[bytes], wire_pb2.DiscoveryRequest],
    ) -> None:
        before = resident(victim)
        counted = victim.metrics().get('xds_server_limit_hits_total{limit="node_bytes"}', 0)
        node = large_node(200_000)
        assert len(node) > 10 * NODE_BYTES
        data = request_of(node).SerializeToString()
        with beside(victim, slowest_s=2.0) as bystander:
            for _ in range(20):
                with GrpcStream(victim.grpc_port, method) as stream:
                    code, told = stream.send(data).refusal()
                assert (code, told) == (EXHAUSTED, f"a node of {len(node)} bytes; at most {NODE_BYTES} are accepted")
            bystander.served()
        assert resident(victim) - before < 60 * MIB
        assert victim.metrics()['xds_server_limit_hits_total{limit="node_bytes"}'] == counted + 20

    def test_by_rest_and_fetch(self, victim: ServerProcess, beside: Beside) -> None:
        node = large_node(200_000)
        with beside(victim):
            body = {"node": {"id": "large", "metadata": {f"key-{number}": number for number in range(100_000)}}}
            assert victim.request("POST", "/v3/discovery:clusters", json=body).status_code == 413
            with grpc.insecure_channel(f"{LOOPBACK}:{victim.grpc_port}") as channel:
                fetch = channel.unary_unary("/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters")
                with pytest.raises(grpc.RpcError) as caught:
                    fetch(wire_pb2.DiscoveryRequest(node=node).SerializeToString())
            assert caught.value.code() is EXHAUSTED

    def test_a_usual_one_is_accepted(self, victim: ServerProcess) -> None:
        node = wire_pb2.Node(id="usual")
        node.metadata["padding"] = "x" * 61_000
        request = wire_pb2.DiscoveryRequest(type_url=CLUSTER, node=node.SerializeToString())
        with GrpcStream(victim.grpc_port) as stream:
            assert stream.send(request.SerializeToString()).receive().resources


class TestMany:
    def test_streams_that_say_nothing(self, victim: ServerProcess, beside: Beside) -> None:
        """Those of one connection took all admission slots in turn: another connection waited until all had had one."""
        with beside(victim, slowest_s=2.0) as bystander, RawHttp2(victim.grpc_port) as attacker:
            attacker.flood(batches(lambda number: opening(2 * number + 1), 20_000))
            bystander.served()
            # How many wait at one moment depends on how fast the machine reads and admits them.
            waiting = "xds_server_streams_awaiting_admission"
            wait_until(lambda: victim.metrics()[waiting] > 100, "streams wait for admission")
            bystander.served()
            assert not attacker.is_over
        assert resident(victim) < 600 * MIB

    @pytest.mark.soak
    def test_more_streams_than_a_connection_may_have(self, victim: ServerProcess, beside: Beside) -> None:
        with beside(victim, slowest_s=15.0) as bystander, RawHttp2(victim.grpc_port) as attacker:
            attacker.flood(batches(lambda number: opening(2 * number + 1), 60_000))
            bystander.served()
            wait_until(lambda: attacker.is_over, "the connection ends")
            bystander.served()
        assert resident(victim) < 600 * MIB

    @pytest.mark.soak
    def test_node_ids_of_one_connection(self, victim: ServerProcess, beside: Beside) -> None:
        with beside(victim, slowest_s=15.0), grpc.insecure_channel(f"{LOOPBACK}:{victim.grpc_port}") as channel:
            for number in range(5_000):
                with GrpcStream(victim.grpc_port, channel=channel) as stream:
                    assert stream.send(sotw(CLUSTER, node_id=f"invented-{number}")).receive().resources

    @pytest.mark.soak
    def test_idle_connections_by_the_thousand(self, victim: ServerProcess, beside: Beside) -> None:
        with ExitStack() as stack, beside(victim, slowest_s=15.0) as bystander:
            for _ in range(3_000):
                stack.enter_context(socket.create_connection((LOOPBACK, victim.grpc_port), 20))
            bystander.served()
