"""A real linkerd2-proxy, with the environment that Linkerd's injector gives one, and with a certificate of a test.

Its outbound port takes connections that were redirected to it (`tests.support.own_network`); in ingress mode requests
name their destination in a header, too.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.linkerd_identity import AUTHORITY
from tests.support.pki import signing_request
from tests.support.process import LOOPBACK, ChildProcess, accepts_connections, free_port

NAME = "client.default.serviceaccount.identity.linkerd.cluster.local"
WORKLOAD = {"ns": "default", "pod": "client-1", "zone": "a"}
OVERRIDE = "l5d-dst-override"  # of a request in ingress mode: its destination
_ADMIN_TIMEOUT_S = 5.0


def start_identity(directory: Path) -> tuple[ChildProcess, int]:
    """The service that certifies proxies, and its port. Its authority is in the directory."""
    port = free_port()
    argv = [sys.executable, "-m", "tests.support.linkerd_identity", str(port), str(directory)]
    child = ChildProcess("identity", argv, directory)
    child.wait_until(lambda: accepts_connections(port), "the identity service")
    return child, port


@dataclass(frozen=True, slots=True)
class ProxyPlace:
    """Where a proxy finds its control plane, and the directory of its files."""

    directory: Path
    control_port: int
    identity_port: int
    token: Mapping[str, str] = field(default_factory=lambda: dict(WORKLOAD))


def read_environment(file: Path) -> dict[str, str]:
    """The variables of a file with lines ``NAME=VALUE``."""
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _prefixed(found: Mapping[str, str]) -> dict[str, str]:
    return {f"LINKERD2_PROXY_{name}": value for name, value in found.items()}


def _certified(place: ProxyPlace, name: str) -> dict[str, str]:
    """The variables that a proxy needs for its certificate."""
    documents = place.directory / f"{name}-identity"
    documents.mkdir()
    key, request = signing_request(NAME)
    (documents / "key.p8").write_bytes(key)
    (documents / "csr.der").write_bytes(request)
    token_file = documents / "token"
    token_file.write_text("any")
    return {
        "IDENTITY_SVC_ADDR": f"{LOOPBACK}:{place.identity_port}",
        "IDENTITY_DIR": str(documents),
        "IDENTITY_TOKEN_FILE": str(token_file),
        "IDENTITY_TRUST_ANCHORS": (place.directory / f"{AUTHORITY}.pem").read_text(),
        "IDENTITY_LOCAL_NAME": NAME,
        "LOG": "warn,linkerd=info",
    }


class LinkerdProxy(ChildProcess):
    """The proxy. ``outbound_port`` takes redirected connections.

    ``example`` is a file with its environment; then ports are those of the file.
    """

    def __init__(
        self,
        binary: Path,
        place: ProxyPlace,
        *,
        is_ingress: bool,
        name: str = "linkerd2-proxy",
        example: Path | None = None,
    ) -> None:
        self.outbound_port, self._admin_port = free_port(), free_port()
        environment = self._injected() if example is None else read_environment(example)
        control = f"{LOOPBACK}:{place.control_port}"
        environment |= _prefixed({"DESTINATION_SVC_ADDR": control, "POLICY_SVC_ADDR": control})
        if example is None:
            token = json.dumps(place.token)
            environment |= _prefixed({"DESTINATION_CONTEXT": token, "POLICY_WORKLOAD": token})
            environment |= _prefixed({"INGRESS_MODE": "true"} if is_ingress else {})
        else:
            self.outbound_port, self._admin_port = (
                int(environment[f"LINKERD2_PROXY_{kind}_LISTEN_ADDR"].rpartition(":")[2])
                for kind in ("OUTBOUND", "ADMIN")
            )
        environment |= _prefixed(_certified(place, name))
        super().__init__(name, [binary], place.directory, environment)

    def _injected(self) -> dict[str, str]:
        """The variables that Linkerd's injector sets, as far as they matter."""
        found = {
            "OUTBOUND_LISTEN_ADDRS": f"{LOOPBACK}:{self.outbound_port}",
            "INBOUND_LISTEN_ADDR": f"{LOOPBACK}:{free_port()}",
            "ADMIN_LISTEN_ADDR": f"{LOOPBACK}:{self._admin_port}",
            "CONTROL_LISTEN_ADDR": f"{LOOPBACK}:{free_port()}",
            "DESTINATION_PROFILE_SUFFIXES": "svc.cluster.local.",
            "DESTINATION_PROFILE_NETWORKS": "10.0.0.0/8,127.0.0.0/8",
            "POLICY_CLUSTER_NETWORKS": "10.0.0.0/8",
            "INBOUND_DEFAULT_POLICY": "all-unauthenticated",
            "INBOUND_CONNECT_TIMEOUT": "100ms",
            "OUTBOUND_CONNECT_TIMEOUT": "1000ms",
            "OUTBOUND_DISCOVERY_IDLE_TIMEOUT": "5s",
            "INBOUND_DISCOVERY_IDLE_TIMEOUT": "90s",
            "INBOUND_ACCEPT_KEEPALIVE": "10000ms",
            "OUTBOUND_CONNECT_KEEPALIVE": "10000ms",
            "CONTROL_STREAM_INITIAL_TIMEOUT": "3s",
            "CONTROL_STREAM_IDLE_TIMEOUT": "5m",
            "CONTROL_STREAM_LIFETIME": "1h",
            "SHUTDOWN_GRACE_PERIOD": "1s",
        }
        return _prefixed(found)

    def wait_ready(self) -> None:
        """Wait until it has its certificate and serves."""
        self.wait_until(lambda: self.admin("/ready").startswith("ready"), "/ready")

    def admin(self, path: str) -> str:
        """A page of its admin port."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self._admin_port}{path}", timeout=_ADMIN_TIMEOUT_S) as answer:
            text: str = answer.read().decode()
            return text

    def metrics(self, name: str) -> list[str]:
        """The lines of one metric."""
        return [line for line in self.admin("/metrics").splitlines() if line.partition("{")[0] == name]
