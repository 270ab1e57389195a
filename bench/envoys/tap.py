"""A relay between the Envoys and both servers, which records ACKs and their times in the same way for each server.

    python -m bench.envoys.tap

Commands are JSON objects on standard input, one per line; each is answered by a line:

    {"listen": {"side": S, "target": PORT, "variant": "sotw"|"delta"}}         ->  {"port": PORT}
    {"expect": {"side": S, "present": [[TYPE, BASE64]], "absent": [[TYPE, NAME]]}}  ->  {"expected": ID}
    {"acked": {"id": ID, "count": N, "timeout_s": SECONDS}}                    ->  {"acked": {NODE: MONOTONIC}}
    {"forget": true}                                                          ->  {"refused": [WORDS]}

A node has ACKed what is expected when it has ACKed, for each resource, a response with exactly these bytes, and for
each name a response without it (SotW) or with its removal (Delta). The time is that at which the ACK was read from the
node's socket, by the clock that all processes of the machine share.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

import uvloop

from bench.envoys.frames import GrpcMessages
from tests.support.process import LOOPBACK
from xds.proto import wire_pb2

REFUSALS_KEPT = 20


@dataclass(frozen=True, slots=True)
class Awaited:
    """A resource by its bytes, or a name that is to be gone."""

    type_url: str
    body: bytes = b""
    gone: str = ""

    def is_in(self, payload: bytes, response: Any) -> bool:
        """Whether this response (its bytes, and the same parsed) tells of it."""
        if not self.gone:
            return self.body in payload
        if isinstance(response, wire_pb2.DeltaDiscoveryResponse):
            return self.gone in response.removed_resources
        # Field 1 of clusters, listeners and routes; the name may be the beginning of another one's.
        name = self.gone.encode()
        return b"\n" + bytes([len(name)]) + name not in payload


@dataclass(slots=True)
class Expectation:
    """What is awaited of every node of a side."""

    side: str
    items: tuple[Awaited, ...]
    left: dict[str, set[Awaited]] = field(default_factory=dict)
    done: dict[str, float] = field(default_factory=dict)
    count: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def acked(self, node: str, items: Sequence[Awaited], at: float) -> None:
        """Note an ACK; once nothing is left of a node its time is kept."""
        left = self.left.setdefault(node, set(self.items))
        if not left:
            return
        left.difference_update(items)
        if not left:
            self.done[node] = at
            if self.count and len(self.done) >= self.count:
                self.reached.set()


class Ledger:
    """What is expected on every side, and who refused something."""

    def __init__(self) -> None:
        self.expected: dict[int, Expectation] = {}
        self.refused: list[str] = []
        self._numbered = 0

    def expect(self, side: str, present: Sequence[Sequence[str]], absent: Sequence[Sequence[str]]) -> int:
        """Begin to look for these; the number under which the result is asked for."""
        bodies = [Awaited(url, body=base64.b64decode(body)) for url, body in present]
        names = [Awaited(url, gone=name) for url, name in absent]
        self._numbered += 1
        self.expected[self._numbered] = Expectation(side, (*bodies, *names))
        return self._numbered

    async def acked(self, number: int, count: int, timeout_s: float) -> dict[str, float]:
        """Times by node, once there are so many or when the time is over."""
        found = self.expected[number]
        found.count = count
        if len(found.done) < count:
            with suppress(TimeoutError):
                await asyncio.wait_for(found.reached.wait(), timeout_s)
        return found.done

    def forget(self) -> list[str]:
        """Look for nothing any more; the refusals so far."""
        self.expected.clear()
        refused, self.refused = self.refused, []
        return refused

    def told_in(self, side: str, payload: bytes, response: Any) -> list[tuple[Expectation, list[Awaited]]]:
        """What a response has of what is expected."""
        found = []
        for expectation in self.expected.values():
            if expectation.side == side:
                own = [one for one in expectation.items if one.type_url == response.type_url]
                if told := [one for one in own if one.is_in(payload, response)]:
                    found.append((expectation, told))
        return found


class Conversation:
    """One connection of an Envoy: what it was told under which nonce, and what it says to that."""

    def __init__(self, side: str, variant: str, ledger: Ledger) -> None:
        self._side = side
        self._ledger = ledger
        self._node = ""
        self._offered: dict[str, list[tuple[Expectation, list[Awaited]]]] = {}
        self._requests, self._responses = GrpcMessages(from_client=True), GrpcMessages()
        sotw = variant == "sotw"
        self._request = wire_pb2.DiscoveryRequest if sotw else wire_pb2.DeltaDiscoveryRequest
        self._response = wire_pb2.DiscoveryResponse if sotw else wire_pb2.DeltaDiscoveryResponse

    def heard(self, data: bytes, at: float) -> None:
        """Bytes from the Envoy."""
        for payload in self._requests.feed(data):
            request: Any = self._request.FromString(payload)
            if request.node and not self._node:
                self._node = wire_pb2.Node.FromString(request.node).id
            offered = self._offered.pop(request.response_nonce, []) if request.response_nonce else []
            if request.HasField("error_detail"):
                self._refused(request)
                continue
            for expectation, items in offered:
                expectation.acked(self._node, items, at)

    def said(self, data: bytes) -> None:
        """Bytes from the server."""
        for payload in self._responses.feed(data):
            response: Any = self._response.FromString(payload)
            if found := self._ledger.told_in(self._side, payload, response):
                self._offered[response.nonce] = found

    def _refused(self, request: Any) -> None:
        if len(self._ledger.refused) < REFUSALS_KEPT:
            words = f"{self._side} {self._node} {request.type_url}: {request.error_detail.message[:200]}"
            self._ledger.refused.append(words)


class Near(asyncio.Protocol):
    """The Envoy's end; all is passed on before it is read."""

    def __init__(self, target: int, conversation: Conversation) -> None:
        self._target = target
        self._conversation = conversation
        self._early: list[bytes] = []
        self._far: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            far, _ = await loop.create_connection(
                lambda: Far(self.transport, self._conversation), LOOPBACK, self._target
            )
        except OSError:
            self.transport.abort()
            return
        self._far = far
        far.writelines(self._early)

    def data_received(self, data: bytes) -> None:
        at = time.monotonic()
        if self._far is None:
            self._early.append(data)
        else:
            self._far.write(data)
        self._conversation.heard(data, at)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._far is not None:
            self._far.abort()


