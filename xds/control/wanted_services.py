"""The names of the services that something here uses, so that sources need not observe all others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable


class WantedServices:
    """The union of what each user wants. ``changed`` is called with the new union."""

    def __init__(self, changed: Callable[[frozenset[str]], None]) -> None:
        self.names: frozenset[str] = frozenset()
        self._changed = changed
        self._users: dict[str, frozenset[str]] = {}
        self._event = asyncio.Event()

    def assign(self, user: str, services: Iterable[str]) -> None:
        """Replace what one user wants. ``user`` is any name that is its own."""
        found = frozenset(services)
        if self._users.get(user, frozenset()) == found:
            return
        if found:
            self._users[user] = found
        else:
            del self._users[user]
        names = frozenset[str]().union(*self._users.values())
        if names != self.names:
            self.names = names
            self._event.set()
            self._event = asyncio.Event()
            self._changed(names)

    async def wait(self, seen: frozenset[str]) -> frozenset[str]:
        """The names, as soon as they differ from ``seen``."""
        while self.names == seen:
            await self._event.wait()
        return self.names
