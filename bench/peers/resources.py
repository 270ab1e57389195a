"""The resources that every server under test serves: equal clusters and assignments, each with its edition.

``go-control-plane/content.go`` makes the same ones; the tests compare them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, Literal

from google.protobuf.json_format import ParseDict

from xds.codec import schema
from xds.model.resource_type import CLUSTER, ENDPOINT

HOSTS = 3
SUBNETS = 250

Changed = Literal["all", "one"]


@dataclass(frozen=True, slots=True)
class Change:
    """One push: how many resources there are from now on, and which are others than before.

    ``all`` changes every resource, ``one`` the first assignment, or without assignments the first cluster. ``edition``
    grows with every push. With assignments the clusters are of type EDS, else STATIC. Raises ``ValueError`` for counts
    that make no sense.
    """

    clusters: int
    assignments: int
    changed: Changed
    edition: int

    def __post_init__(self) -> None:
        if not 0 <= self.assignments <= self.clusters or not self.clusters:
            raise ValueError(f"{self.clusters} clusters and {self.assignments} assignments")
        if self.changed not in {"all", "one"}:
            raise ValueError(f"changed is {self.changed!r}, neither 'all' nor 'one'")

    def command(self) -> dict[str, Any]:
        """As the peers read it."""
        return {"push": asdict(self)}


@dataclass(slots=True)
class Content:
    """The edition of every resource. A change to another number of resources replaces them all."""

    clusters: list[int] = field(default_factory=list)
    assignments: list[int] = field(default_factory=list)

    def apply(self, change: Change) -> bool:
        """True when everything is to be set anew, False when it is the one resource that differs."""
        reshaped = (len(self.clusters), len(self.assignments)) != (change.clusters, change.assignments)
        if reshaped or change.changed == "all":
            edition = change.edition if change.changed == "all" else 0
            self.clusters = [edition] * change.clusters
            self.assignments = [edition] * change.assignments
        if change.changed == "one":
            (self.assignments or self.clusters)[0] = change.edition
        return reshaped or change.changed == "all"

    @property
    def one(self) -> str:
        """Type URL of the resource that a change of one changes."""
        return ENDPOINT if self.assignments else CLUSTER

    def editions(self, type_url: str) -> list[int]:
        """By index."""
        return self.clusters if type_url == CLUSTER else self.assignments

    def types(self) -> tuple[str, ...]:
        """The types that have resources."""
        return (CLUSTER, ENDPOINT) if self.assignments else (CLUSTER,)

    def value(self, type_url: str, index: int) -> dict[str, Any]:
        """A resource as JSON."""
        edition = self.editions(type_url)[index]
        if type_url == CLUSTER:
            return cluster_value(index, edition, bool(self.assignments))
        return assignment_value(index, edition)

    def body(self, type_url: str, index: int) -> bytes:
        """A resource serialized."""
        edition = self.editions(type_url)[index]
        if type_url == CLUSTER:
            return cluster_body(index, edition, bool(self.assignments))
        return assignment_body(index, edition)

    def every(self) -> Iterator[tuple[str, int]]:
        """Type URL and index of every resource."""
        for type_url in self.types():
            for index in range(len(self.editions(type_url))):
                yield type_url, index


def name_of(index: int) -> str:
    """Of a cluster and of its assignment."""
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
