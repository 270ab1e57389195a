"""The resources that every server under test serves: equal clusters and assignments, each with its edition.

``go-control-plane/content.go`` makes the same ones; the tests compare them. Listeners, their routes and their secrets
are made here for all servers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Literal

from google.protobuf.json_format import ParseDict

from xds.codec import schema
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET

HOSTS = 3
SUBNETS = 250
BELOW = (LISTENER, ROUTE, SECRET)  # each listener has a route configuration and a secret of its own
MESSAGES = {
    LISTENER: "envoy.config.listener.v3.Listener",
    ROUTE: "envoy.config.route.v3.RouteConfiguration",
    SECRET: "envoy.extensions.transport_sockets.tls.v3.Secret",
}
CONNECTION_MANAGER = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ADS = {"ads": {}, "resource_api_version": "V3"}

Changed = Literal["all", "one"]


@dataclass(frozen=True, slots=True)
class Change:
    """One push: how many resources there are from now on, and which are others than before.

    ``all`` changes every resource, ``one`` the first assignment, or without assignments the first cluster. ``edition``
    grows with every push. With assignments the clusters are of type EDS, else STATIC. With ``listeners`` all changes,
    their routes and secrets too. Raises ``ValueError`` for counts that make no sense.
    """

    clusters: int
    assignments: int
    changed: Changed
    edition: int
    listeners: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.assignments <= self.clusters or not self.clusters:
            raise ValueError(f"{self.clusters} clusters and {self.assignments} assignments")
        if not 0 <= self.listeners <= self.clusters or (self.listeners and self.changed == "one"):
            raise ValueError(f"{self.listeners} listeners")
        if self.changed not in {"all", "one"}:
            raise ValueError(f"changed is {self.changed!r}, neither 'all' nor 'one'")

    def command(self) -> dict[str, Any]:
        """As the peers read it, without listeners."""
        return {"push": {key: value for key, value in asdict(self).items() if key != "listeners"}}


@dataclass(slots=True)
class Content:
    """The edition of every resource. A change to another number of resources replaces them all."""

    clusters: list[int] = field(default_factory=list)
    assignments: list[int] = field(default_factory=list)
    listeners: list[int] = field(default_factory=list)

    def apply(self, change: Change) -> bool:
        """True when everything is to be set anew, False when it is the one resource that differs."""
        reshaped = (len(self.clusters), len(self.assignments)) != (change.clusters, change.assignments)
        if reshaped or change.changed == "all":
            edition = change.edition if change.changed == "all" else 0
            self.clusters = [edition] * change.clusters
            self.assignments = [edition] * change.assignments
            self.listeners = [edition] * change.listeners
        if change.changed == "one":
            (self.assignments or self.clusters)[0] = change.edition
        return reshaped or change.changed == "all"

    @property
    def one(self) -> str:
        """Type URL of the resource that a change of one changes."""
        return ENDPOINT if self.assignments else CLUSTER

    def editions(self, type_url: str) -> list[int]:
        """By index."""
        if type_url in BELOW:
            return self.listeners
        return self.clusters if type_url == CLUSTER else self.assignments

    def types(self) -> tuple[str, ...]:
        """The types that have resources."""
        types = (CLUSTER, ENDPOINT) if self.assignments else (CLUSTER,)
        return (*types, *BELOW) if self.listeners else types

    def value(self, type_url: str, index: int) -> dict[str, Any]:
        """A resource as JSON."""
        edition = self.editions(type_url)[index]
        if type_url == CLUSTER:
            return cluster_value(index, edition, bool(self.assignments))
        return assignment_value(index, edition) if type_url == ENDPOINT else _BELOW_VALUES[type_url](index, edition)

    def body(self, type_url: str, index: int) -> bytes:
        """A resource serialized."""
        edition = self.editions(type_url)[index]
        if type_url == CLUSTER:
            return cluster_body(index, edition, bool(self.assignments))
        if type_url == ENDPOINT:
            return assignment_body(index, edition)
        empty = schema.require(MESSAGES[type_url])()
        message = ParseDict(self.value(type_url, index), empty, descriptor_pool=schema.pool())
        return bytes(message.SerializeToString(deterministic=True))

    def every(self) -> Iterator[tuple[str, int]]:
        """Type URL and index of every resource."""
        for type_url in self.types():
            for index in range(len(self.editions(type_url))):
                yield type_url, index


def name_of(index: int) -> str:
    """Of a cluster, of its assignment, and of the listener, routes and secret of the same index."""
    return f"cluster-{index}"


def cluster_value(index: int, edition: int, assigned: bool) -> dict[str, Any]:
    """Its connect timeout tells the edition."""
    value = {"name": name_of(index), "type": "STATIC", "connect_timeout": f"{1 + edition}s"}
    if assigned:
        eds = {"eds_config": {"ads": {}, "resource_api_version": "V3"}}
        return {**value, "type": "EDS", "eds_cluster_config": eds}
    return value


def assignment_value(index: int, edition: int) -> dict[str, Any]:
    """The weights of its endpoints tell the edition."""
    endpoints = [
        {
            "endpoint": {"address": {"socket_address": {"address": _address(index, host), "port_value": 80}}},
            "load_balancing_weight": edition + 1,
        }
        for host in range(HOSTS)
    ]
    return {"cluster_name": name_of(index), "endpoints": [{"lb_endpoints": endpoints}]}


def listener_value(index: int, edition: int) -> dict[str, Any]:
    """Its prefix of statistics tells the edition."""
    name = name_of(index)
    routes = {"rds": {"route_config_name": name, "config_source": ADS}}
    router = {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
    connections = {
        "@type": f"type.googleapis.com/{CONNECTION_MANAGER}",
        "stat_prefix": f"edition-{edition}",
        **routes,
        "http_filters": [{"name": "envoy.filters.http.router", "typed_config": router}],
    }
    encryption = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": name, "sds_config": ADS}]},
    }
    chain = {
        "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": connections}],
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": encryption},
    }
    address = {"socket_address": {"address": "127.0.0.1", "port_value": 20_000 + index}}
    return {"name": name, "address": address, "filter_chains": [chain]}


def route_value(index: int, edition: int) -> dict[str, Any]:
    """The name of its virtual host tells the edition."""
    route = {"match": {"prefix": "/"}, "route": {"cluster": name_of(index)}}
    host = {"name": f"edition-{edition}", "domains": ["*"], "routes": [route]}
    return {"name": name_of(index), "virtual_hosts": [host]}


def secret_value(index: int, edition: int) -> dict[str, Any]:
    """The text behind its certificate tells the edition."""
    chain, key = (f"-----BEGIN {each}-----\nMA==\n-----END {each}-----\n" for each in ("CERTIFICATE", "PRIVATE KEY"))
    certificate = {
        "certificate_chain": {"inline_string": f"{chain}{edition}\n"},
        "private_key": {"inline_string": key},
    }
    return {"name": name_of(index), "tls_certificate": certificate}


_BELOW_VALUES = {LISTENER: listener_value, ROUTE: route_value, SECRET: secret_value}


def cluster_body(index: int, edition: int, assigned: bool) -> bytes:
    """As ``cluster_value``, serialized."""
    message = _cluster(assigned)
    message.name = name_of(index)
    message.connect_timeout.seconds = 1 + edition
    return bytes(message.SerializeToString(deterministic=True))


def assignment_body(index: int, edition: int) -> bytes:
    """As ``assignment_value``, serialized."""
    message = _assignment()
    message.cluster_name = name_of(index)
    for host, endpoint in enumerate(message.endpoints[0].lb_endpoints):
        endpoint.endpoint.address.socket_address.address = _address(index, host)
        endpoint.load_balancing_weight.value = edition + 1
    return bytes(message.SerializeToString(deterministic=True))


def _address(index: int, host: int) -> str:
    return f"10.0.{index % SUBNETS}.{host + 1}"


# Messages that are filled in again for each resource: parsing each from JSON would take a second for 10,000.


@cache
def _cluster(assigned: bool) -> Any:
    return ParseDict(cluster_value(0, 0, assigned), schema.require("envoy.config.cluster.v3.Cluster")())


@cache
def _assignment() -> Any:
    return ParseDict(assignment_value(0, 0), schema.require("envoy.config.endpoint.v3.ClusterLoadAssignment")())
