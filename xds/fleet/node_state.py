"""The state of a node with all its streams. Times are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass

from xds.fleet.polls import Polls
from xds.fleet.state import HeldResources, LingeringResources, StreamState, TypeState
from xds.model.node import Locality


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node id with all its streams.

    ``types`` merges the streams (a client may use one per type, or several per type): the worst state wins. A node
    without streams polls, or disconnected at ``last_seen``; ``types`` is then its last state. ``lingering`` are the
    oldest lingering resources, ``lingering_total`` counts all of them; ``held`` are the held resources. ``reporters``
    counts the load report streams, which are not among ``streams``. ``polls`` are its polls since its last stream was
    opened.
    """

    id: str
    cluster: str
    locality: Locality
    group: str
    user_agent: str
    first_seen: float
    last_seen: float
    streams: tuple[StreamState, ...] = ()
    types: tuple[TypeState, ...] = ()
    lingering: tuple[LingeringResources, ...] = ()
    lingering_total: int = 0
    held: tuple[HeldResources, ...] = ()
    reporters: int = 0
    polls: Polls | None = None

    @property
    def connected(self) -> bool:
        """Whether the node has an open stream, of load reports too."""
        return bool(self.streams) or self.reporters > 0

    def is_present(self, now: float) -> bool:
        """Whether the node is connected, or polls and has not missed three polls."""
        return self.connected or (self.polls is not None and self.polls.are_going_on(now))

    @property
    def principals(self) -> tuple[str, ...]:
        """The authenticated principals of its connections."""
        return tuple(sorted({stream.principal for stream in self.streams if stream.principal}))
