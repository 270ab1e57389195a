"""Clients that do not read delay no other client, and take bounded memory of the server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from tests.support.grpc_stream import CHANNEL_OPTIONS, GrpcStream, sotw, sotw_ack
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import Json, ServerProcess
from xds.model.resource_type import CLUSTER

MIB = 1 << 20
BOUND_BYTES = 16 * MIB
CLUSTERS, TEXT_BYTES = 200, 15_000  # together some 3 MB
READERS, OTHERS = 10, 40
# Without it a client that was quick once takes megabytes that it does not read.
OPTIONS = [*CHANNEL_OPTIONS, ("grpc.http2.bdp_probe", 0)]
SLACK_BYTES = 32 * MIB  # allocators, streams, and what a push takes besides


def clusters(edition: int) -> list[Json]:
    text = f"{edition:0{TEXT_BYTES}d}"
    return [{"@type": CLUSTER, "name": f"c{number}", "alt_stat_name": text} for number in range(CLUSTERS)]


def memory_bytes(server: ServerProcess, field: str) -> int:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    flags = ["--store", "memory"]
    with ServerProcess(tmp_path, flags, {"XDS_LIMITS__IN_FLIGHT_BYTES": str(BOUND_BYTES)}, forked=False) as started:
        yield started


@pytest.mark.soak
def test_readers_get_their_large_bodies_while_others_do_not_read(server: ServerProcess) -> None:
    for edition in range(3):  # what a push of this size takes is not what is measured
        server.push("default", clusters(edition))
    server.push("default", [{"@type": CLUSTER, "name": "small"}])
    with ExitStack() as open_streams:

        def connect(number: int) -> GrpcStream:
            channel = open_streams.enter_context(grpc.insecure_channel(f"{LOOPBACK}:{server.grpc_port}", OPTIONS))
            stream = open_streams.enter_context(GrpcStream(server.grpc_port, channel=channel))
            stream.send(sotw(CLUSTER, node_id=f"n{number}"))
            return stream.send(sotw_ack(stream.receive()))

        streams = [connect(number) for number in range(READERS + OTHERS)]
        wait_until(lambda: len(server.nodes()) == len(streams), "all nodes known")
        before = memory_bytes(server, "VmRSS")
        Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")  # the peak counts from now on
        server.push("default", clusters(9))
        for stream in streams[OTHERS:]:
            response = stream.receive()
            while len(response.resources) < CLUSTERS:
                response = stream.send(sotw_ack(response)).receive()
            stream.send(sotw_ack(response))
        # The large responses alone would take three times the bound and the slack.
        assert memory_bytes(server, "VmHWM") - before < BOUND_BYTES + SLACK_BYTES
        metrics = server.metrics()
        assert metrics["xds_server_in_flight_waits_total"] > 0
        assert metrics["xds_server_slow_streams_cut_total"] > 0
        assert metrics["xds_server_in_flight_bytes"] <= BOUND_BYTES
