"""A Consul agent of its own on free ports of the loopback, with everything in memory."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from bench.consul.clients import CONSUL
from bench.peers.child import PeerError
from bench.peers.go_program import build

HOST = "127.0.0.1"
START_S = 60.0
STOP_S = 20.0
POLL_S = 0.2


@contextmanager
def consul_agent(folder: Path) -> Iterator[str]:
    """The address of a running agent that has elected itself. Raises ``PeerError`` as ``build`` does, and in time."""
    http, server, serf = (_free_port() for _ in range(3))
    ports = [f"-http-port={http}", f"-server-port={server}", f"-serf-lan-port={serf}"]
    ports += ["-serf-wan-port=-1", "-dns-port=-1", "-grpc-port=-1"]
    argv = [str(build(CONSUL)), "agent", "-dev", "-node=one", f"-bind={HOST}", f"-client={HOST}", *ports]
    with (folder / "consul.log").open("w") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            _wait_for_leader(f"http://{HOST}:{http}")
            yield f"{HOST}:{http}"
        finally:
            process.terminate()
            process.wait(STOP_S)


def _wait_for_leader(url: str) -> None:
    ends = time.monotonic() + START_S
    while time.monotonic() < ends:
        try:
            with urlopen(f"{url}/v1/status/leader", timeout=POLL_S) as answer:
                if answer.read().strip() not in (b"", b'""'):
                    return
        except (URLError, TimeoutError, ConnectionError):
            pass
        time.sleep(POLL_S)
    raise PeerError("Consul has elected nobody")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
