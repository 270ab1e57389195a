"""The register of servers in one process, as a database keeps it: by its own clock, one heartbeat after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from xds.store.base import UnavailableError
from xds.store.member_register import GONE_AFTER_S, LEASE_S, Heartbeat, Member, SharedSecret


@dataclass
class SharedRegister:
    """A `MemberRegister`. ``now`` is the clock of the database, ``sent`` the monotonic clock of its callers."""

    now: Callable[[], float]
    sent: Callable[[], float]
    is_away: bool = False
    secret: SharedSecret = field(default_factory=lambda: SharedSecret("first"))
    rotated_s: float = 0.0
    members: dict[str, tuple[str, Member]] = field(default_factory=dict)  # by id, with the process
    holder: str = ""
    epoch: int = 0
    expires_s: float = 0.0

    async def beat(self, me: Member, process: str) -> Heartbeat:
        """Join or stay, and take or renew the lease."""
        if self.is_away:
            raise UnavailableError("the database is away")
        now_s = self.now()
        before = self.members.get(me.id)
        joins = before is None or before[0] == process or now_s > before[1].seen_s + GONE_AFTER_S
        if joins:
            started_s = before[1].started_s if before is not None and before[0] == process else now_s
            number = before[1].number if before is not None else self._free_number()
            self.members[me.id] = process, replace(me, number=number, started_s=started_s, seen_s=now_s)
            if self.holder == process or now_s > self.expires_s:
                self.epoch += self.holder != process
                self.holder, self.expires_s = process, now_s + LEASE_S
        holder = self.holder if now_s <= self.expires_s else ""
        living = [each for each in self.members.values() if now_s <= each[1].seen_s + GONE_AFTER_S]
        return Heartbeat(
            sent_s=self.sent(),
            now_s=now_s,
            number=self.members[me.id][1].number if joins else None,
            members=tuple(sorted((member for _, member in living), key=lambda each: each.id)),
            holds=holder == process,
            holder=next((member.id for of, member in living if of == holder), ""),
            epoch=self.epoch,
            secret=replace(self.secret, age_s=now_s - self.rotated_s),
        )

    async def leave(self, process: str) -> None:
        """Leave, and give the lease to whoever comes next."""
        self.members = {id: each for id, each in self.members.items() if each[0] != process}
        if self.holder == process:
            self.expires_s = self.now() - 1

    async def rotate_secret(self) -> None:
        """Make a new secret."""
        self.secret = SharedSecret(f"{self.secret.current}+", self.secret.current)
        self.rotated_s = self.now()

    def _free_number(self) -> int:
        taken = {member.number for _, member in self.members.values()}
        return next(number for number in range(len(taken) + 1) if number not in taken)
