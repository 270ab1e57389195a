"""Registration and reading of services beside a real Consul: the same requests, and its recorded answers.

To record anew, with Go: ``python -m tests.api.test_consul_services_recorded``.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path

import httpx

from bench.consul.agent_process import consul_agent
from tests.support.consul_exchange import Player, Told
from tests.support.consul_services import SERVICES_EXCHANGE

RECORDED = Path(__file__).parent / "recorded" / "consul-services-1.12.9.json"


async def played(client: httpx.AsyncClient) -> list[Told]:
    async def send(method: str, path: str, body: bytes | None) -> tuple[int, httpx.Headers, bytes]:
        answer = await client.request(method, path, content=body)
        return answer.status_code, answer.headers, answer.content

    player = Player(send)
    return [await player.play(asked) for asked in SERVICES_EXCHANGE]


async def record() -> None:
    """Ask a real Consul and keep what it says."""
    with tempfile.TemporaryDirectory() as folder, consul_agent(Path(folder)) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False, timeout=30) as client:
            told = await played(client)
    RECORDED.write_text(json.dumps([one.document() for one in told], indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    asyncio.run(record())
