"""What the engine of a database that several servers use keeps of them: who is there, and who holds the lease.

All times are by the database's clock: those of the servers may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

GONE_AFTER_S = 10.0  # after its last heartbeat, a server counts as gone
LEASE_S = 10.0  # a lease that is not renewed for this long is anybody's
NUMBER_BITS = 10
NO_NUMBER = (1 << NUMBER_BITS) - 1  # of a server that has not joined


@dataclass(frozen=True, slots=True)
class Member:
    """A server of a database. ``url`` is where the other servers reach it, ``id`` is HOST:PORT of that.

    ``number``, below ``NO_NUMBER``, belongs to no other member. Times are epoch seconds.
    """

    id: str
    url: str
    version: str = ""
    number: int = NO_NUMBER
    started_s: float = 0.0
    seen_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SharedSecret:
    """The secret that the servers of a database prove themselves with to each other.

    ``previous`` was the secret until ``age_s`` ago; empty for none.
    """

    current: str
    previous: str = ""
    age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The answer of the database to a heartbeat.

    ``sent_s`` is when the heartbeat was sent, by the monotonic clock of this process; ``now_s`` when it was answered,
    by the database's. ``number`` is None if another server that lives has the same id. ``members`` are all that live.
    ``holder`` is the id of the member that holds the lease, empty for none; ``holds`` tells whether it is this server.
    ``epoch`` counts the holders.
    """

    sent_s: float
    now_s: float
    number: int | None
    members: tuple[Member, ...]
    holds: bool
    holder: str
    epoch: int
    secret: SharedSecret


@dataclass(frozen=True, slots=True)
class KnownMembers:
    """The servers of a store, as ``me`` knows them. ``holder`` is the id of the one that holds the lease.

    ``now_s`` is the time by the database's clock. ``problem`` is why ``me`` is no member, or hears nothing of the
    others; empty where all is well. ``is_shared``: the store is one that several servers may use.
    """

    me: Member
    others: Sequence[Member] = ()
    holder: str = ""
    problem: str = ""
    now_s: float = 0.0
    is_shared: bool = False


class MemberRegister(Protocol):
    """The register of the servers of a database. ``process`` is a random name of one process of a server."""

    async def beat(self, me: Member, process: str) -> Heartbeat:
        """Join or stay, and take or renew the lease. Raises ``StoreError``."""

    async def leave(self, process: str) -> None:
        """Leave, and give the lease to whoever comes next. Raises ``StoreError``."""

    async def rotate_secret(self) -> None:
        """Make a new secret. The servers take it up with their next heartbeats. Raises ``StoreError``."""
