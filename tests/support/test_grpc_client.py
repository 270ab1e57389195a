"""The harness by itself: gRPC peers in processes of their own, and the old client."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.bootstrap import grpc_bootstrap
from tests.support.grpc_client import GrpcBackend, GrpcClient, old_grpc_python
from tests.support.process import child_environment, free_port


@pytest.mark.parametrize("old", [False, True])
def test_a_call_returns_the_status_and_the_answering_server(tmp_path: Path, running: ExitStack, old: bool) -> None:
    backend = running.enter_context(GrpcBackend("a"))
    python = old_grpc_python() if old else None
    client = running.enter_context(GrpcClient(tmp_path, grpc_bootstrap(free_port()), python=python))
    assert client.call(f"127.0.0.1:{backend.port}").body == "a"
    assert client.call(f"127.0.0.1:{free_port()}", fresh=True).status == "UNAVAILABLE"
    assert client.call("xds:///svc", deadline_s=0.5).status in {"UNAVAILABLE", "DEADLINE_EXCEEDED"}
    assert backend.calls() == 1


def test_old_client_is_the_last_with_the_v2_transport() -> None:
    argv: list[str | Path] = [old_grpc_python(), "-c", "import grpc; print(grpc.__version__)"]
    run = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60, env=child_environment())
    assert run.stdout.strip() == "1.49.1"
