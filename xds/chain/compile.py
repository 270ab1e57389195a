"""The compiler: from config entries to the discovery chain of one service, in named passes.

Pure and deterministic: equal entries and parameters give an equal chain, in any order of the entries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from xds.catalog.entry import Key
from xds.chain.assembling import assemble
from xds.chain.chain import ChainTarget, DiscoveryChain, Node, ResolverNode, RouterNode, SplitterNode
from xds.chain.chain_errors import ChainError, Flaw
from xds.chain.compilation import Compilation, NodeDraft, ResolverDraft, RouterDraft, TargetDraft
from xds.chain.cycles import find_cycles
from xds.chain.flattening import flatten
from xds.chain.protocol import HTTP_LIKE
from xds.chain.request import CompileRequest, check_request

HASH_LENGTH = 8  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class Compiled:
    """A chain, or the error. ``consulted`` are the entries, present or not, that the result depends on."""

    chain: DiscoveryChain | None
    error: ChainError | None
    consulted: frozenset[Key]


def compile_chain(request: CompileRequest) -> DiscoveryChain:
    """The chain of a service; the default chain if there are no entries.

    Raises ``CompileRequestError`` for wrong parameters, ``ChainError`` if entries contradict each other.
    """
    compiled = compile_recorded(request)
    if compiled.chain is None:
        assert compiled.error is not None
        raise compiled.error
    return compiled.chain


def compile_recorded(request: CompileRequest) -> Compiled:
    """As ``compile_chain``, with the entries that the result depends on. Raises ``CompileRequestError``."""
    compilation = Compilation(request, check_request(request))
    try:
        chain, error = _compiled(compilation), None
    except ChainError as raised:
        chain, error = None, raised.with_traceback(None)  # without the traceback, whose frames hold the whole state
    return Compiled(chain, error, frozenset(compilation.entries.keys))


def _compiled(compilation: Compilation) -> DiscoveryChain:
    assemble(compilation)
    order = find_cycles(compilation)
    flatten(compilation, order)
    kept = _reachable(compilation)
    _check_protocol(compilation)
    _override_protocol(compilation)
    return _sealed(compilation, kept)


def _reachable(compilation: Compilation) -> list[str]:
    """The nodes that the start leads to. Splitters that were flattened into others are left out."""
    seen, left = {compilation.start_node: None}, [compilation.start_node]
    while left:
        for key in compilation.nodes[left.pop()].next_nodes():
            if key not in seen:
                seen[key] = None
                left.append(key)
    return sorted(seen)


def _check_protocol(compilation: Compilation) -> None:
    if compilation.uses_http and compilation.protocol not in HTTP_LIKE:
        told = (
            f'discovery chain "{compilation.request.service}" uses a protocol "{compilation.protocol}" '
            "that does not permit advanced routing or splitting behavior"
        )
        raise ChainError(Flaw.PROTOCOL_NOT_HTTP, told, compilation.request.service, (compilation.start_node,))


def _override_protocol(compilation: Compilation) -> None:
    if compilation.override_protocol and compilation.override_protocol != compilation.protocol:
        compilation.protocol = compilation.override_protocol
        compilation.customized.protocol = True


def _customization_hash(compilation: Compilation) -> str:
    """The hash of the overrides that had an effect; empty if none had. Its digits have no meaning."""
    overrides, customized = compilation.request.overrides, compilation.customized
    effective = (
        overrides.mesh_gateway_mode if customized.mesh_gateway else "",
        compilation.override_protocol if customized.protocol else "",
        overrides.connect_timeout_ns if customized.connect_timeout else 0,
    )
    if not any(effective):
        return ""
    return hashlib.sha256(json.dumps(effective).encode()).hexdigest()[:HASH_LENGTH]


# The result


def _sealed(compilation: Compilation, kept: Iterable[str]) -> DiscoveryChain:
    request = compilation.request
    nodes = {key: _node(compilation.nodes[key]) for key in kept}
    targets = {one: _target(compilation.targets[one]) for one in sorted(compilation.retained)}
    return DiscoveryChain(
        service=request.service,
        namespace=request.namespace,
        partition=request.partition,
        datacenter=request.datacenter,
        protocol=compilation.protocol,
        start_node=compilation.start_node,
        nodes=nodes,
        targets=targets,
        is_default=_is_default(request, nodes[compilation.start_node], targets),
        customization_hash=_customization_hash(compilation),
        service_meta=compilation.service_meta,
        envoy_extensions=compilation.envoy_extensions,
        auto_virtual_ips=request.auto_virtual_ips,
        manual_virtual_ips=request.manual_virtual_ips,
        has_partitions=request.has_partitions,
    )


def _is_default(request: CompileRequest, start: Node, targets: dict[str, ChainTarget]) -> bool:
    """Whether the chain only resolves the service itself by default, in any datacenter."""
    if not isinstance(start, ResolverNode) or not start.is_default:
        return False
    place = targets[start.target].place
    here = (request.service, request.namespace, request.partition)
    return (place.service, place.namespace, place.partition) == here


def _node(draft: NodeDraft) -> Node:
    if isinstance(draft, RouterDraft):
        return RouterNode(draft.name, tuple(draft.routes))
    if isinstance(draft, ResolverDraft):
        return ResolverNode(
            draft.name,
            draft.target.id,
            draft.is_default,
            draft.connect_timeout_ns,
            draft.request_timeout_ns,
            tuple(draft.failover),
            draft.load_balancer,
        )
    return SplitterNode(draft.name, tuple(draft.splits), draft.load_balancer)


def _target(draft: TargetDraft) -> ChainTarget:
    return ChainTarget(
        draft.id,
        draft.place,
        draft.name,
        draft.sni,
        draft.subset,
        draft.connect_timeout_ns,
        draft.mesh_gateway_mode,
        draft.is_dialed_directly,
        draft.outbound_listener_port,
        draft.is_external,
        draft.locality,
    )
