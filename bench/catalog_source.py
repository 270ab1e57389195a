"""A source of instances for benchmarks: it shows all services at once, then changes them as datagrams say.

``object: bench.catalog_source:make`` in the settings of a server; ``options`` are ``services`` and ``port``. A datagram
has the number of a service and the number of the change, as text: the first instance of the service gets another
weight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from xds.services.core.instance import Check, Health, Instance
from xds.services.core.source import Sink

INSTANCES = 10
LOOPBACK = "127.0.0.1"


@lru_cache(1 << 20)
def instances(service: int, count: int = INSTANCES) -> tuple[Instance, ...]:
    """The instances of a service. Those that are the same are the same objects, as sources keep them."""
    return tuple(_instance(service * count + index) for index in range(count))


def changed(service: int, turn: int, count: int = INSTANCES) -> tuple[Instance, ...]:
    """The instances of a service after a change of the first one: no two changes in succession are the same."""
    health = Health.CRITICAL if turn % 2 == 0 else Health.PASSING
    first, *others = instances(service, count)
    return replace(first, weight=2 + turn % 100, checks=(Check("http", health),)), *others


def _instance(number: int) -> Instance:
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return Instance(f"i{number}", address, 8080, meta={"version": "1"}, checks=(Check("http", Health.PASSING),))


class DatagramSource:
    """A source, as `xds.services.core.source.Source`."""

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
