"""A source of instances for benches: it shows all services at once, then changes as datagrams ask for them.

``object: bench.catalog_source:make`` in the settings of a server; ``options`` are ``services`` and ``port``. A datagram
is the number of a service and that of the change, as text: the first instance of the service gets another weight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from xds.catalog.instance import Check, Health, Instance
from xds.catalog.source import Sink

INSTANCES = 10
LOOPBACK = "127.0.0.1"


def instances(service: int, health: Health = Health.PASSING, weight: int = 1) -> list[Instance]:
    """The instances of a service; the first one has this health and weight."""
    network = f"10.{service >> 8 & 255}.{service & 255}"
    return [
        Instance(
            f"{service}-{index}",
            f"{network}.{index + 1}",
            8080,
            meta={"version": "1"},
            weight=weight if index == 0 else 1,
            checks=(Check("http", health if index == 0 else Health.PASSING),),
        )
        for index in range(INSTANCES)
    ]


def changed(service: int, turn: int) -> list[Instance]:
    """The instances of a service after a change: no two changes in succession are the same."""
    health = Health.CRITICAL if turn % 2 == 0 else Health.PASSING
    return instances(service, health, 2 + turn % 100)


class DatagramSource:
    """A source, as `xds.catalog.source.Source`."""

    kind = "bench"

    def __init__(self, name: str, services: int, port: int) -> None:
        self.name = name
        self._services = services
        self._port = port

    async def run(self, sink: Sink) -> None:
        """Show all services, and change them until cancelled."""
        sink.replace({f"service-{number}": instances(number) for number in range(self._services)})
        loop = asyncio.get_running_loop()
        address = (LOOPBACK, self._port)
        transport, _ = await loop.create_datagram_endpoint(lambda: _Changes(sink), local_addr=address)
        try:
            await loop.create_future()
        finally:
            transport.close()


class _Changes(asyncio.DatagramProtocol):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def datagram_received(self, data: bytes, address: object) -> None:
        service, turn = map(int, data.split())
        self._sink.put(f"service-{service}", changed(service, turn))


def make(name: str, options: Mapping[str, Any]) -> DatagramSource:
    """What the settings of the server name."""
    return DatagramSource(name, int(options["services"]), int(options["port"]))
