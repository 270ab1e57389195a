"""Asks the other servers of the installation over their HTTP ports, all at once.

Each has a second to show that it lives, and an answer has bounded time and size. A server that does not answer, or
fails, is silent; the caller names it. The secret of the cluster goes only to a URL with TLS, unless the URL is of this
machine or plain HTTP is allowed. Redirects are not followed, and proxies of the environment are not used.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

import structlog

from xds.admin.operations import Operation
from xds.admin.other_servers import ALIVE_PATH, INTERNAL_PREFIX, Answers, ArrivingLines, Asked, ServerAnswer
from xds.calls.access import ServerAccess
from xds.calls.async_sender import AsyncSender
from xds.calls.call import Answer, ApiCall, ask
from xds.calls.failures import UnreachableServerError
from xds.settings.settings import is_loopback
from xds.store.member_register import Member

ANSWER_S = 1.0  # for a sign of life
QUICK_S = 0.1  # most answers are there by then
LONGEST_S = 10.0  # for an answer of a server that lives
ANSWER_BYTES = 32 << 20
TOLD_EVERY_S = 60.0  # of a server that stays silent
ALIVE = Asked("GET", ALIVE_PATH)

_log = structlog.get_logger(logger_name="xds.cluster")


@dataclass(frozen=True, slots=True)
class Trust:
    """How servers prove to each other who they are.

    ``ca`` has the authorities of their certificates (PEM); None: those of the system. ``certificate`` and ``key`` are
    shown to a server that asks for a certificate. ``allows_plain``: HTTP without TLS beyond this machine.
    """

    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    allows_plain: bool = False

    def stamp(self) -> tuple[float, ...]:
        """When its files were changed last."""
        files = (each for each in (self.ca, self.certificate, self.key) if each is not None)
        return tuple(each.stat().st_mtime if each.is_file() else 0.0 for each in files)

    def refusal(self, url: str) -> str:
        """Why the secret must not be sent to a URL; empty if it may be."""
        parts = urlsplit(url)
        if parts.scheme == "https" or (
            parts.scheme == "http" and (self.allows_plain or is_loopback(parts.hostname or ""))
        ):
            return ""
        return "its URL has no TLS, and server.insecure is not set" if url else "it cannot be reached"


class FanOut:
    """The other servers, as `xds.admin.other_servers.OtherServers`. Belongs to one event loop.

    ``me`` is this server; ``members`` are the others that have shown themselves within 10 s. ``unanswered_n`` counts
    calls without an answer.
    """

    def __init__(
        self,
        me: Callable[[], Member],
        members: Callable[[], Sequence[Member]],
        secret: Callable[[], str],
        trust: Trust,
    ) -> None:
        self._me = me
        self._members = members
        self._secret = secret
        self._trust = trust
        self._senders: dict[str, _Kept] = {}
        self._told: dict[str, float] = {}
        self.unanswered_n = 0

    @property
    def me(self) -> str:
        """The name of this server."""
        return self._me().id

    def names(self) -> Sequence[str]:
        """The names of the others that are there now."""
        return [each.id for each in self._members()]

    async def ask(self, asked: Asked) -> Answers:
        """Ask all of them at once; one that has not answered after a second is silent."""
        others = list(self._members())
        for gone in self._senders.keys() - {each.url for each in others}:
            await self._drop(gone)
        found = await asyncio.gather(*(self._answer(each, asked, LONGEST_S) for each in others))
        received = {each.id: answer for each, answer in zip(others, found, strict=True) if answer is not None}
        return Answers(received, tuple(each.id for each in others if each.id not in received))

    async def ask_one(self, name: str, asked: Asked, within_s: float) -> ServerAnswer | None:
        """Ask one of them; None if it has not answered in time, or is not there any more."""
        found = self._find(name)
        return await self._answer(found, asked, within_s) if found is not None else None

    @asynccontextmanager
    async def begun(self, name: str, asked: Asked, quiet_s: float) -> AsyncIterator[ArrivingLines | None]:
        """The lines of one of them while they arrive, until it is quiet for this long; None if it does not answer."""
        found = self._find(name)
        if found is None:
            yield None
            return
        try:
            async with AsyncExitStack() as stack:
                yield await self._arriving(stack, found, asked, quiet_s)
        except UnreachableServerError as error:  # after its beginning
            self._note_silence(found, str(error))

    async def _arriving(self, stack: AsyncExitStack, of: Member, asked: Asked, quiet_s: float) -> ArrivingLines | None:
        """An answer that begins in time; None otherwise."""
        try:
            async with asyncio.timeout(ANSWER_S):
                sender = await self._sender(of)
                return await stack.enter_async_context(sender.begun(self._call(asked), quiet_s)) if sender else None
        except (UnreachableServerError, TimeoutError) as error:
            self._note_silence(of, str(error) or f"no answer within {ANSWER_S:g} s")
            return None

    async def close(self) -> None:
        """Close all connections."""
        for url in list(self._senders):
            await self._drop(url)

    def _find(self, name: str) -> Member | None:
        return next((each for each in self._members() if each.id == name), None)

    async def _answer(self, of: Member, asked: Asked, within_s: float) -> Answer | None:
        """An answer; one that takes longer than ``ANSWER_S`` is waited for while the server shows that it lives."""
        exchange = asyncio.create_task(self._exchange(of, asked, within_s))
        try:
            done, _ = await asyncio.wait((exchange,), timeout=QUICK_S)
            if not done and not await self._is_alive(of):
                done, _ = await asyncio.wait((exchange,), timeout=0)
                if not done:
                    self._note_silence(of, f"no answer within {ANSWER_S:g} s")
                    return None
            return await exchange
        finally:
            exchange.cancel()

    async def _is_alive(self, of: Member) -> bool:
        """Whether a server answers anything within what is left of ``ANSWER_S``."""
        with suppress(UnreachableServerError, TimeoutError):
            async with asyncio.timeout(ANSWER_S - QUICK_S):
                sender = await self._sender(of)
                if sender is not None:
                    async with sender.begun(self._call(ALIVE), ANSWER_S):
                        return True
        return False

    async def _exchange(self, of: Member, asked: Asked, within_s: float) -> Answer | None:
        try:
            async with asyncio.timeout(within_s):
                sender = await self._sender(of)
                if sender is None:
                    return None
                async with sender.begun(self._call(asked), within_s) as arriving:
                    answer = await arriving.at_most(ANSWER_BYTES)
        except (UnreachableServerError, TimeoutError) as error:
            self._note_silence(of, str(error) or f"no answer within {within_s:g} s")
            return None
        if answer is None:
            self._note_silence(of, f"its answer is longer than {ANSWER_BYTES} bytes")
            return None
        self._told.pop(of.id, None)
        return answer

    def _call(self, asked: Asked) -> ApiCall[None]:
        """The call, which shows the secret. Its answer is not compressed: its size is bounded while it arrives."""
        # Some are as the caller of this server has sent them, in any bytes.
        told = {name: value.encode("ascii", "replace").decode() for name, value in asked.headers.items()}
        headers = {**told, "Authorization": f"Bearer {self._secret()}", "Accept-Encoding": "identity"}
        operation = Operation(f"{asked.method} {asked.path}", prefix=INTERNAL_PREFIX)
        return ask(operation, read=lambda _: None, headers=headers, body=asked.body)

    async def _sender(self, of: Member) -> AsyncSender | None:
        """The sender to a server; None if the secret must not be sent there, or the trust cannot be read."""
        if refusal := self._trust.refusal(of.url):
            self._note_silence(of, refusal)
            return None
        stamp = self._trust.stamp() if of.url.startswith("https") else ()
        kept = self._senders.get(of.url)
        if kept is not None and kept.stamp == stamp:
            return kept.sender
        trust = self._trust
        files = (trust.ca or "", trust.certificate or "", trust.key or "")
        try:
            # In a thread: reading authorities takes 50 ms. Nothing is taken from the environment.
            access = await asyncio.to_thread(partial(ServerAccess, of.url, "", "", *files, environment={}))
        except ValueError as error:
            self._note_silence(of, str(error))
            return None
        await self._drop(of.url)
        made = _Kept(AsyncSender(access, ANSWER_S, trusts_environment=False), stamp)
        return self._senders.setdefault(of.url, made).sender

    async def _drop(self, url: str) -> None:
        if (kept := self._senders.pop(url, None)) is not None:
            await kept.sender.close()

    def _note_silence(self, of: Member, reason: str) -> None:
        """Log the first silence of a server, and then one a minute."""
        self.unanswered_n += 1
        now = monotonic()
        if now - self._told.get(of.id, -TOLD_EVERY_S) >= TOLD_EVERY_S:
            self._told[of.id] = now
            _log.warning("server.silent", server=of.id, url=of.url, error_message=reason)


class _Kept(NamedTuple):
    """A sender, and the times of the files that its trust was read from."""

    sender: AsyncSender
    stamp: tuple[float, ...]
