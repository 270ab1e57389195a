"""Probes, and instances of the mesh, beside a real Consul: the same requests, and its recorded answers.

The registered instance is connect-native in Consul: without sidecars, each instance is what the mesh connects to.
To record anew, with Go: ``python -m tests.mesh.routes.test_consul_probes_recorded``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.mesh.core.chain.comparison import unequal
from tests.mesh.routes.test_consul_services_recorded import SERVICES, comparable
from tests.support.consul_exchange import ConsulRequest
from tests.support.consul_probes import NATIVE, PROBES_EXCHANGE
from tests.support.consul_recording import GO_TIMEOUT_S, RecordedExchange

_ADDRESS = re.compile(r"[0-9.]+:[0-9]+")
_NOT_HERE = ("Connect", "ServiceConnect", "TaggedAddresses", "ServiceTaggedAddresses")  # of a connect-native instance


def _unequal(request: ConsulRequest, consuls: Any, own: Any) -> Iterator[str]:
    if "/status/" in request.path:
        yield from unequal(_without_addresses(own), _without_addresses(consuls))
    elif request.path.startswith("/v1/agent/self"):
        yield from _unlike(consuls, own)
    else:
        yield from unequal(_plain(comparable(request, own)), _plain(comparable(request, consuls)))


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
    "consul-probes-1.12.9.json", PROBES_EXCHANGE, meant={NATIVE: (200, 400)}, unequal=_unequal, moves=SERVICES.moves
)


async def test_probes_are_answered_as_consul_did(api: Api) -> None:
    PROBES.check(PROBES.recorded(), await PROBES.play(api.client))


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


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("consul")
async def test_probes_are_answered_as_consul_does(api: Api, tmp_path: Path) -> None:
    PROBES.check(await PROBES.ask_consul(tmp_path), await PROBES.play(api.client))


if __name__ == "__main__":
    PROBES.record()
