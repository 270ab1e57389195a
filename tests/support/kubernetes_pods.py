"""A Kubernetes API with pods that are upstreams of the test: a fake, or a real one whose addresses are translated.

A real API server accepts no loopback addresses in slices. So its slices have `POD_ADDRESS`, and the server reads them
through a proxy that replaces this by ``127.0.0.1``.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any, Protocol

import yaml

from tests.support.background import Background
from tests.support.kubernetes_api import SLICES, FakeKubernetes, endpoint, endpoint_slice, service
from tests.support.kubernetes_cluster import READER, KubernetesCluster
from tests.support.process import LOOPBACK

Json = dict[str, Any]

POD_ADDRESS = "10.0.0.11"  # as long as that of the loopback
_READ_BYTES = 65_536

READY: Json = {"ready": True, "serving": True, "terminating": False}
UNREADY: Json = {"ready": False, "serving": False, "terminating": False}
DRAINING: Json = {"ready": False, "serving": True, "terminating": True}


class PodApi(Protocol):
    """The API as tests use it. ``address`` is the address of endpoints in its slices."""

    address: str

    def kubeconfig(self) -> Path:
        """Write the kubeconfig of the source."""

    def put(self, *documents: Json) -> None:
        """Create or replace objects."""

    def delete(self, plural: str, name: str, namespace: str = "shop") -> None:
        """Delete an object."""

    def kill(self) -> None:
        """Kill the API server."""

    def start(self) -> None:
        """Start it again, with its objects."""

    def lose_everything(self) -> None:
        """Start it again without objects."""


class FakePodApi:
    """The fake API server, on an event loop of its own."""

    address = LOOPBACK

    def __init__(self, background: Background, directory: Path) -> None:
        self._background = background
        self._directory = directory
        self.fake = FakeKubernetes(tokens={READER})
        self.start()

    def kubeconfig(self) -> Path:
        """As in `PodApi`."""
        return write_kubeconfig(self._directory, self.fake.url)

    def put(self, *documents: Json) -> None:
        """As in `PodApi`."""

        async def write() -> None:
            self.fake.put(*documents)

        self._background.run(write())

    def delete(self, plural: str, name: str, namespace: str = "shop") -> None:
        """As in `PodApi`."""

        async def write() -> None:
            self.fake.delete(plural, name, namespace)

        self._background.run(write())

    def kill(self) -> None:
        """As in `PodApi`."""
        self._background.run(self.fake.kill())

    def start(self) -> None:
        """As in `PodApi`."""
        self._background.run(self.fake.start())

    def lose_everything(self) -> None:
        """As in `PodApi`."""
        self.kill()
        self.fake.lose_everything(7)
        self.start()


class RealPodApi:
    """The real API server, behind a proxy that translates addresses and terminates TLS."""

    address = POD_ADDRESS

    def __init__(self, background: Background, directory: Path, cluster: KubernetesCluster) -> None:
        self._directory = directory
        self._cluster = cluster
        self._server = background.run(asyncio.start_server(self._serve, LOOPBACK, 0))
        self._port = self._server.sockets[0].getsockname()[1]
        self._context = cluster.context()
        cluster.namespace("shop")

    def kubeconfig(self) -> Path:
        """As in `PodApi`."""
        return write_kubeconfig(self._directory, f"http://{LOOPBACK}:{self._port}")

    def put(self, *documents: Json) -> None:
        """As in `PodApi`."""
        self._cluster.put(*documents)

    def delete(self, plural: str, name: str, namespace: str = "shop") -> None:
        """As in `PodApi`."""
        self._cluster.delete(plural, name, namespace)

    def kill(self) -> None:
        """As in `PodApi`."""
        self._cluster.kill_api()

    def start(self) -> None:
        """As in `PodApi`."""
        self._cluster.start_api()

    def lose_everything(self) -> None:
        """As in `PodApi`."""
        self._cluster.lose_everything()
        self._cluster.namespace("shop")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            inner_reader, inner_writer = await asyncio.open_connection(
                LOOPBACK, self._cluster.port, ssl=self._context, server_hostname=LOOPBACK
            )
            try:
                await asyncio.gather(_pump(reader, inner_writer), _translate(inner_reader, writer))
            finally:
                inner_writer.transport.abort()
        writer.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_READ_BYTES):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


async def _translate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As ``_pump``, replacing addresses; an incomplete address at the end waits for the rest."""
    old, new = POD_ADDRESS.encode(), LOOPBACK.encode()
    incomplete = b""
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await reader.read(_READ_BYTES):
            translated = (incomplete + data).replace(old, new)
            incomplete_n = next((n for n in range(len(old) - 1, 0, -1) if translated.endswith(old[:n])), 0)
            incomplete = translated[len(translated) - incomplete_n :] if incomplete_n else b""
            writer.write(translated[: len(translated) - incomplete_n])
            await writer.drain()
    writer.transport.abort()


def write_kubeconfig(directory: Path, url: str) -> Path:
    """A kubeconfig with the reader's token."""
    document = {
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": "u", "user": {"token": READER}}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "main",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


class Pods:
    """The slices that controllers would write for one Service: one for each pod, since each has its own port."""

    def __init__(self, api: PodApi, name: str = "web") -> None:
        self.name = name
        self._api = api
        self._slices: dict[str, Json] = {}
        self._service = service(name, clusterIP="None")
        api.put(self._service)

    def set(self, pod: str, port: int, state: Json) -> None:
        """Create or change a pod."""
        one = endpoint(self._api.address, pod=pod, zone="z1", **state)
        self._slices[pod] = endpoint_slice(f"{self.name}-{pod}", self.name, one, ports=(("", port),))
        self._api.put(self._slices[pod])

    def remove(self, pod: str) -> None:
        """Remove a pod."""
        del self._slices[pod]
        self._api.delete(SLICES, f"{self.name}-{pod}")

    def create_again(self) -> None:
        """Create the Service and all slices again, in an API that lost them."""
        self._api.put(self._service, *self._slices.values())
