"""Discovery chains as a few lines of text, so that a test can state what it expects.

``r:web`` is a router, ``s:web`` a splitter, ``x:v1/web@dc1`` a resolver, ``v1/web@dc1`` a target, ``web@peer:east`` a
target of a peer.
"""

from __future__ import annotations

from xds.consul.quantities import duration_text, percent
from xds.mesh.core.chain.chain import ChainTarget, DiscoveryChain, Node, ResolverNode, RouterNode, TargetKey
from xds.mesh.core.chain.request import CompileRequest
from xds.mesh.core.entries.entry import read_entries
from xds.mesh.core.entries.entry_set import ConfigEntries

TRUST_DOMAIN = "td.consul"


def entries_of(text: str) -> ConfigEntries:
    """The entries of a YAML text."""
    return ConfigEntries.of(read_entries(text, "yaml").entries) if text.strip() else ConfigEntries()


def request_of(text: str, service: str = "web", *, has_partitions: bool = True) -> CompileRequest:
    """The plain request for a chain of these entries."""
    return CompileRequest(service, entries_of(text), "dc1", TRUST_DOMAIN, has_partitions=has_partitions)


def lines(chain: DiscoveryChain) -> list[str]:
    """The whole chain: a head, nodes from the start on, targets by name."""
    told = [_head(chain)]
    seen, left = {chain.start_node}, [chain.start_node]
    while left:
        node = chain.nodes[left.pop(0)]
        told.append(_node(chain, node))
        following = [key for key in dict.fromkeys(node.next_nodes) if key not in seen]
        seen.update(following)
        left += following
    assert seen == chain.nodes.keys()
    return told + sorted(_target(target) for target in chain.targets.values())


def short(place: TargetKey) -> str:
    """``v1/web@dc1``."""
    subset = f"{place.subset}/" if place.subset else ""
    return f"{subset}{place.service}@{f'peer:{place.peer}' if place.peer else place.datacenter}"


def _head(chain: DiscoveryChain) -> str:
    default = " default" if chain.is_default else ""
    customized = " customized" if chain.customization_hash else ""
    meta = "".join(f" {key}={value}" for key, value in sorted(chain.service_meta.items()))
    return f"{chain.protocol}{default}{customized}{meta}"


def _key(chain: DiscoveryChain, key: str) -> str:
    node = chain.nodes[key]
    if isinstance(node, ResolverNode):
        return f"x:{short(chain.targets[node.target].key)}"
    return f"{'r' if isinstance(node, RouterNode) else 's'}:{node.name.partition('.')[0]}"


def _node(chain: DiscoveryChain, node: Node) -> str:
    label = _key(chain, node.key)
    if isinstance(node, ResolverNode):
        default = " default" if node.is_default else ""
        failover = "".join(f" {short(chain.targets[one].key)}" for one in node.failover)
        balancer = f" {node.load_balancer.policy}" if node.load_balancer is not None else ""
        timeout = duration_text(node.connect_timeout_ns)
        return f"{label}{default} {timeout}{' failover' if failover else ''}{failover}{balancer}"
    if isinstance(node, RouterNode):
        return f"{label} -> {', '.join(_key(chain, one) for one in node.next_nodes)}"
    legs = ", ".join(f"{percent(one.weight)} {_key(chain, one.next_node)}" for one in node.splits)
    return f"{label} -> {legs}{f' {node.load_balancer.policy}' if node.load_balancer is not None else ''}"


def _target(target: ChainTarget) -> str:
    told = [short(target.key), duration_text(target.connect_timeout_ns)]
    told += [f"gateway={target.mesh_gateway_mode}"] if target.mesh_gateway_mode else []
    told += [f"sni={target.sni} external"] if target.is_external else []
    told += ["dialed-directly"] if target.is_dialed_directly else []
    told += [f"filter={target.subset.filter}"] if target.subset.filter else []
    return " ".join(told)
