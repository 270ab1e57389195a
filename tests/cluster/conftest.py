"""Several servers in one process, on their HTTP ports: applications with real collaborators, and real fan-outs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
import uvicorn

from tests.admin.conftest import Api
from tests.support.connected import Client
from tests.support.plane import Plane
from xds.admin.dependencies import ApiOptions
from xds.app.admin import create_app
from xds.cluster.fan_out import FanOut, Trust
from xds.model.node import Locality, Node
from xds.model.resource_type import CLUSTER
from xds.model.snapshot import ResourceSet
from xds.store.base import Store
from xds.store.member_register import Member

SECRET = "a secret of the cluster"
HOST = "127.0.0.1"


@dataclass
class Site:
    """The servers by name, what they share, and clients of each."""

    options: ApiOptions = field(default_factory=ApiOptions)
    apis: dict[str, Api] = field(default_factory=dict)
    rows: list[Member] = field(default_factory=list)
    secrets: dict[str, str] = field(default_factory=dict)  # those that a server shows
    accepted: list[str] = field(default_factory=lambda: [SECRET])
    fan_outs: list[FanOut] = field(default_factory=list)
    ports: list[tuple[uvicorn.Server, asyncio.Task[None]]] = field(default_factory=list)
    trust: Trust = field(default_factory=Trust)
    store: Store | None = None  # that they share; by default each has its own

    async def add(self, name: str) -> Api:
        """Start another server."""
        plane = Plane(self.store) if self.store is not None else Plane()
        if self.store is None:
            await plane.store.open()
        api = Api(plane, self.options)
        await api.start()
        listening = socket.create_server((HOST, 0))
        me = Member(name, f"http://{HOST}:{listening.getsockname()[1]}")
        self.rows.append(me)
        fan_out = FanOut(
            lambda: me,
            lambda: [each for each in self.rows if each.id != name],
            lambda: self.secrets.get(name, SECRET),
            self.trust,
        )
        self.fan_outs.append(fan_out)
        api.services.others, api.services.accepts = fan_out, lambda secret: secret in self.accepted
        await api.client.aclose()
        application = create_app(api.services)
        server = uvicorn.Server(uvicorn.Config(application, lifespan="off", log_config=None, ws="none"))
        self.ports.append((server, asyncio.create_task(server.serve([listening]))))
        api.client = httpx.AsyncClient(base_url=me.url, trust_env=False, verify=False)
        self.apis[name] = api
        return api

    def __getitem__(self, name: str) -> Api:
        return self.apis[name]

    async def put(self, group: str, *resources: object) -> None:
        """Replace a snapshot at all servers."""
        for api in self.apis.values():
            await api.put(group, *resources)

    def held(self, name: str, group: str = "edge") -> ResourceSet:
        """The clusters of a group at one server."""
        return self[name].plane.publisher.groups.content(group).snapshot.get(CLUSTER)

    def connect(self, name: str, node_id: str, group: str = "edge") -> Client:
        """A node with a stream to one server."""
        node = Node(node_id, "edge", Locality("eu", "1a"), user_agent="envoy 1.40.0")
        client = Client(self[name].plane.fleet, node, group)
        client.subscribe(CLUSTER)
        return client

    async def get(self, name: str, path: str, **query: Any) -> Any:
        """The JSON of an answer of one server."""
        answer = await self[name].client.get(f"/api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def close(self) -> None:
        """Stop all servers."""
        for api in self.apis.values():
            await api.client.aclose()
        for fan_out in self.fan_outs:
            await fan_out.close()
        for server, task in self.ports:
            server.should_exit = server.force_exit = True
            await task
        for api in self.apis.values():
            await api.close()
            await api.plane.mesh.close()
            await api.plane.publisher.close()
            await api.plane.store.close()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """Two servers, `a` and `b`."""
    made = Site()
    for name in ("a", "b"):
        await made.add(name)
    yield made
    await made.close()


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The URL of a server that takes connections and never answers."""
    with socket.create_server((HOST, 0)) as listening:
        yield f"http://{HOST}:{listening.getsockname()[1]}"
