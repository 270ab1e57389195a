"""The second pass: no node may lead back to itself."""

from __future__ import annotations

from collections.abc import Iterator

from xds.chain.errors import ChainError, Flaw, path_text
from xds.chain.state import State


def find_cycles(state: State) -> list[str]:
    """The nodes that the start reaches, each behind all that it leads to. Raises ``ChainError`` for a cycle.

    Every node is entered once, however many ways lead to it, and nothing recurses.
    """
    done: dict[str, None] = {}
    path: dict[str, Iterator[str]] = {state.start_node: _following(state, state.start_node)}
    while path:
        key = next(reversed(path))
        below = next(path[key], None)
        if below is None:
            del path[key]
            done[key] = None
        elif below in path:
            keys = (*path, below)
            told = f"detected circular reference: [{path_text(keys)}]"
            raise ChainError(Flaw.CIRCULAR_REFERENCE, told, state.request.service, keys)
        elif below not in done:
            path[below] = _following(state, below)
    return list(done)


def _following(state: State, key: str) -> Iterator[str]:
    return iter(state.nodes[key].next_nodes())
