"""Several servers on one clock, and connections of which a server does not notice that they are broken."""

from __future__ import annotations

from tests.support.sansio import Client, Server
from xds.protocol.events import Event, TransitionAdvanced

NODE = "node"  # the node id of all clients


class Fleet:
    """Servers that hold the same content and share the time. A client is connected to one of them at a time."""

    def __init__(self, size: int) -> None:
        self.now = 0.0
        self.history: list[tuple[Client, Event]] = []
        self.servers: list[Replica] = []
        for _ in range(size):
            self.servers.append(Replica(self))

    @property
    def is_many(self) -> bool:
        """Whether clients can move."""
        return len(self.servers) > 1


class Replica(Server):
    """One of the servers: whichever of them is told that time passes, it passes for all."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        super().__init__()
        self.history = fleet.history

    @property
    def now(self) -> float:
        """The time of all servers."""
        return self._fleet.now

    @now.setter
    def now(self, now: float) -> None:
        self._fleet.now = max(now, self._fleet.now)

    def restart(self) -> None:
        """Start a new process with the same store: it has what nodes refused, and the groups that they followed."""
        clients, refused = self.clients, self.cache.refused_versions()
        super().restart()
        self.clients.rejected = clients.rejected
        self.clients.restore_followed(NODE, clients.followed(NODE))
        for (url, name), versions in refused.items():
            self.cache.note_refused(url, {name: versions})

    def timed(self) -> list[Client]:
        """The streams of all servers."""
        return [client for server in self._fleet.servers for client in server.streams]


class HalfOpen(Client):
    """The server's side of a stream whose client is gone: what it sends arrives nowhere."""

    def __init__(self, client: Client) -> None:
        self.server, self.stream = client.server, client.stream
        self.server.streams.remove(client)
        self.server.streams.append(self)
        client.connect()  # its next stream, which has no node yet

    def take(self, events: list[Event]) -> list[Event]:
        """Drop what is sent; the client's other streams are notified."""
        if any(isinstance(event, TransitionAdvanced) for event in events):
            self._wake_others()
        return events

    def notice(self) -> None:
        """The server notices that the connection is broken."""
        self.server.streams.remove(self)
        if self.stream.close(self.server.now):
            self._wake_others()
