"""The names of lowered resources, equal to those that Consul uses for its proxies. Pure."""

from __future__ import annotations

from xds.mesh.core.chain.chain import ChainTarget, DiscoveryChain, Naming, SplitterNode
from xds.mesh.core.lower.upstreams import Upstream


def cluster_name(chain: DiscoveryChain, target: ChainTarget) -> str:
    """The cluster of a target, with the hash of the chain's overrides as a prefix: ``1a2b3c4d~web.default.dc1...``."""
    return f"{chain.customization_hash}~{target.name}" if chain.customization_hash else target.name


def leg_name(base: str, index: int) -> str:
    """The cluster of one target of a failover; ``base`` is that of the first target, whose index is 0."""
    return f"failover-target~{index}~{base}"


def listener_name(upstream: Upstream) -> str:
    """The listener of an upstream: name, address and port; for gRPC clients without a proxy, its name alone."""
    if not upstream.is_proxied:
        return upstream.name
    return f"{upstream.name}:{upstream.bind_address}:{upstream.bind_port}"


def route_name(upstream: Upstream) -> str:
    """The route configuration of an upstream, and its one virtual host."""
    return upstream.name


def service_of(chain: DiscoveryChain, node: SplitterNode) -> str:
    """The service of a splitter node, from the node's name: service, namespace, and partition if there is one."""
    return node.name.rsplit(".", 2 if chain.has_partitions else 1)[0]


def stat_prefix(chain: DiscoveryChain) -> str:
    """The prefix of a listener's statistics."""
    return ".".join(("upstream", Naming("", chain.has_partitions).service(chain.service), chain.datacenter))
