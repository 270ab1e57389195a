"""The server under test as an operator runs it: ``xds serve`` in a process of its own, driven over its admin API."""

from __future__ import annotations

import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from tests.support.process import DEADLINE_S, LOOPBACK, ChildProcess, free_port, wait_until
from tests.support.server_forks import ForkedServer, can_fork

Json = dict[str, Any]

GROUP, NODE = "test", "envoy-1"
SERVE = [sys.executable, "-m", "xds.cli.main", "serve"]
REQUEST_TIMEOUT_S = 30.0
START_S = 90.0  # on a machine with many other processes; a start alone takes about a second


class ServerProcess:
    """``xds serve`` on fixed free ports and one data directory, so that a restart finds both again.

    The server is a fork of a process that has imported it, unless a test is about the start itself or about the peak of
    its memory (``forked=False``). ``prefix`` is a command that runs the server by ``exec``. An ``advertised`` server
    tells the others on its database where its admin port is. ``tls`` and ``token`` are how the harness itself calls the
    admin API; the server learns of them by ``environment``.
    """

    def __init__(
        self,
        directory: Path,
        flags: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
        token: str = "",
        prefix: Sequence[str] = (),
        forked: bool = True,
        advertised: bool = False,
    ) -> None:
        self.grpc_port = free_port()
        self.http_port = free_port()
        self.data = directory / "data"
        self.group, self.node = GROUP, NODE  # of the test's Envoy; tests that share a server have different ones
        self._tests = 0
        self._directory = directory
        self._flags = (*flags, *(("--advertise", f"http://{LOOPBACK}:{self.http_port}") if advertised else ()))
        self._prefix = tuple(prefix)
        # Tests compare counters before and after, so two scrapes must not share a rendered page.
        self._environment = {"XDS_METRICS__KEPT_S": "0", **(environment or {})}
        self._forked = forked and not prefix and can_fork(environment or {})
        self._process: ChildProcess | None = None
        self._client = httpx.Client(
            base_url=f"{'https' if tls else 'http'}://{LOOPBACK}:{self.http_port}",
            headers={"authorization": f"Bearer {token}"} if token else {},
            verify=tls or False,  # loading authorities that are not needed would take 50 ms
            trust_env=False,
            timeout=REQUEST_TIMEOUT_S,
        )

    @property
    def process(self) -> ChildProcess:
        """The running child."""
        assert self._process is not None, "the server was not started"
        return self._process

    # Life

    def start(self) -> Self:
        """Start, and wait until ``/readyz`` says 200."""
        ports = ["--grpc", f"{LOOPBACK}:{self.grpc_port}", "--http", f"{LOOPBACK}:{self.http_port}"]
        arguments = [*ports, "--data", str(self.data), *self._flags]
        if self._forked:
            self._process = ForkedServer("xds", ["serve", *arguments], self._directory, self._environment)
        else:
            command = [*self._prefix, *SERVE, *arguments]
            self._process = ChildProcess("xds", command, self._directory, self._environment)
        self._process.wait_until(lambda: self.request("GET", "/readyz").status_code == 200, "/readyz", START_S)
        return self

    def stop(self) -> int:
        """SIGTERM, and wait for the drain; the exit code."""
        return self.process.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def begin_anew(self) -> None:
        """Prepare for the next test: no group is left, and its group and node have unused names."""
        if not self.process.running:  # a test that stops the server may have failed before it started it again
            self.start()
        for item in self.get("/groups")["items"]:
            # The server may not know yet that the clients of the test before are gone.
            deleted = self.request("DELETE", f"/api/v1/groups/{item['group']}?allow_empty=true")
            assert deleted.is_success, deleted.text
        self._tests += 1
        self.group, self.node = f"{GROUP}-{self._tests}", f"{NODE}-{self._tests}"

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()
        if self._process is None:
            return
        self._process.kill()  # a drain takes 0.3 s, and nobody looks at this one: tests of it call `stop`
        if error is not None:
            print(self._process.log_tail())

    # Admin API

    def request(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """One request, whatever the answer; a connection that fails raises ``ConnectionError``."""
        try:
            return self._client.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise ConnectionError(f"{method} {path}: {error!r}") from error

    def get(self, path: str, **query: str) -> Any:
        """The JSON of a path under ``/api/v1`` that must answer 200."""
        answer = self.request("GET", f"/api/v1{path}", params=query)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text}"
        return answer.json()

    def push(self, group: str, resources: Sequence[Json], version: str | None = None, **query: str) -> Json:
        """Replace the group's snapshot, which must succeed; the answer with ``revision``, ``versions``, ``changes``."""
        body: Json = {"resources": list(resources)}
        if version is not None:
            body["version"] = version
        answer = self.request("PUT", f"/api/v1/groups/{group}/snapshot", json=body, params=query)
        assert answer.is_success, f"push to {group}: {answer.status_code} {answer.text}"
        pushed: Json = answer.json()
        return pushed

    def remove_soon(self, group: str) -> None:
        """Let resources that a push removes linger for some seconds only."""
        answer = self.request("PUT", f"/api/v1/groups/{group}", json={"removal_delay_s": 1})
        assert answer.is_success, answer.text

    def versions(self, group: str) -> dict[str, str]:
        """version_info by type alias."""
        versions: dict[str, str] = self.get(f"/groups/{group}/snapshot")["versions"]
        return versions

    def nodes(self) -> dict[str, Json]:
        """Node items by node id."""
        return {item["id"]: item for item in self.get("/nodes")["items"]}

    def types(self, node_id: str) -> dict[str, Json]:
        """State per type alias of a node; empty while it is unknown."""
        types: dict[str, Json] = self.nodes().get(node_id, {}).get("types", {})
        return types

    def nacks(self, **filters: str) -> list[Json]:
        """NACK records, newest first, as the filters ``group``, ``node``, ``type``, ``since``, ``state`` choose.

        A shared server keeps the records of earlier tests: filter by ``node`` there.
        """
        items: list[Json] = self.get("/nacks", **filters)["items"]
        return items

    def wait_synced(self, group: str, node_id: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait until the node has ACKed the head of its group, for all types that it subscribes to."""
        versions = self.versions(group)
        wait_until(
            lambda: _in_step(self.types(node_id), versions),
            f"node {node_id} in step with {group} at {versions}",
            deadline_s,
            detail=lambda: f"{self.types(node_id)}\n{self.process.log_tail()}",
        )

    def wait_nack(self, node_id: str, alias: str, meanwhile: Callable[[], object] = lambda: None) -> Json:
        """Wait until the node's type is shown as ``nacked``, calling ``meanwhile``; the newest NACK record of both."""

        def nacked() -> bool:
            meanwhile()
            return bool(self.types(node_id).get(alias, {}).get("state") == "nacked")

        wait_until(
            nacked,
            f"{alias} of {node_id} nacked",
            detail=lambda: f"{self.types(node_id)}\n{self.process.log_tail()}",
        )
        return self.nacks(node=node_id, type=alias)[0]

    def metrics(self) -> dict[str, float]:
        """Samples of ``/metrics``, keyed by name with labels as printed."""
        lines = self.request("GET", "/metrics").text.splitlines()
        samples = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
        return {name: float(value) for name, _, value in samples}


def _in_step(types: Mapping[str, Json], versions: Mapping[str, str]) -> bool:
    subscribed = {alias: state for alias, state in types.items() if state["state"] != "not_subscribed"}
    if not subscribed or any(state["state"] != "synced" for state in subscribed.values()):
        return False
    # Shortly after a push the state is still that of the previous push. The part after "+" distinguishes sets with one
    # label.
    return all(
        state["version_acked"].partition("+")[0] == versions.get(alias, "").partition("+")[0]
        for alias, state in subscribed.items()
    )
