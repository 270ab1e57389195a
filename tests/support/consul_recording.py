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
from tests.support.consul_exchange import ConsulAnswer, ConsulRequest, play_all

RECORDED = Path(__file__).parents[1] / "mesh" / "routes" / "recorded"
GO_TIMEOUT_S = 3_000  # the first run builds Consul, on whatever machine
ANSWER_TIMEOUT_S = 30
READ_STATUSES = {200, 404}

Answered = tuple[ConsulRequest, ConsulAnswer, ConsulAnswer]
"""A request, Consul's answer and our answer."""


@dataclass(frozen=True)
class RecordedExchange:
    """``requests`` and the ``file`` under `RECORDED` with Consul's answers.

    ``meant`` has the intended differences, by ``about`` of the request: Consul's status and ours. ``unequal`` yields
    differences of two values (the request, Consul's value, ours). ``moves`` yields wrong changes of our indexes.
    """

    file: str
    requests: Sequence[ConsulRequest]
    meant: Mapping[str, tuple[int, int]]
    unequal: Callable[[ConsulRequest, Any, Any], Iterator[str]]
    moves: Callable[[Sequence[Answered]], Iterator[str]]

    async def play(self, client: httpx.AsyncClient) -> list[ConsulAnswer]:
        """The answers of a server to the requests."""
        return await play_all(client, self.requests)

    def recorded(self) -> list[ConsulAnswer]:
        """The recorded answers of Consul."""
        return [ConsulAnswer(**one) for one in json.loads((RECORDED / self.file).read_text())]

    async def ask_consul(self, folder: Path) -> list[ConsulAnswer]:
        """The answers of a Consul that is started for this."""
        with consul_agent(folder) as address:
            url = f"http://{address}"
            async with httpx.AsyncClient(
                base_url=url, trust_env=False, verify=False, timeout=ANSWER_TIMEOUT_S
            ) as client:
                return await self.play(client)

    def record(self) -> None:
        """Ask a Consul, and record its answers."""
        with tempfile.TemporaryDirectory() as folder:
            answers = asyncio.run(self.ask_consul(Path(folder)))
        text = json.dumps([one.document() for one in answers], indent=1, sort_keys=True)
        (RECORDED / self.file).write_text(text + "\n")

    def check(self, consuls: list[ConsulAnswer], ours: list[ConsulAnswer]) -> None:
        """Fail with every difference between two runs that is not intended."""
        found = list(self._differences(consuls, ours))
        assert not found, "\n".join(found)

    def _differences(self, consuls: list[ConsulAnswer], ours: list[ConsulAnswer]) -> Iterator[str]:
        answered = list(zip(self.requests, consuls, ours, strict=True))
        for at, (request, consul, own) in enumerate(answered):
            for one in self._difference(request, consul, own):
                yield f"{at} {request.method} {request.path} {json.dumps(request.body)}: {one}"
        yield from self.moves(answered)

    def _difference(self, request: ConsulRequest, consul: ConsulAnswer, own: ConsulAnswer) -> Iterator[str]:
        expected = self.meant.get(request.about, (consul.status, consul.status))
        if (consul.status, own.status) != expected:
            yield f"Consul {consul.status} {consul.text}, ours {own.status} {own.text}"
        elif own.status == consul.status:
            # Consul gives some wrong requests an index, too.
            if own.status in READ_STATUSES and (consul.index is None) is not (own.index is None):
                yield f"an index in one answer: Consul's {consul.index}, ours {own.index}"
            yield from self.unequal(request, consul.value, own.value)
