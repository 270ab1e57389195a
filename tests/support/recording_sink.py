"""A sink that records what a source puts into it, for the tests of sources."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager

from xds.model.errors import Violation
from xds.services.core.instance import Instance
from xds.services.core.source import Source

Instances = Sequence[Instance]


class RecordingSink:
    """The observations of a source, as the catalog would keep them, and all calls in order.

    A test says with ``want`` which services are used.
    """

    def __init__(self, *wanted: str) -> None:
        self.services: dict[str, tuple[Instance, ...]] = {}
        self.calls: list[tuple[str, str]] = []  # method and service or message
        self.failures: list[str] = []
        self.findings: list[Violation] = []
        self.rejected_now: list[Violation] = []  # by the last call
        self.alive_n = 0
        self._wanted = frozenset(wanted)
        self._changed = asyncio.Event()

    def put(self, service: str, instances: Instances) -> None:
        """As in `Sink`."""
        self.services[service] = tuple(instances)
        self._record("put", service)

    def remove(self, service: str) -> None:
        """As in `Sink`."""
        self.services.pop(service, None)
        self._record("remove", service)

    def replace(self, services: Mapping[str, Instances]) -> None:
        """As in `Sink`."""
        self.services = {name: tuple(instances) for name, instances in services.items()}
        self._record("replace", "")

    def alive(self) -> None:
        """As in `Sink`."""
        self.alive_n += 1
        self._record("alive", "")

    def failed(self, message: str) -> None:
        """As in `Sink`."""
        self.failures.append(message)
        self._record("failed", message)

    def rejected(self, findings: Sequence[Violation]) -> None:
        """As in `Sink`."""
        self.findings += findings
        self.rejected_now = list(findings)
        self._record("rejected", "")

    def wanted(self) -> frozenset[str]:
        """As in `Sink`."""
        return self._wanted

    async def wait_for_wanted(self, seen: frozenset[str]) -> frozenset[str]:
        """As in `Sink`."""
        await self.wait_until(lambda: self._wanted != seen, timeout_s=None)
        return self._wanted

    # For the test

    def want(self, *services: str) -> None:
        """Set the services that something uses."""
        self._wanted = frozenset(services)
        self._changed.set()

    def places(self, service: str) -> set[str]:
        """``address:port`` of the instances of a service; empty for a service that is not there."""
        return {f"{each.address}:{each.port}" for each in self.services.get(service, ())}

    async def wait_until(self, is_so: Callable[[], bool], timeout_s: float | None = 10.0) -> None:
        """Wait until the source has done what the test waits for. Raises ``TimeoutError`` with the calls so far."""
        try:
            async with asyncio.timeout(timeout_s):
                while not is_so():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise TimeoutError(f"not in {timeout_s} s; calls: {self.calls[-20:]}, services: {self.services}") from None

    async def wait_for_places(self, service: str, places: Collection[str], timeout_s: float | None = 10.0) -> None:
        """Wait until a service has exactly these ``address:port``. Raises ``TimeoutError`` as `wait_until` does."""
        await self.wait_until(lambda: self.places(service) == set(places), timeout_s)

    def _record(self, method: str, about: str) -> None:
        self.calls.append((method, about))
        self._changed.set()


@asynccontextmanager
async def running_source(source: Source, sink: RecordingSink) -> AsyncIterator[RecordingSink]:
    """Run a source into a sink. It must run until it is cancelled."""
    task = asyncio.create_task(source.run(sink))
    try:
        yield sink
        assert not task.done(), task.exception()
    finally:
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, asyncio.CancelledError), result
