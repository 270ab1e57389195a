"""Starts a Consul agent on free ports of the loopback."""

from __future__ import annotations

import signal
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


class ConsulAgent:
    """An agent that can be killed and started again on the same ports.

    With ``keeps_state`` it is a server with a data directory; else it loses everything when it ends.
    """

    def __init__(self, folder: Path, *, keeps_state: bool = False) -> None:
        self._folder = folder
        self._keeps_state = keeps_state
        self._process: subprocess.Popen[bytes] | None = None
        self._http, self._server, self._serf = (_free_port() for _ in range(3))

    @property
    def address(self) -> str:
        """Host and port of its HTTP API."""
        return f"{HOST}:{self._http}"

    def start(self) -> None:
        """Start it and wait until it has elected itself. Raises ``PeerError`` as ``build`` does, and in time."""
        argv = [str(build(CONSUL)), "agent", "-node=one", f"-bind={HOST}", f"-client={HOST}"]
        argv += [f"-http-port={self._http}", f"-server-port={self._server}", f"-serf-lan-port={self._serf}"]
        argv += ["-serf-wan-port=-1", "-dns-port=-1", "-grpc-port=-1"]
        state = ["-server", "-bootstrap-expect=1", f"-data-dir={self._folder / 'consul'}"]
        argv += state if self._keeps_state else ["-dev"]
        with (self._folder / "consul.log").open("a") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log)
        _wait_for_leader(f"http://{self.address}")

    def kill(self) -> None:
        """End it without notice."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_S)

    def pause(self, *, on: bool) -> None:
        """Stop it, so that its connections are silent, or let it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def stop(self) -> None:
        """End it in order."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait(STOP_S)


@contextmanager
def consul_agent(folder: Path) -> Iterator[str]:
    """The address of a running agent in memory. Raises ``PeerError`` as ``ConsulAgent.start`` does."""
    agent = ConsulAgent(folder)
    try:
        agent.start()
        yield agent.address
    finally:
        agent.stop()


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
