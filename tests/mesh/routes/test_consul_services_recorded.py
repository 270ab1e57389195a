"""Registration and reading of services beside a real Consul: the same requests, and its recorded answers.

To record anew, with Go: ``python -m tests.mesh.routes.test_consul_services_recorded``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.mesh.core.chain.comparison import unequal
from tests.support.consul_exchange import ConsulRequest
from tests.support.consul_recording import GO_TIMEOUT_S, Answered, RecordedExchange
from tests.support.consul_services import SERVICES_EXCHANGE
from xds.services.core.registered_instance import AGENT_NODE

CONSULS_NODE = "one"
# Of the node that Consul's agent is, and of the places in Raft's log.
_OF_THE_AGENT = ("ID", "Address", "TaggedAddresses", "Meta", "NodeMeta")
_INDICES = ("CreateIndex", "ModifyIndex", "ContentHash")


def _unequal(request: ConsulRequest, consuls: Any, own: Any) -> Iterator[str]:
    return unequal(comparable(request, own), comparable(request, consuls))


def comparable(request: ConsulRequest, value: Any) -> Any:
    """An answer without what differs by nature: Consul itself, the node of its agent, the order of sets."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        items = [comparable(request, item) for item in value]
        of_services = [item for item in items if item.get("CheckID") != "serfHealth"]
        return sorted(of_services, key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(value, dict):
        return _comparable_object(request, value)
    return value


def _comparable_object(request: ConsulRequest, value: dict[str, Any]) -> dict[str, Any]:
    found = {name: comparable(request, item) for name, item in value.items() if name not in _INDICES}
    if found.get("Interval") == "0s":  # as Consul writes it for a check that is registered by itself
        found |= {"Interval": "", "Timeout": ""}
    if "catalog/services" in request.path:
        return {name: sorted(tags) for name, tags in found.items() if name != "consul"}
    if found.get("Node") in (CONSULS_NODE, AGENT_NODE):
        left_out = _OF_THE_AGENT if "CheckID" not in found else ()
        found = {name: item for name, item in found.items() if name not in left_out} | {"Node": AGENT_NODE}
    return found


def _moves(answered: Sequence[Answered]) -> Iterator[str]:
    """An index never goes back, moves with the content, and moves without it only where Consul's does."""
    last: dict[str, tuple[int, int, Any]] = {}
    for at, (request, consuls, own) in enumerate(answered):
        if consuls.index is None or own.index is None or consuls.status != 200:
            continue
        value = comparable(request, own.value)
        before = last.get(request.question, (0, 0, None))
        is_same, was = value == before[2], f"{before[1]} to {own.index}"
        if own.index < before[1] or own.index < 1:
            yield f"{at} {request.path}: the index goes back, {was}"
        if own.index == before[1] and not is_same:
            yield f"{at} {request.path}: the content changes, and the index does not move from {own.index}"
        if own.index > before[1] and is_same and consuls.index == before[0]:
            yield f"{at} {request.path}: the index moves, {was}, and neither the content nor Consul's does"
        last[request.question] = (consuls.index, own.index, value)


SERVICES = RecordedExchange(
    "consul-services-1.12.9.json",
    SERVICES_EXCHANGE,
    # docs/services.md has the reasons.
    meant={
        "no port": (200, 400),
        "a host name": (200, 400),
        "an HTTP check": (200, 400),
        "a gRPC check": (200, 400),
        "a TCP check": (200, 400),
        "an alias check": (200, 400),
        "a TTL below a second": (200, 400),
        "check_id": (400, 200),
        "a locality": (400, 200),
        # what only one of the two registered
        **dict.fromkeys(("no-port", "host", "http", "grpc", "tcp", "alias", "quick"), (200, 404)),
        **dict.fromkeys(("snake", "zoned"), (404, 200)),
    },
    unequal=_unequal,
    moves=_moves,
)


async def test_our_answers_are_those_that_consul_gave(api: Api) -> None:
    SERVICES.check(SERVICES.recorded(), await SERVICES.play(api.client))


def test_each_meant_difference_is_still_one() -> None:
    assert {request.about for request in SERVICES.requests if request.about} == set(SERVICES.meant)


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
async def test_our_answers_are_those_that_consul_gives(api: Api, tmp_path: Path) -> None:
    SERVICES.check(await SERVICES.ask_consul(tmp_path), await SERVICES.play(api.client))


if __name__ == "__main__":
    SERVICES.record()
