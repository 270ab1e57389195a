"""The compiler: from config entries to the discovery chain of one service, in named passes.

Pure and deterministic: equal entries and parameters give an equal chain, in any order of the entries.

The passes: `assemble` (a module of its own), `find_cycles`, `flatten`; then the result is put together.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from xds.catalog.entry import Key
from xds.catalog.quantities import product
from xds.catalog.shared import merge_headers
from xds.catalog.splitter import Split
from xds.chain.assembling import assemble
from xds.chain.chain import (
    SPLITTER,
    ChainError,
    ChainSplit,
    ChainTarget,
    DiscoveryChain,
    Flaw,
    Node,
    ResolverNode,
    RouterNode,
    SplitterNode,
    node_key,
    path_text,
)
from xds.chain.compilation import (
    HTTP_LIKE,
    Compilation,
    NodeDraft,
    ResolverDraft,
    RouterDraft,
    SplitterDraft,
    TargetDraft,
)
from xds.chain.request import CompileRequest, check_request

HASH_LENGTH = 8  # hexadecimal digits

# The number of legs that flattening may make in one chain. Splitters in a diamond double them at every level, and all
# of them share 10,000 basis points.
LEGS_LIMIT = 20_000


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


# The passes after the first.


def find_cycles(compilation: Compilation) -> list[str]:
    """The nodes that the start reaches, each after all nodes that it leads to. Raises ``ChainError`` for a cycle.

    Every node is visited once, however many paths lead to it, and nothing recurses.
    """
    done: dict[str, None] = {}
    path: dict[str, Iterator[str]] = {compilation.start_node: _following(compilation, compilation.start_node)}
    while path:
        key = next(reversed(path))
        below = next(path[key], None)
        if below is None:
            del path[key]
            done[key] = None
        elif below in path:
            keys = (*path, below)
            told = f"detected circular reference: [{path_text(keys)}]"
            raise ChainError(Flaw.CIRCULAR_REFERENCE, told, compilation.request.service, keys)
        elif below not in done:
            path[below] = _following(compilation, below)
    return list(done)


def _following(compilation: Compilation, key: str) -> Iterator[str]:
    return iter(compilation.nodes[key].next_nodes())


def flatten(compilation: Compilation, order: Iterable[str]) -> None:
    """Flatten all splitters that lead to splitters: a splitter takes over the legs of those below it.

    ``order``: each node after all nodes that it leads to. The deepest come first, so that weights are rounded in the
    same order whatever the order of the entries.
    """
    made = 0
    for key in order:
        node = compilation.nodes[key]
        if isinstance(node, SplitterDraft) and any(_inner(compilation, leg) is not None for leg in node.splits):
            node.splits = _flattened(compilation, node, LEGS_LIMIT - made)
            made += len(node.splits)


def _inner(compilation: Compilation, leg: ChainSplit) -> SplitterDraft | None:
    found = compilation.nodes[leg.next_node]
    return found if isinstance(found, SplitterDraft) else None


def _flattened(compilation: Compilation, node: SplitterDraft, limit: int) -> list[ChainSplit]:
    legs: list[ChainSplit] = []
    for leg in node.splits:
        inner = _inner(compilation, leg)
        if inner is None:
            legs.append(leg)
            continue
        if len(legs) + len(inner.splits) > limit:
            told = f"splitters within splitters make more than {LEGS_LIMIT} legs"
            path = (node_key(SPLITTER, node.name), leg.next_node)
            raise ChainError(Flaw.TOO_LARGE, told, compilation.request.service, path)
        legs += [_taken_over(leg, one) for one in inner.splits]
    return legs


def _taken_over(outer: ChainSplit, inner: ChainSplit) -> ChainSplit:
    definition = _merged(outer.definition, inner.definition)
    return ChainSplit(definition, product(outer.weight, inner.weight), inner.next_node)


def _merged(outer: Split, inner: Split) -> Split:
    """The inner leg with the changes of both: requests pass the outer one first, responses last."""
    changes = (outer.request_headers, outer.response_headers, inner.request_headers, inner.response_headers)
    if changes == (None, None, None, None):
        return inner
    return replace(
        inner,
        request_headers=merge_headers(outer.request_headers, inner.request_headers),
        response_headers=merge_headers(inner.response_headers, outer.response_headers),
    )


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


# The result.


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
