"""Consul's own paths beside a real Consul: the same requests, and its recorded answers.

The instance that is registered for the probes is connect-native in Consul: without sidecars, each instance is what the
mesh connects to. To record anew, with Go: ``python -m tests.mesh.routes.test_consul_recorded``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.mesh.core.chain.comparison import unequal
from tests.support.consul_exchange import EXCHANGE, ConsulRequest
from tests.support.consul_names import ENTRY_NAMES_EXCHANGE, SERVICE_NAMES_EXCHANGE
from tests.support.consul_probes import NATIVE, PROBES_EXCHANGE
from tests.support.consul_recording import GO_TIMEOUT_S, Answered, RecordedExchange
from tests.support.consul_services import SERVICES_EXCHANGE
from xds.services.core.registered_instance import AGENT_NODE

# Config entries and chains


def _unequal_entries(request: ConsulRequest, consuls: Any, own: Any) -> Iterator[str]:
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


def _entry_moves(answered: Sequence[Answered]) -> Iterator[str]:
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
    unequal=_unequal_entries,
    moves=_entry_moves,
)


# Services

CONSULS_NODE = "one"
# Of the node that Consul's agent is, and of the places in Raft's log.
_OF_THE_AGENT = ("ID", "Address", "TaggedAddresses", "Meta", "NodeMeta")
_INDICES = ("CreateIndex", "ModifyIndex", "ContentHash")


def _unequal_services(request: ConsulRequest, consuls: Any, own: Any) -> Iterator[str]:
    return unequal(_comparable(request, own), _comparable(request, consuls))


def _comparable(request: ConsulRequest, value: Any) -> Any:
    """An answer without what differs by nature: Consul itself, the node of its agent, the order of sets."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        items = [_comparable(request, item) for item in value]
        of_services = [item for item in items if item.get("CheckID") != "serfHealth"]
        return sorted(of_services, key=lambda item: json.dumps(item, sort_keys=True))
    if isinstance(value, dict):
        return _comparable_object(request, value)
    return value


def _comparable_object(request: ConsulRequest, value: dict[str, Any]) -> dict[str, Any]:
    found = {name: _comparable(request, item) for name, item in value.items() if name not in _INDICES}
    if found.get("Interval") == "0s":  # as Consul writes it for a check that is registered by itself
        found |= {"Interval": "", "Timeout": ""}
    if "catalog/services" in request.path:
        return {name: sorted(tags) for name, tags in found.items() if name != "consul"}
    if found.get("Node") in (CONSULS_NODE, AGENT_NODE):
        left_out = _OF_THE_AGENT if "CheckID" not in found else ()
        found = {name: item for name, item in found.items() if name not in left_out} | {"Node": AGENT_NODE}
    return found


def _service_moves(answered: Sequence[Answered]) -> Iterator[str]:
    """An index never goes back, moves with the content, and moves without it only where Consul's does."""
    last: dict[str, tuple[int, int, Any]] = {}
    for at, (request, consuls, own) in enumerate(answered):
        if consuls.index is None or own.index is None or consuls.status != 200:
            continue
        value = _comparable(request, own.value)
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
    unequal=_unequal_services,
    moves=_service_moves,
)


# Probes, and instances of the mesh

_ADDRESS = re.compile(r"[0-9.]+:[0-9]+")
_NOT_HERE = ("Connect", "ServiceConnect", "TaggedAddresses", "ServiceTaggedAddresses")  # of a connect-native instance


def _unequal_probes(request: ConsulRequest, consuls: Any, own: Any) -> Iterator[str]:
    if "/status/" in request.path:
        yield from unequal(_without_addresses(own), _without_addresses(consuls))
    elif request.path.startswith("/v1/agent/self"):
        yield from _unlike(consuls, own)
    else:
        yield from unequal(_plain(_comparable(request, own)), _plain(_comparable(request, consuls)))


def _without_addresses(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_addresses(one) for one in value]
    return _ADDRESS.sub("HOST:PORT", value) if isinstance(value, str) else value


def _unlike(consuls: Any, own: Any, path: str = "") -> Iterator[str]:
    """Our fields that Consul does not have, or has with a value of another type."""
    if type(consuls) is not type(own):
        yield f"{path}: {own!r}, in Consul {consuls!r}"
    elif isinstance(own, dict):
        for name, value in own.items():
            yield from _unlike(consuls.get(name), value, f"{path}/{name}")


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if name not in _NOT_HERE}
    return value


PROBES = RecordedExchange(
    "consul-probes-1.12.9.json",
    PROBES_EXCHANGE,
    meant={NATIVE: (200, 400)},
    unequal=_unequal_probes,
    moves=_service_moves,
)


# Names in several cases

ENTRY_NAMES = RecordedExchange(
    "consul-entry-names-1.12.9.json",
    ENTRY_NAMES_EXCHANGE,
    meant={},
    unequal=_unequal_entries,
    moves=_entry_moves,
)
SERVICE_NAMES = RecordedExchange(
    "consul-service-names-1.12.9.json",
    SERVICE_NAMES_EXCHANGE,
    meant={},
    unequal=_unequal_services,
    moves=_service_moves,
)

RECORDED = {
    "config entries": CONFIG_ENTRIES,
    "services": SERVICES,
    "probes": PROBES,
    "names of config entries": ENTRY_NAMES,
    "names of services": SERVICE_NAMES,
}
EXCHANGES = pytest.mark.parametrize("exchange", RECORDED.values(), ids=RECORDED)


@EXCHANGES
async def test_our_answers_are_those_that_consul_gave(api: Api, exchange: RecordedExchange) -> None:
    exchange.check(exchange.recorded(), await exchange.play(api.client))


@EXCHANGES
def test_each_meant_difference_is_still_one(exchange: RecordedExchange) -> None:
    assert {request.about for request in exchange.requests if request.about} == set(exchange.meant)


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
@EXCHANGES
async def test_our_answers_are_those_that_consul_gives(api: Api, exchange: RecordedExchange, tmp_path: Path) -> None:
    exchange.check(await exchange.ask_consul(tmp_path), await exchange.play(api.client))


async def test_the_agent_names_itself_and_its_datacenter(api: Api) -> None:
    agent = (await api.client.get("/v1/agent/self")).json()
    assert agent["Config"] | agent["Member"] == {
        "Datacenter": "dc1",
        "PrimaryDatacenter": "dc1",
        "NodeName": "xds-server",
        "NodeID": "",
        "Revision": "",
        "Server": True,
        "Version": "1.12.9",
        "Name": "xds-server",
        "Addr": "127.0.0.1",
        "Port": 18080,
        "Tags": {"build": "1.12.9:", "dc": "dc1", "role": "consul", "segment": ""},
        "Status": 1,
    }


if __name__ == "__main__":
    for recorded in RECORDED.values():
        recorded.record()
