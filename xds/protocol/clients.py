"""The clients that are connected: who shares a transition with whom."""

from __future__ import annotations

from xds.protocol.order import AssignmentsOf, Gate, OrderRules, UnionOf


class ClientTable:
    """The gates of all connected clients, by (peer address, node id)."""

    def __init__(self, rules: OrderRules, union_of: UnionOf, assignments_of: AssignmentsOf) -> None:
        self._rules = rules
        self._union_of = union_of
        self._assignments_of = assignments_of
        self._gates: dict[tuple[str, str], Gate] = {}

    def enter(self, key: tuple[str, str]) -> Gate:
        """The gate of a client, shared by its streams; each stream enters and leaves once."""
        gate = self._gates.get(key)
        if gate is None:
            gate = self._gates[key] = Gate(self._rules, self._union_of, self._assignments_of)
        gate.streams += 1
        return gate

    def exit(self, key: tuple[str, str]) -> None:
        """Rule 80: a client's state goes with its last stream."""
        gate = self._gates[key]
        gate.streams -= 1
        if not gate.streams:
            del self._gates[key]

    def __len__(self) -> int:
        return len(self._gates)
