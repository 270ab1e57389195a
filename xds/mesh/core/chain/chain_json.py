"""The JSON of a compiled chain, with the names and omissions of Consul; the JSON of a request's walk through a chain.

As in Consul, RequestTimeout of a resolver and TTL of a cookie are integers of nanoseconds.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from xds.consul.quantities import duration_text, percent
from xds.consul.shape import write_message
from xds.consul.shared import DEFAULT
from xds.mesh.core.chain.chain import (
    RESOLVER,
    ROUTER,
    SPLITTER,
    ChainSplit,
    ChainTarget,
    DiscoveryChain,
    Node,
    ResolverNode,
    RouterNode,
)
from xds.mesh.core.chain.request_walk import HttpRequest, Walk, Way

Json = dict[str, Any]


def response_json(chain: DiscoveryChain) -> Json:
    """The answer of the API: ``{"Chain": {...}}``."""
    return {"Chain": chain_json(chain)}


def chain_json(chain: DiscoveryChain) -> Json:
    """The ``CompiledDiscoveryChain``. Without partitions it has the form of Consul before 1.11."""
    document = {
        "ServiceName": chain.service,
        "Namespace": DEFAULT,
        "Partition": DEFAULT,
        "Datacenter": chain.datacenter,
        **_non_empty(
            CustomizationHash=chain.customization_hash,
            Default=chain.is_default,
            Protocol=chain.protocol,
            ServiceMeta=dict(sorted(chain.service_meta.items())),
            EnvoyExtensions=[write_message(one) for one in chain.envoy_extensions],
            StartNode=chain.start_node,
            Nodes={key: _node(node, has_definitions=chain.has_partitions) for key, node in chain.nodes.items()},
            Targets={id: _target(target, chain.has_partitions) for id, target in chain.targets.items()},
        ),
        "AutoVirtualIPs": None,
        "ManualVirtualIPs": None,
    }
    return document if chain.has_partitions else _without(document, _NOT_BEFORE_PARTITIONS)


# Fields of the chain, and of its targets, that Consul before 1.11 does not have.
_NOT_BEFORE_PARTITIONS = (
    *("Partition", "Default", "ServiceMeta", "EnvoyExtensions", "AutoVirtualIPs", "ManualVirtualIPs"),
    *("TransparentProxy", "ConnectTimeout"),
)


def _without(document: Json, names: Collection[str]) -> Json:
    return {name: value for name, value in document.items() if name not in names}


def _non_empty(**fields: object) -> Json:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value}


# Nodes


def _node(node: Node, *, has_definitions: bool) -> Json:
    if isinstance(node, RouterNode):
        routes = [{"Definition": write_message(one.definition), "NextNode": one.next_node} for one in node.routes]
        return {"Type": ROUTER, "Name": node.name, "Routes": routes}
    if isinstance(node, ResolverNode):
        return {"Type": RESOLVER, "Name": node.name, "Resolver": _resolver(node), **_load_balancer(node.load_balancer)}
    splits = [_split(one, has_definitions) for one in node.splits]
    return {"Type": SPLITTER, "Name": node.name, "Splits": splits, **_load_balancer(node.load_balancer)}


def _split(split: ChainSplit, has_definition: bool) -> Json:
    definition = {"Definition": write_message(split.definition)} if has_definition else {}
    return {**definition, **_non_empty(Weight=percent(split.weight)), "NextNode": split.next_node}


def _load_balancer(balancer: object) -> Json:
    return {} if balancer is None else {"LoadBalancer": write_message(balancer)}


def _resolver(node: ResolverNode) -> Json:
    return _non_empty(
        Default=node.is_default,
        ConnectTimeout=duration_text(node.connect_timeout_ns),
        RequestTimeout=node.request_timeout_ns,
        Target=node.target,
        Failover={"Targets": list(node.failover)} if node.failover else None,
    )


# Targets


def _target(target: ChainTarget, has_partitions: bool) -> Json:
    key = target.key
    document = {
        **_non_empty(
            ID=target.id,
            Service=key.service,
            ServiceSubset=key.subset,
            Namespace=DEFAULT,
            Partition=DEFAULT,
            Datacenter=key.datacenter,
            Peer=key.peer,
        ),
        "MeshGateway": _non_empty(Mode=target.mesh_gateway_mode),
        "Subset": write_message(target.subset),
        "TransparentProxy": _non_empty(DialedDirectly=target.is_dialed_directly),
        **_non_empty(
            ConnectTimeout=duration_text(target.connect_timeout_ns),
            External=target.is_external,
            SNI=target.sni,
            Name=target.name,
        ),
    }
    return document if has_partitions else _without(document, _NOT_BEFORE_PARTITIONS)


def walk_json(chain: DiscoveryChain, request: HttpRequest, walk: Walk) -> Json:
    """The chain, the request, the routes that were tried in order, and the resolvers where the request may end.

    ``routes`` have a ``route`` number from 1 and a ``mismatch``, empty for the last one, which matches. ``next_node``
    is the node that the router leads to; without a router it is the start. Each of ``ways`` gets ``weight`` percent of
    such requests. ``path`` is the path that the service receives.
    """
    return {
        **response_json(chain),
        "request": {
            "method": request.method,
            "path": request.path,
            "query": [list(each) for each in request.query],
            "headers": [list(each) for each in request.headers],
        },
        "routes": [{"route": one.index + 1, "matches": one.matches, "mismatch": one.mismatch} for one in walk.tried],
        "next_node": walk.node,
        "path": walk.path,
        "ways": [_way(one) for one in walk.ways],
    }


def _way(way: Way) -> Json:
    return {
        "weight": percent(way.weight),
        "resolver": way.resolver.key,
        "target": way.resolver.target,
        "failover": list(way.resolver.failover),
    }
