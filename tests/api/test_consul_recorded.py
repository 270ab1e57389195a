"""Consul's own paths beside a real Consul: the same requests, and its recorded answers.

To record anew, with Go: ``python -m tests.api.test_consul_recorded``.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.consul.agent_process import consul_agent
from tests.api.conftest import Api
from tests.chain.comparison import unequal
from tests.support.consul_exchange import EXCHANGE, Asked, Told, play_all

RECORDED = Path(__file__).parent / "recorded" / "consul-1.12.9.json"
GO_TIMEOUT_S = 3_000  # the first run builds Consul, on whatever machine

# Differences that are meant, by what ``about`` says of a request; docs/discovery-chain.md has the reasons.
MEANT: Mapping[str, tuple[int, int]] = {  # Consul's status, ours
    "default namespace": (400, 200),
    "cas that is no number": (500, 400),
    "a kind that is not ours": (200, 400),
    "unknown override": (200, 400),
}


async def played(client: httpx.AsyncClient) -> list[Told]:
    return await play_all(client, EXCHANGE)


def differences(consuls: list[Told], ours: list[Told]) -> Iterator[str]:
    """Every difference between two runs of the exchange that is not meant."""
    assert len(consuls) == len(ours) == len(EXCHANGE)
    for at, (asked, theirs, own) in enumerate(zip(EXCHANGE, consuls, ours, strict=True)):
        for one in _unequal(asked, theirs, own):
            yield f"{at} {asked.method} {asked.path} {json.dumps(asked.body)}: {one}"
    yield from _moves(consuls, ours)


def _unequal(asked: Asked, theirs: Told, own: Told) -> Iterator[str]:
    if asked.about in MEANT:
        if (theirs.status, own.status) != MEANT[asked.about]:
            yield f"Consul {theirs.status} {theirs.text}, ours {own.status} {own.text}"
        return
    if theirs.status != own.status:
        yield f"Consul {theirs.status} {theirs.text}, ours {own.status} {own.text}"
        return
    if (theirs.index is None) is not (own.index is None):
        yield f"an index in one answer: Consul's {theirs.index}, ours {own.index}"
    mine = own.value if isinstance(own.value, list) else [own.value]
    for one, other in zip(mine, theirs.value if isinstance(theirs.value, list) else [theirs.value], strict=True):
        yield from unequal(_projected(one), _projected(other))


def _projected(value: Any) -> Any:
    """A chain without its frame; without a field that came after 1.12."""
    if isinstance(value, dict) and "Chain" in value:
        chain = value["Chain"]
        for target in chain.get("Targets", {}).values():
            target.pop("TransparentProxy", None)
        return chain
    return value


def _moves(consuls: list[Told], ours: list[Told]) -> Iterator[str]:
    """An index never goes back, and moves only where Consul's does."""
    last: dict[str, tuple[int, int]] = {}
    for asked, theirs, own in zip(EXCHANGE, consuls, ours, strict=True):
        if theirs.index is None or own.index is None:
            continue
        before = last.get(asked.question, (0, 0))
        if own.index < before[1] or own.index < 1:
            yield f"{asked.path}: the index goes back, {before[1]} to {own.index}"
        if own.index > before[1] and theirs.index == before[0]:
            yield f"{asked.path}: the index moves, {before[1]} to {own.index}, and Consul's does not"
        last[asked.question] = (theirs.index, own.index)


def recorded() -> list[Told]:
    return [Told(**one) for one in json.loads(RECORDED.read_text())]


async def test_our_answers_are_those_that_consul_gave(api: Api) -> None:
    found = list(differences(recorded(), await played(api.client)))
    assert not found, "\n".join(found)


def test_each_meant_difference_is_still_one() -> None:
    assert {asked.about for asked in EXCHANGE if asked.about} == set(MEANT)


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
async def test_our_answers_are_those_that_consul_gives(api: Api, tmp_path: Path) -> None:
    with consul_agent(tmp_path) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            consuls = await played(client)
    found = list(differences(consuls, await played(api.client)))
    assert not found, "\n".join(found)


async def record() -> None:
    """Ask a real Consul and keep what it says."""
    RECORDED.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, consul_agent(Path(folder)) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", trust_env=False) as client:
            told = await played(client)
    RECORDED.write_text(json.dumps([one.document() for one in told], indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    asyncio.run(record())
