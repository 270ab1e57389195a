"""A function of the program that chooses the group of each node, made safe for the engine."""

from __future__ import annotations

from threading import Lock

import structlog

from xds.model.node import Node
from xds.snapshots.membership import ChooseGroup

NO_GROUP = ""
FAULTS_LOGGED = 100

_log = structlog.get_logger(logger_name="xds.embed")


class GuardedChoice:
    """Calls the function that chooses the group of a node. If it raises or returns a wrong type, the node has no group.

    A node without a group keeps its configuration and waits. ``failures`` counts these faults; each kind is logged
    once.
    """

    def __init__(self, choose: ChooseGroup) -> None:
        self.failures = 0
        self._choose = choose
        self._logged: set[str] = set()
        self._lock = Lock()  # nodes are also matched in other threads

    def __call__(self, node: Node) -> str | None:
        """The group of a node; empty after a fault. None: selectors and names decide."""
        try:
            group = self._choose(node)
        except Exception as error:
            self._record_fault(node, f"{type(error).__name__}: {error}", type(error).__name__)
            return NO_GROUP
        if group is not None and not isinstance(group, str):
            self._record_fault(node, f"expected the name of a group or None, not {type(group).__name__}", "type")
            return NO_GROUP
        return group

    def _record_fault(self, node: Node, message: str, fault: str) -> None:
        with self._lock:
            self.failures += 1
            is_new = fault not in self._logged and len(self._logged) < FAULTS_LOGGED
            self._logged.add(fault)
        if is_new:
            _log.error("group_of.failed", node_id=node.id[:200], error_message=message, exc_info=fault != "type")
