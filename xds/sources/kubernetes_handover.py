"""From the collections of a Kubernetes API to the sink: what was read is applied to a view, what changed handed on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, TypeVar

from xds.catalog.instance import Instance
from xds.catalog.source import Sink
from xds.model.errors import Violation
from xds.sources.kubernetes_list_watch import Change, Gone, Listed, ListWatch, Present, Unreadable
from xds.sources.kubernetes_objects import SERVICES, EndpointSlice, ObjectKey, Service
from xds.sources.kubernetes_view import KubernetesView, service_name

HAND_ON_S = 0.1
SLICE_S = 0.005  # of work between which other tasks run
FINDINGS_LIMIT = 1_000
FINDINGS_PER_SERVICE = 20
UNREADABLE_LIMIT = 1_000

T = TypeVar("T")


class Handover:
    """What the followers read, and what of it the sink was given.

    Nothing is handed on before each of the collections in ``unlisted`` was listed.
    """

    def __init__(self, sink: Sink, view: KubernetesView, unlisted: Iterable[str]) -> None:
        self._sink = sink
        self._view = view
        self._unlisted = set(unlisted)  # collections that were never listed
        self._is_anew = False  # a list was read
        self._has_replaced = False
        self._wake = asyncio.Event()
        self._failing: dict[str, str] = {}
        self._findings: dict[ObjectKey, list[Violation]] = {}
        self._told: list[Violation] | None = None
        self._unreadable: dict[str, Violation] = {}

    # From the followers

    def apply(self, change: Change[Any], followed: ListWatch[Any]) -> None:
        """Take over one change."""
        match change:
            case Present(object=Service() as service):
                self._forget_unreadable(f"/services/{service.key}")
                self._view.put_service(service)
            case Present(object=EndpointSlice() as one):
                self._forget_unreadable(f"/endpointslices/{one.key}")
                self._view.put_slice(one)
            case Gone(key=key):
                self._remove(key, followed)
            case Unreadable(finding=finding):
                if len(self._unreadable) < UNREADABLE_LIMIT:
                    self._unreadable[finding.pointer] = finding
            case Listed(keys=keys):
                self._keep(keys, followed)
        self._wake.set()

    def failed(self, followed: ListWatch[Any], message: str) -> None:
        """A collection cannot be read."""
        self._failing[str(followed)] = message
        self._sink.failed(message)

    def read(self, followed: ListWatch[Any]) -> None:
        """A collection was read; what has changed was applied."""
        self._failing.pop(str(followed), None)
        if not self._failing and not self._unlisted and not self._view.has_changed:
            self._sink.alive()

    def begin_list(self, followed: ListWatch[Any]) -> None:
        """A list was begun."""
        self._view.forget_excess(_place(followed))

    def _forget_absent(self, keys: frozenset[ObjectKey], followed: ListWatch[Any]) -> None:
        """Forget the objects that could not be read, and that are gone."""
        if not self._unreadable:
            return
        present = {f"/{followed.collection.plural}/{key}" for key in keys}
        place = _place(followed)
        for pointer in [each for each in self._unreadable if each.startswith(place) and each not in present]:
            del self._unreadable[pointer]

    def _remove(self, key: ObjectKey, followed: ListWatch[Any]) -> None:
        self._forget_unreadable(f"/{followed.collection.plural}/{key}")
        if followed.collection is SERVICES:
            self._view.remove_service(key)
        else:
            self._view.remove_slice(key)

    def _keep(self, keys: frozenset[ObjectKey], followed: ListWatch[Any]) -> None:
        if followed.collection is SERVICES:
            self._view.keep_services(followed.namespace, keys)
        else:
            self._view.keep_slices(followed.namespace, keys)
        self._forget_absent(keys, followed)
        self._unlisted.discard(str(followed))
        self._is_anew = True

    def _forget_unreadable(self, pointer: str) -> None:
        if self._unreadable:
            self._unreadable.pop(pointer, None)

    # To the sink

    async def run(self) -> None:
        """Hand on what has changed, again and again."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(HAND_ON_S)  # changes that come together are handed on together
            self._wake.clear()
            if not self._unlisted:
                await self._hand_on()

    async def _hand_on(self) -> None:
        changed = self._view.take_changed()
        is_anew, self._is_anew = self._is_anew, False
        if is_anew and (changed or not self._has_replaced):
            # Everything, so that the catalog sees at once what a list no longer has.
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
        if findings != self._told:
            self._told = findings
            self._sink.rejected(findings)
        self._tell_failing()

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

    def _tell_failing(self) -> None:
        """What is put counts as read, though a collection may not be readable."""
        for message in self._failing.values():
            self._sink.failed(message)
            return


def _place(followed: ListWatch[Any]) -> str:
    """What the pointers of findings about objects of a collection begin with."""
    inside = f"{followed.namespace}/" if followed.namespace else ""
    return f"/{followed.collection.plural}/{inside}"


async def in_slices(items: Sequence[T]) -> AsyncIterator[T]:
    """The items; other tasks run in between."""
    ends_s = time.monotonic() + SLICE_S
    for item in items:
        if time.monotonic() >= ends_s:
            await asyncio.sleep(0)
            ends_s = time.monotonic() + SLICE_S
        yield item
