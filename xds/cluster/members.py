"""The members of a cluster: the servers that share one store, by their heartbeats in it.

A heartbeat also takes or renews the lease. Whatever is asked here was heard at the last heartbeat: no call waits.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol
from urllib.parse import urlsplit

import structlog

from xds.cluster import secret
from xds.cluster.lease import Lease
from xds.store.base import Store, StoreError
from xds.store.member_register import GONE_AFTER_S, NO_NUMBER, Heartbeat, KnownMembers, Member, MemberRegister
from xds.tasks.lifecycle import BackgroundTask
from xds.version import __version__

HEARTBEAT_S = 2.0
LEAVE_S = 2.0

# Stands for all others while the store, which alone names them, has not answered since the start.
_UNHEARD = Member("unknown", "", "")

_log = structlog.get_logger(logger_name="xds.cluster")


class Members(Protocol):
    """The servers of a store, as one of them knows them.

    ``me`` is this server; it has no number (``NO_NUMBER``) until it has joined. ``holder`` is the id of the member that
    holds the lease; empty for none. ``problem`` is why this server is no member, or hears nothing of the others; empty
    where all is well. ``failures`` counts heartbeats without an answer.
    """

    me: Member
    holder: str = ""
    problem: str = ""
    failures: int = 0

    def others(self) -> Sequence[Member]:
        """The other members, by id. One without a URL cannot be asked."""

    def known(self) -> KnownMembers:
        """All that this server knows of them."""

    def holds_lease(self) -> bool:
        """Whether this server may do what only one server does."""

    def secret(self) -> str:
        """What proves to another member that a call comes from a member."""

    def accepts(self, given: str) -> bool:
        """Whether a call with this secret comes from a member."""

    async def start(self, url: str) -> None:
        """Join. ``url`` is where the others reach this server. The store is open."""

    async def close(self) -> None:
        """Leave."""


class OneServer(Members):
    """The members of a store that only one server uses."""

    def __init__(self) -> None:
        self.me = Member("", "", __version__, 0)
        self._secret = secrets.token_hex()

    def others(self) -> Sequence[Member]:
        return ()

    def known(self) -> KnownMembers:
        now_s = time.time()
        return KnownMembers(replace(self.me, seen_s=now_s), holder=self.holder, now_s=now_s)

    def holds_lease(self) -> bool:
        return True

    def secret(self) -> str:
        return self._secret

    def accepts(self, given: str) -> bool:
        return secrets.compare_digest(self._secret.encode(), given.encode())

    async def start(self, url: str) -> None:
        self.me = replace(self.me, id=member_id(url), url=url, started_s=time.time())
        self.holder = self.me.id

    async def close(self) -> None:
        pass


class RegisteredMembers(Members):
    """The members of a store that several servers may use. ``clock`` is the monotonic clock of this process."""

    def __init__(self, register: MemberRegister, clock: Callable[[], float] = time.monotonic) -> None:
        self.me = Member("", "", __version__)
        self._register = register
        self._clock = clock
        self._process = secrets.token_hex(8)
        self._heard: Heartbeat | None = None
        self._lease = Lease()
        self._since_s = 0.0  # of the problem
        self._was_told = False
        self._task = BackgroundTask()

    def others(self) -> Sequence[Member]:
        heard = self._heard
        if heard is None:
            return (_UNHEARD,)
        if self.me.number != NO_NUMBER:
            return [each for each in heard.members if each.id != self.me.id]
        # Its address leads here, or to the other server that has it. What that one knows is missing here.
        return [replace(each, url="") if each.id == self.me.id else each for each in heard.members]

    def known(self) -> KnownMembers:
        heard = self._heard
        if heard is None:
            return KnownMembers(self.me, problem=self.problem, is_shared=True)
        now_s = heard.now_s + self._clock() - heard.sent_s
        return KnownMembers(self.me, self.others(), self.holder, self.problem, now_s, is_shared=True)

    def holds_lease(self) -> bool:
        return self._lease.holds(self._clock())

    def secret(self) -> str:
        return secret.sent(self._heard.secret) if self._heard is not None else ""

    def accepts(self, given: str) -> bool:
        return self._heard is not None and secret.accepts(self._heard.secret, given)

    async def start(self, url: str) -> None:
        self.me = replace(self.me, id=member_id(url), url=url, started_s=time.time())
        await self._beat()
        self._task.start(self._run())

    async def close(self) -> None:
        if await self._task.stop():
            self._lease = Lease()
            with suppress(StoreError, TimeoutError):
                await asyncio.wait_for(self._register.leave(self._process), LEAVE_S)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            await self._beat()

    async def _beat(self) -> None:
        try:
            heartbeat = await self._register.beat(self.me, self._process)
        except StoreError as error:
            self.failures += 1
            self._tell(f"no heartbeat reaches the store: {error}")
        except Exception as error:  # a bug must not end the heartbeats silently
            self.failures += 1
            _log.exception("members.failed")
            self._tell(f"heartbeats fail: {error}")
        else:
            self._note(heartbeat)

    def _note(self, heartbeat: Heartbeat) -> None:
        if self.holder != heartbeat.holder:
            _log.info("members.holder", holder=heartbeat.holder, epoch=heartbeat.epoch)
        self.holder, self._heard = heartbeat.holder, heartbeat
        self._lease = Lease.of(heartbeat)
        mine = next((each for each in heartbeat.members if each.id == self.me.id), self.me)
        if heartbeat.number is None:
            self.me = replace(self.me, number=NO_NUMBER)
            self._tell(
                f"another server, which started {_ago(heartbeat.now_s - mine.started_s)} ago, has the address"
                f" {self.me.url}: give each server its own server.advertise (--advertise)"
            )
        else:
            self.me = mine
            self._tell("")

    def _tell(self, problem: str) -> None:
        """Keep the problem, and log it where it lasts: a server that was killed finds its place free after a while."""
        if problem and not self.problem:
            self._since_s, self._was_told = self._clock(), False
        self.problem = problem
        if problem and not self._was_told and self._clock() >= self._since_s + GONE_AFTER_S:
            self._was_told = True
            _log.error("members.apart", error_message=problem)


def members_of(store: Store) -> Members:
    """The members of a store."""
    register = store.register()
    return RegisteredMembers(register) if register is not None else OneServer()


def member_id(url: str) -> str:
    """The id of the server that others reach at ``url``; a random one for a server that nobody reaches."""
    return urlsplit(url).netloc or f"unreachable-{secrets.token_hex(4)}"


def _ago(age_s: float) -> str:
    return f"{max(0, round(age_s))} s"
