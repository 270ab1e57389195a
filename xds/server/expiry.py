"""Streams end when the client certificate that opened them has: a connection may outlive its credential by years."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from time import time
from zlib import crc32

from xds.server.gate import OVER
from xds.server.shell import Shell

LOOK_EVERY_S = 1.0
LAST_WORDS_S = 0.5  # for the final status to be read


async def expire(shells: Collection[Shell], spread_s: float, cut: Callable[[Collection[str]], Awaitable[None]]) -> None:
    """End what has no valid certificate any more, spread over ``spread_s``, and its connection with it.

    A fleet is often given its certificates in one hour. A client would go on with a connection that is left to it, and
    show no other certificate there.
    """
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        now = time()
        ended = [shell for shell in list(shells) if shell.identity.is_over(now)]
        over = [shell for shell in ended if shell.identity.is_over(now - _delay_s(shell.peer, spread_s))]
        for shell in over:
            shell.finish(OVER)
        if over:
            await asyncio.sleep(LAST_WORDS_S)
            await cut({shell.peer for shell in over})


def _delay_s(peer: str, spread_s: float) -> float:
    """The same for all streams of a connection."""
    return spread_s * (crc32(peer.encode()) / 2**32)