class Far(asyncio.Protocol):
    """The server's end."""

    def __init__(self, near: asyncio.Transport, conversation: Conversation) -> None:
        self._near = near
        self._conversation = conversation

    def data_received(self, data: bytes) -> None:
        self._near.write(data)
        self._conversation.said(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._near.close()


async def carry_out(command: dict[str, Any], ledger: Ledger) -> dict[str, Any]:
    """Do what a line says; its answer."""
    match command:
        case {"listen": {"side": side, "target": target, "variant": variant}}:
            loop = asyncio.get_running_loop()
            server = await loop.create_server(lambda: Near(target, Conversation(side, variant, ledger)), LOOPBACK, 0)
            return {"port": server.sockets[0].getsockname()[1]}
        case {"expect": expected}:
            return {"expected": ledger.expect(**expected)}
        case {"acked": {"id": number, "count": count, "timeout_s": timeout_s}}:
            return {"acked": await ledger.acked(number, count, timeout_s)}
        case {"forget": True}:
            return {"refused": ledger.forget()}
    raise ValueError(f"no such command: {command}")


def _lines() -> Iterator[dict[str, Any]]:
    for line in sys.stdin:
        yield json.loads(line)


async def obey() -> None:
    """Carry out commands until there are no more."""
    ledger, lines = Ledger(), _lines()
    while (command := await asyncio.to_thread(next, lines, None)) is not None:
        print(json.dumps(await carry_out(command, ledger)), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(obey())
