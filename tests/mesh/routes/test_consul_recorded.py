"""Consul's own paths beside a real Consul: the same requests, and its recorded answers.

To record anew, with Go: ``python -m tests.mesh.routes.test_consul_recorded``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.mesh.core.chain.comparison import unequal
from tests.support.consul_exchange import EXCHANGE, ConsulRequest
from tests.support.consul_recording import GO_TIMEOUT_S, Answered, RecordedExchange


def _unequal(request: ConsulRequest, consuls: Any, own: Any) -> Iterator[str]:
    ours = own if isinstance(own, list) else [own]
    for one, other in zip(ours, consuls if isinstance(consuls, list) else [consuls], strict=True):
        yield from unequal(_projected(one), _projected(other))


def _projected(value: Any) -> Any:
    """A chain without its frame; without a field that came after 1.12."""
    if isinstance(value, dict) and "Chain" in value:
        chain = value["Chain"]
        for target in chain.get("Targets", {}).values():
            target.pop("TransparentProxy", None)
        return chain
    return value


def _moves(answered: Sequence[Answered]) -> Iterator[str]:
    """An index never goes back, and moves only where Consul's does."""
    last: dict[str, tuple[int, int]] = {}
    for request, consuls, own in answered:
        if consuls.index is None or own.index is None:
            continue
        before = last.get(request.question, (0, 0))
        if own.index < before[1] or own.index < 1:
            yield f"{request.path}: the index goes back, {before[1]} to {own.index}"
        if own.index > before[1] and consuls.index == before[0]:
            yield f"{request.path}: the index moves, {before[1]} to {own.index}, and Consul's does not"
        last[request.question] = (consuls.index, own.index)


CONFIG_ENTRIES = RecordedExchange(
    "consul-1.12.9.json",
    EXCHANGE,
    # docs/discovery-chain.md has the reasons.
    meant={
        "default namespace": (400, 200),
        "cas that is not a number": (500, 400),
        "a kind that is not ours": (200, 400),
        "unknown override": (200, 400),
    },
    unequal=_unequal,
    moves=_moves,
)


async def test_our_answers_are_those_that_consul_gave(api: Api) -> None:
    CONFIG_ENTRIES.check(CONFIG_ENTRIES.recorded(), await CONFIG_ENTRIES.play(api.client))


def test_each_meant_difference_is_still_one() -> None:
    assert {request.about for request in CONFIG_ENTRIES.requests if request.about} == set(CONFIG_ENTRIES.meant)


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
async def test_our_answers_are_those_that_consul_gives(api: Api, tmp_path: Path) -> None:
    CONFIG_ENTRIES.check(await CONFIG_ENTRIES.ask_consul(tmp_path), await CONFIG_ENTRIES.play(api.client))


if __name__ == "__main__":
    CONFIG_ENTRIES.record()
