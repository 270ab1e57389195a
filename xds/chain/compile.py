"""The compiler: config entries to the discovery chain of one service, in named passes.

Pure and deterministic: equal entries and parameters give an equal chain, in whatever order the entries came.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

from xds.catalog.entry import Key
from xds.chain.assembly import assemble
from xds.chain.chain import DiscoveryChain, Node, ResolverNode, RouterNode, SplitterNode, Target
from xds.chain.cycles import find_cycles
from xds.chain.errors import ChainError, Flaw
from xds.chain.flattening import flatten
from xds.chain.protocol import HTTP_LIKE
from xds.chain.request import CompileRequest, check_request
from xds.chain.state import NodeDraft, ResolverDraft, RouterDraft, State, TargetDraft

HASH_LENGTH = 8  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class Compiled:
    """A chain, or why there is none; ``consulted`` are the entries, present or not, that the outcome depends on."""

    chain: DiscoveryChain | None
    error: ChainError | None
    consulted: frozenset[Key]


def compile_chain(request: CompileRequest) -> DiscoveryChain:
    """The chain of a service; without any entries, the default one.

    Raises ``RequestError`` for wrong parameters, ``ChainError`` where entries contradict each other.
    """
    compiled = compile_recorded(request)
    if compiled.chain is None:
        assert compiled.error is not None
        raise compiled.error
    return compiled.chain


def compile_recorded(request: CompileRequest) -> Compiled:
    """As ``compile_chain``, with what the outcome depends on. Raises ``RequestError``."""
    state = State(request, check_request(request))
    try:
        chain, error = _compiled(state), None
    except ChainError as raised:
        chain, error = None, raised.with_traceback(None)  # whose frames hold the whole state
    return Compiled(chain, error, frozenset(state.entries.keys))


def _compiled(state: State) -> DiscoveryChain:
    assemble(state)
    order = find_cycles(state)
    flatten(state, order)
    kept = _reachable(state)
    _check_protocol(state)
    _override_protocol(state)
    return _sealed(state, kept)


def _reachable(state: State) -> list[str]:
    """What the start still leads to: splitters that were taken over go away."""
    seen, left = {state.start_node: None}, [state.start_node]
    while left:
        for key in state.nodes[left.pop()].next_nodes():
            if key not in seen:
                seen[key] = None
                left.append(key)
    return sorted(seen)


def _check_protocol(state: State) -> None:
    if state.uses_http and state.protocol not in HTTP_LIKE:
        told = (
            f'discovery chain "{state.request.service}" uses a protocol "{state.protocol}" '
            "that does not permit advanced routing or splitting behavior"
        )
        raise ChainError(Flaw.PROTOCOL_NOT_HTTP, told, state.request.service, (state.start_node,))


def _override_protocol(state: State) -> None:
    if state.override_protocol and state.override_protocol != state.protocol:
        state.protocol = state.override_protocol
        state.customized.protocol = True


def _customization_hash(state: State) -> str:
    """Of the overrides that changed something; empty where none did. The digits mean nothing."""
    overrides, customized = state.request.overrides, state.customized
    effective = (
        overrides.mesh_gateway_mode if customized.mesh_gateway else "",
        state.override_protocol if customized.protocol else "",
        overrides.connect_timeout_ns if customized.connect_timeout else 0,
    )
    if not any(effective):
        return ""
    return hashlib.sha256(json.dumps(effective).encode()).hexdigest()[:HASH_LENGTH]


# The result


def _sealed(state: State, kept: Iterable[str]) -> DiscoveryChain:
    request = state.request
    nodes = {key: _node(state.nodes[key]) for key in kept}
    targets = {one: _target(state.targets[one]) for one in sorted(state.retained)}
    return DiscoveryChain(
        service=request.service,
        namespace=request.namespace,
        partition=request.partition,
        datacenter=request.datacenter,
        protocol=state.protocol,
        start_node=state.start_node,
        nodes=nodes,
        targets=targets,
        is_default=_is_default(request, nodes[state.start_node], targets),
        customization_hash=_customization_hash(state),
        service_meta=state.service_meta,
        envoy_extensions=state.envoy_extensions,
        auto_virtual_ips=request.auto_virtual_ips,
        manual_virtual_ips=request.manual_virtual_ips,
        has_partitions=request.has_partitions,
    )


def _is_default(request: CompileRequest, start: Node, targets: dict[str, Target]) -> bool:
    """True where the chain does nothing: the service itself, resolved by default, in whatever datacenter."""
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


def _target(draft: TargetDraft) -> Target:
    return Target(
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
