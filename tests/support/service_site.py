"""A service whose instances come from a source, a server that serves them, and an Envoy under load that calls them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.envoy import EnvoyProcess
from tests.support.load import HttpLoad
from tests.support.process import wait_until
from tests.support.resources import eds_cluster, listener, rds, route, route_config
from tests.support.server import GROUP, NODE, ServerProcess
from tests.support.upstream import Upstream

Json = dict[str, Any]

SERVICE, CLUSTER = "web", "web-cluster"
DRAIN_S = 1.0
IN_FLIGHT_S = 0.3  # a removed upstream ends this much later: requests that were sent to it end first


class ServiceSite:
    """``start`` runs the server with ``sources`` as settings; the cluster's assignment is bound to the service."""

    def __init__(
        self,
        directory: Path,
        background: Background,
        running: ExitStack,
        sources: Json,
        drain_s: float = DRAIN_S,
        **services: object,
    ) -> None:
        self.background = background
        self.directory = directory
        self.running = running
        self.upstreams: dict[int, Upstream] = {}
        file = directory / "xds.yaml"
        file.write_text(
            yaml.safe_dump({"sources": sources, "services": services, "order": {"endpoint_drain_s": drain_s}})
        )
        self.server = running.enter_context(ServerProcess(directory, ["--config", str(file)]))
        pushed = [
            eds_cluster(CLUSTER),
            listener("web", rds("web")),
            route_config("web", route(CLUSTER)),
        ]
        self.server.push(GROUP, pushed)
        self.bind()

    def bind(self, **fields: object) -> None:
        """Let the assignment of the cluster follow the service, with further fields of the binding."""
        path = f"/api/v1/groups/{GROUP}/bindings/{CLUSTER}"
        answer = self.server.request("PUT", path, json={"service": SERVICE, **fields})
        assert answer.is_success, answer.text

    def upstream(self) -> Upstream:
        """A new upstream; its name is its port."""
        made = Upstream(self.background, "up")
        made.name = str(made.port)
        self.upstreams[made.port] = made
        self.running.callback(made.close)
        return made

    def envoy(self, name: str = NODE, variant: Variant = Variant.ADS_DELTA) -> EnvoyProcess:
        """An Envoy of the group."""
        bootstrap = EnvoyBootstrap(self.server.grpc_port, variant, node_id=name, node_cluster=GROUP)
        return self.running.enter_context(EnvoyProcess(self.directory, bootstrap, name))

    def load(self, envoy: EnvoyProcess) -> HttpLoad:
        """Load through an Envoy, as soon as it answers."""
        return self.running.enter_context(HttpLoad(self.background, envoy.wait_listener("web"), per_connection=50))

    def retire(self, envoy: EnvoyProcess, *ports: int) -> None:
        """End upstreams when an Envoy no longer has them, as instances do that leave gracefully."""
        wait_until(lambda: not set(ports) & set(hosts(envoy)), f"{ports} gone", detail=lambda: hosts(envoy))
        time.sleep(IN_FLIGHT_S)
        for port in ports:
            self.upstreams.pop(port).close()

    def source(self, name: str) -> Json:
        """The item of a source."""
        found: Json = self.server.get(f"/sources/{name}")
        return found

    def revisions(self) -> int:
        """The number of revisions of the group."""
        return len(self.server.get(f"/groups/{GROUP}/revisions")["items"])


def hosts(envoy: EnvoyProcess) -> dict[int, Json]:
    """The hosts of the cluster by port, draining ones too."""
    found = envoy.clusters().get(CLUSTER, {}).get("host_statuses", [])
    return {host["address"]["socket_address"]["port_value"]: host for host in found}


def serving(envoy: EnvoyProcess) -> dict[int, int]:
    """The weight of each host that gets requests, by port."""
    return {port: host.get("weight", 1) for port, host in hosts(envoy).items() if not _is_draining(host)}


def wait_serving(envoy: EnvoyProcess, expected: Mapping[int, int]) -> None:
    """Wait until exactly these hosts, with these weights, get requests."""
    wait_until(
        lambda: serving(envoy) == dict(expected),
        f"{dict(expected)} in Envoy",
        detail=lambda: list(_describe_hosts(envoy)),
    )


def draining(envoy: EnvoyProcess) -> set[int]:
    """The ports of the hosts that drain."""
    return {port for port, host in hosts(envoy).items() if _is_draining(host)}


def _is_draining(host: Json) -> bool:
    return bool(host.get("health_status", {}).get("eds_health_status") == "DRAINING")


def _describe_hosts(envoy: EnvoyProcess) -> Iterator[str]:
    for port, host in hosts(envoy).items():
        yield f"{port}: weight {host.get('weight', 1)}, {host.get('health_status')}"
