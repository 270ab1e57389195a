"""Names of nodes and targets, and their TLS server names. They are opaque to clients, and equal to Consul's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xds.catalog.shared import DEFAULT

ROUTER, SPLITTER, RESOLVER = "router", "splitter", "resolver"


class TargetKey(NamedTuple):
    """The identity of a target: a set of instances and its place."""

    service: str
    subset: str
    namespace: str
    partition: str
    datacenter: str
    peer: str


def node_key(kind: str, name: str) -> str:
    """The key of a node in a chain."""
    return f"{kind}:{name}"


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one compilation; ``has_partitions`` as in the request."""

    trust_domain: str
    has_partitions: bool

    def service(self, name: str) -> str:
        """The name of a router or splitter."""
        return f"{name}.{DEFAULT}.{DEFAULT}" if self.has_partitions else f"{name}.{DEFAULT}"

    def target(self, place: TargetKey) -> str:
        """The ID of a target. A target of a peer has no subset and no datacenter."""
        partition = f".{place.partition}" if self.has_partitions else ""
        if place.peer:
            return f"{place.service}.{place.namespace}{partition}.external.{place.peer}"
        subset = f"{place.subset}." if place.subset else ""
        return f"{subset}{place.service}.{place.namespace}{partition}.{place.datacenter}"

    def sni(self, place: TargetKey) -> str:
        """The TLS server name of a target; empty for a target of a peer."""
        if place.peer:
            return ""
        subset = f"{place.subset}." if place.subset else ""
        return f"{subset}{place.service}.{place.namespace}.{place.datacenter}.internal.{self.trust_domain}"
