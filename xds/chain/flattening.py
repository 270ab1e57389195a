"""The third pass: a splitter that leads to a splitter takes over its legs.

The deepest come first, so that weights are rounded in the same order whatever the order of the entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from xds.catalog.quantities import product
from xds.catalog.shared import merge_headers
from xds.catalog.splitter import Split
from xds.chain.chain import ChainSplit
from xds.chain.chain_errors import ChainError, Flaw
from xds.chain.compilation import Compilation, SplitterDraft
from xds.chain.node_names import SPLITTER, node_key

# The number of legs that flattening may make in one chain. Splitters in a diamond double them at every level, and all
# of them share 10,000 basis points.
LEGS_LIMIT = 20_000


def flatten(compilation: Compilation, order: Iterable[str]) -> None:
    """Flatten all splitters that lead to splitters. ``order``: each node after all nodes that it leads to."""
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
