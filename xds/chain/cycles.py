"""The second pass: no node may lead back to itself."""

from __future__ import annotations

from collections.abc import Iterator

from xds.chain.chain_errors import ChainError, Flaw, path_text
from xds.chain.compilation import Compilation


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
