"""The Consul source against a real agent: random changes, kills, restarts with and without state, and silence."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from bench.consul.agent_process import ConsulAgent
from tests.support.recording_sink import RecordingSink, running_source
from xds.services.core.instance import Health
from xds.services.source_settings import ConsulSettings
from xds.services.sources.consul_source import ConsulSource

GO_TIMEOUT_S = 3_000  # the first run builds Consul, on whatever machine
SEEN_S = 30.0
STEPS = 150

pytestmark = [pytest.mark.soak, pytest.mark.timeout(GO_TIMEOUT_S), pytest.mark.xdist_group("consul")]


@pytest.fixture(params=[False, True], ids=["in memory", "with state"])
def agent(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ConsulAgent]:
    started = ConsulAgent(tmp_path, keeps_state=request.param)
    started.start()
    yield started
    started.stop()


@asynccontextmanager
async def observing(agent: ConsulAgent, *services: str, connections: int = 100) -> AsyncIterator[RecordingSink]:
    sink = RecordingSink(*services)
    address = f"http://{agent.address}"
    settings = ConsulSettings(kind="consul", address=address, connections=connections, wait_s=5.0, every_s=0.05)
    async with running_source(ConsulSource("consul", settings, late_s=2.0), sink):
        yield sink


class Catalog:
    """Writes into the agent's catalog, and knows what is there."""

    def __init__(self, agent: ConsulAgent) -> None:
        self._url = f"http://{agent.address}/v1/catalog"
        self.there: dict[str, dict[str, str]] = {}

    async def register(self, service: str, identifier: str, address: str, status: str = "passing") -> None:
        check = {"CheckID": f"{identifier}:up", "Name": "up", "ServiceID": identifier, "Status": status}
        own = {"ID": identifier, "Service": service, "Address": address, "Port": 80}
        await self._put("register", {"Node": "rack", "Address": "10.0.0.1", "Service": own, "Check": check})
        self.there.setdefault(service, {})[identifier] = f"{address}:80"

    async def deregister(self, service: str, identifier: str) -> None:
        await self._put("deregister", {"Node": "rack", "ServiceID": identifier})
        del self.there[service][identifier]

    async def _put(self, verb: str, body: dict[str, object]) -> None:
        async with httpx.AsyncClient(trust_env=False, verify=False) as client:
            (await client.put(f"{self._url}/{verb}", json=body, timeout=30.0)).raise_for_status()

    def places(self, service: str) -> set[str]:
        return set(self.there.get(service, {}).values())


@pytest.mark.parametrize("connections", [100, 4], ids=["blocking", "in rotation"])
async def test_equal_sets_after_every_step(agent: ConsulAgent, connections: int) -> None:
    rng = random.Random(connections)
    services = [f"svc-{number}" for number in range(8)]
    catalog = Catalog(agent)
    async with observing(agent, *services, connections=connections) as sink:
        for step in range(STEPS):
            service, identifier = rng.choice(services), f"i{rng.randrange(6)}-{step % 3}"
            if identifier in catalog.there.get(service, {}) and rng.random() < 0.6:
                await catalog.deregister(service, identifier)
            else:
                await catalog.register(service, f"{service}-{identifier}", f"10.0.{rng.randrange(9)}.{step + 1}")
            await sink.wait_for_places(service, catalog.places(service), SEEN_S)
        assert {service: sink.places(service) for service in services} == {s: catalog.places(s) for s in services}


async def test_a_killed_agent_is_reported_and_read_again(agent: ConsulAgent, request: pytest.FixtureRequest) -> None:
    """With state the set is the same as before. Without it the agent says that nothing is there, so does the source.

    Whether such a loss reaches proxies, the catalog decides.
    """
    catalog = Catalog(agent)
    await catalog.register("web", "web-1", "10.0.0.1")
    await catalog.register("web", "web-2", "10.0.0.2")
    async with observing(agent, "web") as sink:
        await sink.wait_until(lambda: len(sink.places("web")) == 2, SEEN_S)
        for _ in range(3):
            agent.kill()
            await sink.wait_until(lambda: sink.calls[-1][0] in ("failed", "rejected"), SEEN_S)
            assert len(sink.places("web")) == 2
            await asyncio.to_thread(agent.start)
            if request.node.callspec.params["agent"]:
                await sink.wait_until(lambda: sink.calls[-1] == ("alive", ""), SEEN_S)
            else:
                await sink.wait_until(lambda: sink.places("web") == set(), SEEN_S)
                await catalog.register("web", "web-1", "10.0.0.1")
                await catalog.register("web", "web-2", "10.0.0.2")
            await sink.wait_until(lambda: sink.places("web") == {"10.0.0.1:80", "10.0.0.2:80"}, SEEN_S)
        await catalog.register("web", "web-3", "10.0.0.3", status="critical")
        await sink.wait_until(lambda: len(sink.places("web")) == 3, SEEN_S)
        assert [one.health for one in sink.services["web"] if one.address == "10.0.0.3"] == [Health.CRITICAL]


async def test_a_silent_agent_is_reported(agent: ConsulAgent) -> None:
    catalog = Catalog(agent)
    await catalog.register("web", "web-1", "10.0.0.1")
    async with observing(agent, "web") as sink:
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.1:80"}, SEEN_S)
        agent.pause(on=True)
        try:
            await sink.wait_until(lambda: bool(sink.failures), SEEN_S)
            assert sink.places("web") == {"10.0.0.1:80"}
        finally:
            agent.pause(on=False)
        await catalog.register("web", "web-1", "10.0.0.2")
        await sink.wait_until(lambda: sink.places("web") == {"10.0.0.2:80"}, SEEN_S)
