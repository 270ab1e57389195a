"""The table of connected clients, and the memories of disconnected ones.

All streams of a client share one `ClientState`. When the last stream ends, the state becomes a memory of the node id.
"""

from __future__ import annotations

from collections.abc import Mapping

from xds.protocol.cache import SnapshotCache, View
from xds.protocol.client import ClientState
from xds.protocol.memory import NO_REJECTIONS, Memories
from xds.protocol.order import OrderRules
from xds.protocol.watch import Watch

ClientKey = tuple[str, str]  # peer address, and node id


class ClientTable:
    """The states of all connected clients, by (peer address, node id).

    ``rejected`` has the resources that nodes rejected before the server started: by node id and type URL, name to
    version. The caller sets it. docs/protocol.md#rejections: "rejections are remembered per node id, also across a
    restart of the server".
    """

    def __init__(self, cache: SnapshotCache, rules: OrderRules) -> None:
        self._cache = cache
        self._rules = rules
        self._states: dict[ClientKey, ClientState] = {}
        self._by_node: dict[str, tuple[ClientState, ...]] = {}
        self.rejected: dict[str, Mapping[str, Mapping[str, str]]] = {}
        self.memories = Memories(2 * (rules.listener_drain_s + rules.removal_delay_s))

    def enter(self, key: ClientKey, view: View | None, now_s: float) -> ClientState:
        """The state of the client of a new stream. `exit` must be called once when the stream ends."""
        state = self._states.get(key)
        if state is None:
            node_id = key[1]
            others = self._by_node.get(node_id, ())
            # A client may reconnect before the end of its broken connection is noticed.
            present = (memory for other in others if (memory := other.past.memory(other, now_s)) is not None)
            memories = (*present, *self.memories.of(node_id, now_s))
            state = self._states[key] = ClientState(self._cache, self._rules, view, memories)
            state.past.rejected_before = self.rejected.get(node_id, NO_REJECTIONS)
            self._by_node[node_id] = (*others, state)
        state.streams += 1
        return state

    def copy(self, key: ClientKey) -> tuple[ClientTable, dict[Watch, Watch]]:
        """A table with a copy of one client only, and the copy of each of its watches (for `DiscoveryStream.copy`)."""
        clone = ClientTable(self._cache, self._rules)
        state, watches = self._states[key].copy()
        clone._states[key], clone._by_node[key[1]] = state, (state,)
        return clone, watches

    def exit(self, key: ClientKey, now_s: float) -> None:
        """A stream of the client ended. Its state is dropped with its last stream (rule 80)."""
        state = self._states[key]
        state.streams -= 1
        if state.streams:
            return
        del self._states[key]
        node_id = key[1]
        others = tuple(other for other in self._by_node[node_id] if other is not state)
        if others:
            self._by_node[node_id] = others
        else:
            del self._by_node[node_id]
        memory = state.past.memory(state, now_s)
        if memory is not None:
            self.memories.keep(node_id, memory)
            self.rejected.pop(node_id, None)  # the memory has these rejections from now on

    def state(self, key: ClientKey) -> ClientState | None:
        """The state of a connected client; None if it has no stream."""
        return self._states.get(key)

    def __len__(self) -> int:
        return len(self._states)
