"""Applies what followers read to a view, and passes changed services to the sink."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from xds.model.errors import Violation
from xds.services.core.instance import Instance
from xds.services.core.source import Sink
from xds.services.sources.kubernetes_list_watch import Change, Deleted, Listed, ListWatch, Present, Unreadable
from xds.services.sources.kubernetes_objects import EndpointSlice, ObjectKey, Service
from xds.services.sources.kubernetes_view import KubernetesView, service_name

GATHER_S = 0.1
SLICE_S = 0.005  # of work between which other tasks run
FINDINGS_LIMIT = 1_000
FINDINGS_PER_SERVICE = 20
UNREADABLE_LIMIT = 1_000

T = TypeVar("T")


class Handover:
    """The link between followers and the sink.

    Nothing is passed to the sink before each of the collections in ``unlisted`` was listed.
    """

    def __init__(self, sink: Sink, view: KubernetesView, unlisted: Iterable[str]) -> None:
        self._sink = sink
        self._view = view
        self._unlisted = set(unlisted)  # collections that were never listed
        self._was_listed = False  # a list was read since the last flush
        self._has_replaced = False
        self._wake = asyncio.Event()
        self._failing: dict[str, str] = {}
        self._findings: dict[ObjectKey, list[Violation]] = {}
        self._reported: list[Violation] | None = None
        self._unreadable: dict[str, Violation] = {}

    # From the followers

    def apply(self, change: Change[Any], list_watch: ListWatch[Any]) -> None:
        """Apply one change to the view."""
        match change:
            case Present(object=Service() as service):
                self._unreadable.pop(_pointer(list_watch, service.key), None)
                self._view.put_service(service)
            case Present(object=EndpointSlice() as one):
                self._unreadable.pop(_pointer(list_watch, one.key), None)
                self._view.put_slice(one)
            case Deleted(key=key):
                self._unreadable.pop(_pointer(list_watch, key), None)
                self._view.remove(list_watch.collection, key)
            case Unreadable(finding=finding):
                if len(self._unreadable) < UNREADABLE_LIMIT:
                    self._unreadable[finding.pointer] = finding
            case Listed(keys=keys):
                self._keep_listed(keys, list_watch)
        self._wake.set()

    def failed(self, list_watch: ListWatch[Any], message: str) -> None:
        """Report that a collection cannot be read."""
        self._failing[str(list_watch)] = message
        self._sink.failed(message)

    def read(self, list_watch: ListWatch[Any]) -> None:
        """Record that a collection was read, and its changes were applied."""
        self._failing.pop(str(list_watch), None)
        if not self._failing and not self._unlisted and not self._view.has_changed:
            self._sink.alive()

    def begin_list(self, list_watch: ListWatch[Any]) -> None:
        """Prepare for a new list of a collection."""
        self._view.forget_excess(_pointer_prefix(list_watch))

    def _keep_listed(self, keys: frozenset[ObjectKey], list_watch: ListWatch[Any]) -> None:
        """A list was read: what it has not is gone, as are the findings about that."""
        self._view.keep(list_watch.collection, list_watch.namespace, keys)
        if self._unreadable:
            present = {_pointer(list_watch, key) for key in keys}
            prefix = _pointer_prefix(list_watch)
            for pointer in [each for each in self._unreadable if each.startswith(prefix) and each not in present]:
                del self._unreadable[pointer]
        self._unlisted.discard(str(list_watch))
        self._was_listed = True

    # To the sink

    async def run(self) -> None:
        """Pass changes to the sink, until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(GATHER_S)  # gathers changes that come together
            self._wake.clear()
            if not self._unlisted:
                await self._flush()

    async def _flush(self) -> None:
        changed = self._view.take_changed()
        was_listed, self._was_listed = self._was_listed, False
        if was_listed and (changed or not self._has_replaced):
            # All services, so that the catalog removes those that the list no longer has.
            self._has_replaced = True
            services: dict[str, tuple[Instance, ...]] = {}
            async for key in in_slices(self._view.keys):
                if self._view.is_present(key):
                    services[service_name(key)] = self._instances(key)
            for key in changed:
                if not self._view.is_present(key):
                    self._findings.pop(key, None)
            self._sink.replace(services)
        else:
            async for key in in_slices(changed):
                self._put(key)
        findings = list(islice(self._all_findings(), FINDINGS_LIMIT))
        if findings != self._reported:
            self._reported = findings
            self._sink.rejected(findings)
        self._report_failing()

    def _put(self, key: ObjectKey) -> None:
        if self._view.is_present(key):
            self._sink.put(service_name(key), self._instances(key))
        else:
            self._findings.pop(key, None)
            self._sink.remove(service_name(key))

    def _instances(self, key: ObjectKey) -> tuple[Instance, ...]:
        instances, findings = self._view.instances(key)
        if findings:
            self._findings[key] = findings[:FINDINGS_PER_SERVICE]
        else:
            self._findings.pop(key, None)
        return instances

    def _all_findings(self) -> Iterator[Violation]:
        of_services = chain.from_iterable(self._findings.values())
        return chain(self._unreadable.values(), self._view.findings(), of_services)

    def _report_failing(self) -> None:
        """Report failing collections again, because each put tells the sink that the source was read."""
        if self._failing:
            self._sink.failed(next(iter(self._failing.values())))


def _pointer(list_watch: ListWatch[Any], key: ObjectKey) -> str:
    """The pointer of findings about an object."""
    return f"/{list_watch.collection.plural}/{key}"


def _pointer_prefix(list_watch: ListWatch[Any]) -> str:
    """The prefix of the pointers of findings about objects of a collection."""
    inside = f"{list_watch.namespace}/" if list_watch.namespace else ""
    return f"/{list_watch.collection.plural}/{inside}"


async def in_slices(items: Sequence[T]) -> AsyncIterator[T]:
    """The items. Other tasks may run every ``SLICE_S``."""
    ends_s = time.monotonic() + SLICE_S
    for item in items:
        if time.monotonic() >= ends_s:
            await asyncio.sleep(0)
            ends_s = time.monotonic() + SLICE_S
        yield item
