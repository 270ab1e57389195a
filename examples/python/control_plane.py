"""A control plane in Python: the server within this program, for a real Envoy.

It serves a listener, a route and a cluster made of envoy-data-plane messages to the nodes of the cluster ``edge``. The
endpoints come from a source, which reads them from a text file. Each ACK and NACK is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from envoy_data_plane.envoy.config.cluster import v3 as cluster
from envoy_data_plane.envoy.config.core import v3 as core
from envoy_data_plane.envoy.config.endpoint import v3 as endpoint
from envoy_data_plane.envoy.config.route import v3 as route

from xds import Server
from xds.embed import Hooks, Instance, Node, ServerEvent, Sink

READ_EVERY_S = 0.5
ADS = core.ConfigSource(ads=core.AggregatedConfigSource(), resource_api_version=core.ApiVersion.V3)
MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def resources(listener_port: int) -> list[Any]:
    """Messages and dictionaries may be mixed: a listener is shorter as a dictionary."""
    everything = route.RouteMatch(prefix="/")
    return [
        cluster.Cluster(
            name="hello",
            type=cluster.ClusterDiscoveryType.EDS,
            connect_timeout=timedelta(seconds=1),
            eds_cluster_config=cluster.ClusterEdsClusterConfig(eds_config=ADS),
        ),
        endpoint.ClusterLoadAssignment(cluster_name="hello"),  # served until the source shows the service
        route.RouteConfiguration(
            name="web",
            virtual_hosts=[
                route.VirtualHost(
                    name="all",
                    domains=["*"],
                    routes=[route.Route(match=everything, route=route.RouteAction(cluster="hello"))],
                )
            ],
        ),
        {
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
            "name": "web",
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": listener_port}},
            "filter_chains": [{"filters": [{"name": "http", "typed_config": _http_manager()}]}],
        },
    ]


def _http_manager() -> dict[str, Any]:
    return {
        "@type": MANAGER,
        "stat_prefix": "web",
        "rds": {"route_config_name": "web", "config_source": {"ads": {}, "resource_api_version": "V3"}},
        "http_filters": [{"name": "router", "typed_config": {"@type": ROUTER}}],
    }


class AddressFile:
    """A source of instances: a file with one ``HOST:PORT`` per line."""

    name, kind = "addresses", "address-file"

    def __init__(self, path: Path) -> None:
        self._path = path

    async def run(self, sink: Sink) -> None:
        """Read the file until cancelled."""
        while True:
            try:
                sink.put("hello", list(self._instances()))
            except (OSError, ValueError) as error:
                sink.failed(f"{self._path}: {error}")  # the last good set stays in force
            await asyncio.sleep(READ_EVERY_S)

    def _instances(self) -> Iterator[Instance]:
        for line in self._path.read_text().split():
            host, _, port = line.rpartition(":")
            yield Instance(line, host, int(port))


def group_of(node: Node) -> str | None:
    """Nodes of the cluster ``edge`` share the group ``edge``; others have no group here."""
    return "edge" if node.cluster == "edge" else ""


def note(event: ServerEvent) -> None:
    """Print what happened."""
    what = f"{event.type} {event.action}" if event.type else event.action
    print(f"{event.node}: {what} {event.message or event.details.get('version', '')}".rstrip(), flush=True)


async def main(arguments: argparse.Namespace) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server = Server(
        grpc=arguments.grpc,
        http=arguments.http,
        group_of=group_of,
        hooks=Hooks(on_ack=note, on_nack=note, on_connected=note, on_gone=note),
        sources=[AddressFile(arguments.addresses)],
    )
    async with server:
        pushed = await server.apply("edge", resources(arguments.listener))
        await server.bind("edge", "hello", "hello")
        print(f"revision {pushed.revision} on {arguments.grpc}", flush=True)
        await stop.wait()


def parse_arguments() -> argparse.Namespace:
    """The addresses and the file."""
    parser = argparse.ArgumentParser(description="A control plane for one Envoy.")
    parser.add_argument("--grpc", default="127.0.0.1:18000", metavar="HOST:PORT")
    parser.add_argument("--http", default="127.0.0.1:18080", metavar="HOST:PORT")
    parser.add_argument("--listener", type=int, default=10000, metavar="PORT", help="where Envoy listens")
    parser.add_argument("addresses", type=Path, help="a file with one HOST:PORT per line")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(parse_arguments()))
