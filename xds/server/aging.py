"""Ends connections that have reached their age, so that proxies spread over the servers behind one address.

A connection takes no new calls from then on, and its streams end when the client has answered every response: a client
that reconnects then shows what it has. It may be sent something all the time, so after `ANSWER_S` they end anyway.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from time import monotonic

from xds.server.stream import StreamHandler

CHECK_S = 0.25
ANSWER_S = 30.0  # as long as clusters without a proof of their warmth are waited for
YOUNGEST = 0.8  # of the age, at which the first connections end: a fleet connects at once, and must not leave at once
GOAWAY_AT = 0.7  # of the age, where the transport sends GOAWAY by itself, a tenth earlier or later


async def end_old(
    streams: Collection[StreamHandler],
    age_s: float,
    go_away: Callable[[str], None],
    random_share: Callable[[], float] = random.random,
) -> None:
    """End the streams of a connection between `YOUNGEST` of ``age_s`` and ``age_s`` after its first stream.

    ``go_away`` tells a peer to open no more calls on its connection. Runs until cancelled.
    """
    ends_s: dict[str, float] = {}  # by peer, which is one connection
    leaving: set[str] = set()
    while True:
        await asyncio.sleep(min(CHECK_S, age_s * (1 - YOUNGEST)))
        now_s, connections = monotonic(), _connections(streams)
        ends_s = {
            peer: ends_s.get(peer) or now_s + age_s * (YOUNGEST + (1 - YOUNGEST) * random_share())
            for peer in connections
        }
        leaving &= ends_s.keys()
        for peer in (peer for peer, end_s in ends_s.items() if end_s <= now_s):
            if peer not in leaving:
                leaving.add(peer)
                go_away(peer)
            if now_s > ends_s[peer] + ANSWER_S or all(stream.is_at_rest for stream in connections[peer]):
                for stream in connections[peer]:
                    stream.finish()


def _connections(streams: Collection[StreamHandler]) -> dict[str, Sequence[StreamHandler]]:
    """The streams of each connection."""
    connections = defaultdict[str, list[StreamHandler]](list)
    for stream in streams:
        connections[stream.peer].append(stream)
    return dict(connections)
