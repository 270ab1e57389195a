"""The lease: at most one server of a store does the work that only one may do."""

from __future__ import annotations

from dataclasses import dataclass

from xds.store.member_register import LEASE_S, Heartbeat

ACT_S = 0.8 * LEASE_S  # clocks may run at different speeds, and what a server began takes time


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease as this server knows it. Times are those of the monotonic clock.

    The database counts from when it received the renewal, this server from when it sent it: never later.
    """

    is_mine: bool = False
    sent_s: float = 0.0
    epoch: int = 0

    @classmethod
    def of(cls, heartbeat: Heartbeat) -> Lease:
        """The lease after a heartbeat."""
        return cls(heartbeat.holds, heartbeat.sent_s, heartbeat.epoch)

    def holds(self, now_s: float) -> bool:
        """Whether this server may act as the holder now."""
        return self.is_mine and now_s < self.sent_s + ACT_S
