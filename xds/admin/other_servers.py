"""The other servers that work on the same store, as the admin API asks them (`xds.cluster.fan_out`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

Json = dict[str, Any]

INTERNAL_PREFIX = "/internal/v1"  # of paths that only other servers may ask for
ALIVE_PATH = "/alive"  # answered at once


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to other servers. ``path`` is below the prefix, percent-encoded, with the query."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: object = None


class ServerAnswer(Protocol):
    """The answer of one server. ``headers`` have lower-case names."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""

    @property
    def body(self) -> bytes:
        """Its body."""

    @property
    def is_success(self) -> bool:
        """Whether the request was carried out."""

    def document(self) -> Json | None:
        """The body; None if it is not a JSON object."""


class ArrivingLines(Protocol):
    """An answer that is read line by line while it arrives. ``headers`` have lower-case names."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Its headers."""

    @property
    def is_success(self) -> bool:
        """Whether the request is carried out."""

    def lines(self) -> AsyncIterator[str]:
        """Its lines, without their ends."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers by the name of the server, and the names of those that did not answer."""

    received: Mapping[str, ServerAnswer] = field(default_factory=dict)
    silent: tuple[str, ...] = ()


class OtherServers(Protocol):
    """The other servers that work on the same store. ``me`` is the name of this one."""

    @property
    def me(self) -> str:
        """The name of this server."""

    def names(self) -> Sequence[str]:
        """The names of the others that are there now."""

    async def ask(self, asked: Asked) -> Answers:
        """Ask all of them at once; one that shows no life within a second is silent."""

    async def ask_one(self, name: str, asked: Asked, within_s: float) -> ServerAnswer | None:
        """Ask one of them; None if it has not answered in time."""

    def begun(self, name: str, asked: Asked, quiet_s: float) -> AbstractAsyncContextManager[ArrivingLines | None]:
        """The lines of one of them while they arrive, until it is quiet for this long; None if it does not answer."""


class NoOthers:
    """One server alone."""

    me = ""

    def names(self) -> Sequence[str]:
        """There are none."""
        return ()

    async def ask(self, asked: Asked) -> Answers:
        """Nobody answers."""
        return Answers()

    async def ask_one(self, name: str, asked: Asked, within_s: float) -> ServerAnswer | None:
        """Nobody answers."""
        return None

    def begun(self, name: str, asked: Asked, quiet_s: float) -> AbstractAsyncContextManager[ArrivingLines | None]:
        """There is nobody to ask."""
        raise LookupError(name)
