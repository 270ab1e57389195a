"""The compiler: from config entries to the discovery chain of one service, in named passes.

Pure and deterministic: equal entries and parameters give an equal chain, in any order of the entries.

The passes are `assemble` (in a module of its own), `find_cycles` and `flatten`. `_build` then makes the result.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from xds.consul.quantities import product
from xds.consul.shared import merge_headers
from xds.mesh.core.chain.assembling import assemble
from xds.mesh.core.chain.chain import (
    ChainError,
    ChainSplit,
    DiscoveryChain,
    Flaw,
    ResolverNode,
    SplitterNode,
    path_text,
)
from xds.mesh.core.chain.compilation import HTTP_LIKE, Compilation
from xds.mesh.core.chain.request import CompileRequest, check_request
from xds.mesh.core.entries.entry import Key
from xds.mesh.core.entries.splitter import Split

HASH_LENGTH = 8  # hexadecimal digits

# The number of legs that flattening may make in one chain. Splitters in a diamond double them at every level, and all
# of them share 10,000 basis points.
LEGS_LIMIT = 20_000


@dataclass(frozen=True, slots=True)
class Compiled:
    """A chain, or the error. ``consulted`` has the entries, present or not, that the result depends on."""

    chain: DiscoveryChain | None
    error: ChainError | None
    consulted: frozenset[Key]

    @property
    def service(self) -> str:
        """The service, as the request named it."""
        if self.chain is not None:
            return self.chain.service
        assert self.error is not None
        return self.error.chain


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
    check_request(request)
    compilation = Compilation(request)
    try:
        chain, error = _compile(compilation), None
    except ChainError as raised:
        chain, error = None, raised.with_traceback(None)  # the frames of a traceback would keep the whole state alive
    return Compiled(chain, error, frozenset(compilation.entries.keys))


def _compile(compilation: Compilation) -> DiscoveryChain:
    assemble(compilation)
    order = find_cycles(compilation)
    flatten(compilation, order)
    reachable = _reachable(compilation)
    _check_protocol(compilation)
    _override_protocol(compilation)
    return _build(compilation, reachable)


# The passes after the first.


def find_cycles(compilation: Compilation) -> list[str]:
    """The nodes that the start reaches, each after all nodes that it leads to. Raises ``ChainError`` for a cycle.

    Every node is visited once, however many paths lead to it, and nothing recurses.
    """
    done: dict[str, None] = {}
    path: dict[str, Iterator[str]] = {compilation.start_node: _next_nodes(compilation, compilation.start_node)}
    while path:
        key = next(reversed(path))
        next_key = next(path[key], None)
        if next_key is None:
            del path[key]
            done[key] = None
        elif next_key in path:
            keys = (*path, next_key)
            detail = f"detected circular reference: [{path_text(keys)}]"
            raise ChainError(Flaw.CIRCULAR_REFERENCE, detail, compilation.request.service, keys)
        elif next_key not in done:
            path[next_key] = _next_nodes(compilation, next_key)
    return list(done)


def _next_nodes(compilation: Compilation, key: str) -> Iterator[str]:
    return iter(compilation.nodes[key].next_nodes)


def flatten(compilation: Compilation, order: Iterable[str]) -> None:
    """Flatten all splitters that lead to splitters: a leg to a splitter is replaced by the legs of that splitter.

    ``order`` has each node after all nodes that it leads to. The deepest splitters come first, so that the order of
    rounding does not depend on the order of the entries.
    """
    legs = 0
    for key in order:
        node = compilation.nodes[key]
        if isinstance(node, SplitterNode) and any(
            _splitter_behind(compilation, leg) is not None for leg in node.splits
        ):
            flattened = _flatten_legs(compilation, node, LEGS_LIMIT - legs)
            compilation.record(replace(node, splits=tuple(flattened)))
            legs += len(flattened)


def _splitter_behind(compilation: Compilation, leg: ChainSplit) -> SplitterNode | None:
    node = compilation.nodes[leg.next_node]
    return node if isinstance(node, SplitterNode) else None


def _flatten_legs(compilation: Compilation, node: SplitterNode, limit: int) -> list[ChainSplit]:
    legs: list[ChainSplit] = []
    for leg in node.splits:
        inner = _splitter_behind(compilation, leg)
        if inner is None:
            legs.append(leg)
            continue
        if len(legs) + len(inner.splits) > limit:
            detail = f"splitters within splitters make more than {LEGS_LIMIT} legs"
            path = (node.key, leg.next_node)
            raise ChainError(Flaw.TOO_LARGE, detail, compilation.request.service, path)
        legs += [_compose(leg, one) for one in inner.splits]
    return legs


def _compose(outer: ChainSplit, inner: ChainSplit) -> ChainSplit:
    definition = _merge_definitions(outer.definition, inner.definition)
    return ChainSplit(definition, product(outer.weight, inner.weight), inner.next_node)


def _merge_definitions(outer: Split, inner: Split) -> Split:
    """The inner leg with the header changes of both. Requests pass the outer leg first, responses pass it last."""
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
    reached, pending = {compilation.start_node: None}, [compilation.start_node]
    while pending:
        for key in compilation.nodes[pending.pop()].next_nodes:
            if key not in reached:
                reached[key] = None
                pending.append(key)
    return sorted(reached)


def _check_protocol(compilation: Compilation) -> None:
    if compilation.uses_http and compilation.protocol not in HTTP_LIKE:
        detail = (
            f'discovery chain "{compilation.request.service}" uses a protocol "{compilation.protocol}" '
            "that does not permit advanced routing or splitting behavior"
        )
        raise ChainError(Flaw.PROTOCOL_NOT_HTTP, detail, compilation.request.service, (compilation.start_node,))


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


def _build(compilation: Compilation, reachable: Iterable[str]) -> DiscoveryChain:
    request = compilation.request
    nodes = {key: compilation.nodes[key] for key in reachable}
    targets = dict(sorted(compilation.targets.items()))
    start = nodes[compilation.start_node]
    return DiscoveryChain(
        service=request.service,
        datacenter=request.datacenter,
        protocol=compilation.protocol,
        start_node=compilation.start_node,
        nodes=nodes,
        targets=targets,
        # It only resolves the service itself by default, in any datacenter.
        is_default=isinstance(start, ResolverNode)
        and start.is_default
        and targets[start.target].key.service == request.service,
        customization_hash=_customization_hash(compilation),
        service_meta=compilation.service_meta,
        envoy_extensions=compilation.envoy_extensions,
        has_partitions=request.has_partitions,
    )
