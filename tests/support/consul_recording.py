"""An exchange with Consul and its recorded answers, to compare a server's own answers with."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.consul.agent_process import consul_agent
from tests.support.consul_exchange import Asked, Told, play_all

RECORDED = Path(__file__).parents[1] / "api" / "recorded"
GO_TIMEOUT_S = 3_000  # the first run builds Consul, on whatever machine
ANSWER_TIMEOUT_S = 30
READ_STATUSES = {200, 404}

Answered = tuple[Asked, Told, Told]
"""A request, Consul's answer and ours."""


@dataclass(frozen=True)
class RecordedExchange:
    """``requests`` and the ``file`` under `RECORDED` with Consul's answers.

    ``meant`` are the differences that are meant, by what ``about`` says of a request: Consul's status and ours.
    ``unequal`` compares the values of two answers: the request, Consul's value, ours. ``moves`` says where an index
    of ours moves wrongly.
    """

    file: str
    requests: Sequence[Asked]
    meant: Mapping[str, tuple[int, int]]
    unequal: Callable[[Asked, Any, Any], Iterator[str]]
    moves: Callable[[Sequence[Answered]], Iterator[str]]

    async def play(self, client: httpx.AsyncClient) -> list[Told]:
        """What a server answers to the requests."""
        return await play_all(client, self.requests)

    def recorded(self) -> list[Told]:
        """What Consul answered."""
        return [Told(**one) for one in json.loads((RECORDED / self.file).read_text())]

    async def ask_consul(self, folder: Path) -> list[Told]:
        """What a Consul of its own answers."""
        with consul_agent(folder) as address:
            url = f"http://{address}"
            async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=ANSWER_TIMEOUT_S) as client:
                return await self.play(client)

    def record(self) -> None:
        """Ask a Consul, and keep what it says."""
        with tempfile.TemporaryDirectory() as folder:
            told = asyncio.run(self.ask_consul(Path(folder)))
        text = json.dumps([one.document() for one in told], indent=1, sort_keys=True)
        (RECORDED / self.file).write_text(text + "\n")

    def check(self, consuls: list[Told], ours: list[Told]) -> None:
        """Fail with every difference between two runs that is not meant."""
        found = list(self._differences(consuls, ours))
        assert not found, "\n".join(found)

    def _differences(self, consuls: list[Told], ours: list[Told]) -> Iterator[str]:
        answered = list(zip(self.requests, consuls, ours, strict=True))
        for at, (asked, theirs, own) in enumerate(answered):
            for one in self._difference(asked, theirs, own):
                yield f"{at} {asked.method} {asked.path} {json.dumps(asked.body)}: {one}"
        yield from self.moves(answered)

    def _difference(self, asked: Asked, theirs: Told, own: Told) -> Iterator[str]:
        expected = self.meant.get(asked.about, (theirs.status, theirs.status))
        if (theirs.status, own.status) != expected:
            yield f"Consul {theirs.status} {theirs.text}, ours {own.status} {own.text}"
        elif own.status == theirs.status:
            # Consul gives some wrong requests an index, too.
            if own.status in READ_STATUSES and (theirs.index is None) is not (own.index is None):
                yield f"an index in one answer: Consul's {theirs.index}, ours {own.index}"
            yield from self.unequal(asked, theirs.value, own.value)
