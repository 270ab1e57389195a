"""Names of nodes and targets, and of what TLS asks for. Opaque to clients, and equal to Consul's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xds.catalog.shared_rules import DEFAULT

ROUTER, SPLITTER, RESOLVER = "router", "splitter", "resolver"


class TargetKey(NamedTuple):
    """What a target is: a set of instances, by where they are."""

    service: str
    subset: str
    namespace: str
    partition: str
    datacenter: str
    peer: str


def node_key(kind: str, name: str) -> str:
    """What a node is found under."""
    return f"{kind}:{name}"


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one compilation; ``has_partitions`` as in the request."""

    trust_domain: str
    has_partitions: bool

    def service(self, name: str) -> str:
        """A router's or splitter's name."""
        return f"{name}.{DEFAULT}.{DEFAULT}" if self.has_partitions else f"{name}.{DEFAULT}"

    def target(self, place: TargetKey) -> str:
        """A target's ID. A peer's has no subset and no datacenter."""
        partition = f".{place.partition}" if self.has_partitions else ""
        if place.peer:
            return f"{place.service}.{place.namespace}{partition}.external.{place.peer}"
        subset = f"{place.subset}." if place.subset else ""
        return f"{subset}{place.service}.{place.namespace}{partition}.{place.datacenter}"

    def sni(self, place: TargetKey) -> str:
        """What a target is called in TLS; nothing is known of a peer's."""
        if place.peer:
            return ""
        subset = f"{place.subset}." if place.subset else ""
        return f"{subset}{place.service}.{place.namespace}.{place.datacenter}.internal.{self.trust_domain}"
