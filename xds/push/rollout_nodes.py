"""The nodes that a rollout is for, as one server knows them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from xds.fleet.fleet import Fleet
from xds.push.rollout_pushes import GroupNodes
from xds.rollouts.wave import kind

NODES_AT_ONCE = 500
KNOWS_AFTER_S = 60.0  # a server that has started just now does not know yet who follows a group


class NodesHere:
    """The nodes of this server. ``reports_load`` says of a node whether it reports load."""

    def __init__(self, fleet: Fleet, reports_load: Callable[[str], bool] = lambda _: False) -> None:
        self._fleet = fleet
        self._reports_load = reports_load
        self._started_s = monotonic()

    async def nodes(self, group: str) -> GroupNodes:
        """The nodes of a group. Streams are served between batches of nodes."""
        kinds: dict[str, str] = {}
        reports_load = False
        nodes = self._fleet.identified(group)
        for start in range(0, len(nodes), NODES_AT_ONCE):
            batch = nodes[start : start + NODES_AT_ONCE]
            kinds.update((node.id, kind(node)) for node in batch)
            reports_load = reports_load or any(self._reports_load(node.id) for node in batch)
            await asyncio.sleep(0)
        is_new = monotonic() - self._started_s < KNOWS_AFTER_S
        return GroupNodes(kinds, bool(kinds) or is_new or self._fleet.is_followed(group), reports_load)
