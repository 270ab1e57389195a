"""What happens to the process: it is stopped and continued, ended amid requests, short of memory."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest

from tests.attack.attacks import SLOW_POST
from tests.attack.bystander import GROUP
from tests.attack.conftest import Beside
from tests.attack.raw_http import connect
from tests.support import resources as r
from tests.support.grpc_stream import GrpcStream, sotw, sotw_ack
from tests.support.server import ServerProcess
from xds.model.resource_type import CLUSTER

Serve = Callable[..., ServerProcess]
ADDRESS_SPACE_KB = 1_300_000
MANY_CLUSTERS = 150_000


@pytest.mark.parametrize("stopped_s", [2.0, pytest.param(20.0, marks=pytest.mark.soak)])
def test_a_process_that_is_stopped_and_continued(serve: Serve, beside: Beside, stopped_s: float) -> None:
    """Its connections stand, and pushes go on."""
    server = serve()
    with GrpcStream(server.grpc_port) as stream:
        response = stream.send(sotw(CLUSTER, node_id="stands")).receive()
        stream.send(sotw_ack(response))
        os.kill(server.process.pid, signal.SIGSTOP)
        time.sleep(stopped_s)
        os.kill(server.process.pid, signal.SIGCONT)
        server.push(GROUP, [r.static_cluster("later")])
        assert b"later" in b"".join(resource.value for resource in stream.receive().resources)
    with beside(server):
        pass


@pytest.mark.parametrize("streams", [30, pytest.param(300, marks=pytest.mark.soak)])
def test_the_end_amid_streams_and_half_requests(serve: Serve, streams: int) -> None:
    """Every stream has a status, nobody waits for requests that do not come, and the exit code is 0."""
    server = serve(environment={"XDS_SERVER__DRAIN_S": "1"})
    with ExitStack() as stack:
        opened = []
        for number in range(streams):
            stream = stack.enter_context(GrpcStream(server.grpc_port))
            stream.send(sotw(CLUSTER, node_id=f"ends-{number}")).receive()
            opened.append(stream)
        for _ in range(50):
            half = stack.enter_context(connect(server.http_port))
            half.sendall(SLOW_POST)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 30
        codes = {stream.refusal()[0] for stream in opened}
        assert codes <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}


@pytest.mark.soak
def test_a_large_push_where_memory_is_short(tmp_path: Path, running: ExitStack) -> None:
    limited = ["sh", "-c", f'ulimit -v {ADDRESS_SPACE_KB} && exec "$0" "$@"']
    server = running.enter_context(ServerProcess(tmp_path, prefix=limited))
    server.push(GROUP, [r.static_cluster("small")])
    clusters = [{"@type": CLUSTER, "name": f"c-{number}", "type": "STATIC"} for number in range(MANY_CLUSTERS)]
    body = json.dumps({"resources": clusters}).encode()
    answer = server.request(
        "PUT",
        "/api/v1/groups/large/snapshot",
        content=body,
        headers={"content-type": "application/json"},
        timeout=300.0,
    )
    assert answer.status_code in {200, 503, 507}, answer.text[:500]
    if answer.status_code == 200:
        assert answer.json()["revision"] == 1
    assert server.push(GROUP, [r.static_cluster("after")])["revision"] == 2
