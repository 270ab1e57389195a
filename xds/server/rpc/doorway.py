"""Connections that come at once are read some at a time: Envoy's first request has 61 kB, and thousands would be read
into memory before the first of them is taken up."""

from __future__ import annotations

import asyncio
from typing import Protocol

from xds.server.admission import FIRST_MESSAGE_S

PLACES = 256


class Guest(Protocol):
    """A connection that has just come."""

    def wait_outside(self) -> None: ...
    def come_in(self) -> None: ...


class Doorway:
    """First come, first read. A place is kept until the first request is taken up, or for a moment."""

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._inside: dict[Guest, asyncio.TimerHandle] = {}
        self._line: dict[Guest, None] = {}

    def enter(self, guest: Guest) -> None:
        """A connection has come: it waits unless there is a place."""
        if len(self._inside) < self._places:
            self._admit(guest)
        else:
            self._line[guest] = None
            guest.wait_outside()

    def leave(self, guest: Guest) -> None:
        """Its first request is taken up, or it is gone. Harmless when repeated."""
        timer = self._inside.pop(guest, None)
        if timer is None:
            self._line.pop(guest, None)
            return
        timer.cancel()
        while self._line and len(self._inside) < self._places:
            following = next(iter(self._line))
            del self._line[following]
            self._admit(following)
            following.come_in()

    def _admit(self, guest: Guest) -> None:
        self._inside[guest] = asyncio.get_running_loop().call_later(FIRST_MESSAGE_S, self.leave, guest)
