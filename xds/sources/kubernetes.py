"""Kubernetes as a source: Services and EndpointSlices, listed and watched (docs/services.md#kubernetes).

A task per collection and namespace lists and watches, and puts what it reads into one view. Another task hands the
services that changed to the sink, at most every ``HAND_ON_S``. Nothing is handed on before every collection was listed
once: until then the catalog has the last good set.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from random import uniform
from typing import Any, TypeVar

import structlog

from xds.catalog.instance import Instance
from xds.catalog.source import Sink
from xds.model.errors import Violation, XdsError
from xds.sources.kubernetes_client import ClientLimits, KubernetesClient
from xds.sources.kubernetes_credentials import Credentials
from xds.sources.kubernetes_instances import KIND, InstanceRules
from xds.sources.kubernetes_list_watch import (
    ApiError,
    Change,
    ConnectionLostError,
    Gone,
    Listed,
    ListWatch,
    Present,
    Unreadable,
)
from xds.sources.kubernetes_objects import SERVICES, SLICES, EndpointSlice, Key, Service
from xds.sources.kubernetes_view import ENDPOINTS_LIMIT, SERVICES_LIMIT, KubernetesView, service_name

HAND_ON_S = 0.1
SLICE_S = 0.005  # of work between which other tasks run
SHORT_S = 1.0  # watches that end sooner and bring nothing, one after the other, are a failure
STEADY_S = 60.0  # lists that are so far apart are no sign of trouble
LONGEST_LIST_GAP_S = 60.0
FINDINGS_LIMIT = 1_000
FINDINGS_PER_SERVICE = 20
UNREADABLE_LIMIT = 1_000

T = TypeVar("T")

_log = structlog.get_logger(logger_name="xds.sources.kubernetes")


@dataclass(frozen=True, slots=True)
class FollowRules:
    """How collections are followed. Without ``namespaces`` all are.

    * ``labels``: a label selector; Kubernetes copies the labels of a Service to its slices;
    * ``watch_s``: after this time the server is to end a watch, which is then resumed;
    * ``relist_s``: everything is listed again so often, in case a watch lost something;
    * ``events_per_s``: beyond it, events wait at the API server;
    * ``retry_s``, ``longest_retry_s``: the delay after a failure, and what it grows to.
    """

    namespaces: tuple[str, ...] = ()
    labels: str = ""
    page_size: int = 100
    watch_s: float = 300.0
    relist_s: float = 3_600.0
    events_per_s: float = 2_000.0
    retry_s: float = 0.5
    longest_retry_s: float = 30.0
    services_limit: int = SERVICES_LIMIT
    endpoints_limit: int = ENDPOINTS_LIMIT
    limits: ClientLimits = field(default_factory=ClientLimits)


class KubernetesSource:
    """A `Source` that reads one cluster."""

    kind = KIND

    def __init__(
        self,
        name: str,
        credentials: Credentials,
        instances: InstanceRules | None = None,
        follow: FollowRules | None = None,
    ) -> None:
        self.name = name
        self._credentials = credentials
        self._instances = instances or InstanceRules()
        self._follow = follow or FollowRules()

    async def run(self, sink: Sink) -> None:
        """As in `Source`."""
        rules = self._follow
        handover = _Handover(sink, KubernetesView(self._instances, rules.services_limit, rules.endpoints_limit))
        followers = [
            _Follower(ListWatch[Any](collection, namespace), self._credentials, rules, handover)
            for namespace in rules.namespaces or ("",)
            for collection in (SERVICES, SLICES)
        ]
        handover.expect(len(followers))
        async with asyncio.TaskGroup() as tasks:
            for follower in followers:
                tasks.create_task(follower.run())
            tasks.create_task(handover.run())


class _Handover:
    """What the followers read, and what of it the sink was given."""

    def __init__(self, sink: Sink, view: KubernetesView) -> None:
        self._sink = sink
        self._view = view
        self._to_list = 0  # collections that were never listed
        self._is_anew = False  # a list was read
        self._has_replaced = False
        self._wake = asyncio.Event()
        self._failing: dict[str, str] = {}
        self._findings: dict[Key, list[Violation]] = {}
        self._unreadable: dict[str, Violation] = {}

    # From the followers

    def expect(self, collections: int) -> None:
        """So many collections must be listed before anything is handed on."""
        self._to_list = collections

    def apply(self, change: Change[Any], follower: _Follower) -> None:
        """Take over one change."""
        match change:
            case Present(object=Service() as service):
                self._forget_unreadable(f"/services/{service.key}")
                self._view.put_service(service)
            case Present(object=EndpointSlice() as one):
                self._forget_unreadable(f"/endpointslices/{one.key}")
                self._view.put_slice(one)
            case Gone(key=key):
                self._remove(key, follower)
            case Unreadable(finding=finding):
                if len(self._unreadable) < UNREADABLE_LIMIT:
                    self._unreadable[finding.pointer] = finding
            case Listed(keys=keys):
                self._keep(keys, follower)
        self._wake.set()

    def failed(self, follower: _Follower, message: str) -> None:
        """A follower cannot read its collection."""
        self._failing[str(follower)] = message
        self._sink.failed(message)

    def read(self, follower: _Follower) -> None:
        """A follower has read, or is sure that nothing has changed."""
        self._failing.pop(str(follower), None)
        if not self._failing and not self._to_list and not self._view.has_changed:
            self._sink.alive()

    def begin_list(self) -> None:
        """A list was begun."""
        self._view.forget_excess()

    def _remove(self, key: Key, follower: _Follower) -> None:
        self._forget_unreadable(f"/{follower.plural}/{key}")
        if follower.plural == SERVICES.plural:
            self._view.remove_service(key)
        else:
            self._view.remove_slice(key)

    def _keep(self, keys: frozenset[Key], follower: _Follower) -> None:
        if follower.plural == SERVICES.plural:
            self._view.keep_services(follower.namespace, keys)
        else:
            self._view.keep_slices(follower.namespace, keys)
        if follower.is_first_list:
            self._to_list -= 1
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
            if not self._to_list:
                await self._hand_on()

    async def _hand_on(self) -> None:
        changed = self._view.take_changed()
        is_anew, self._is_anew = self._is_anew, False
        if is_anew and (changed or not self._has_replaced):
            # Everything, so that the catalog sees at once what a list no longer has.
            self._has_replaced = True
            services: dict[str, tuple[Instance, ...]] = {}
            async for key in _in_slices(self._view.keys):
                if self._view.is_present(key):
                    services[service_name(key)] = self._instances(key)
            for key in changed:
                if not self._view.is_present(key):
                    self._findings.pop(key, None)
            self._sink.replace(services)
        else:
            async for key in _in_slices(changed):
                self._put(key)
        self._sink.rejected(list(islice(self._all_findings(), FINDINGS_LIMIT)))
        self._tell_failing()

    def _put(self, key: Key) -> None:
        if self._view.is_present(key):
            self._sink.put(service_name(key), self._instances(key))
        else:
            self._findings.pop(key, None)
            self._sink.remove(service_name(key))

    def _instances(self, key: Key) -> tuple[Instance, ...]:
        instances, findings = self._view.instances(key)
        if findings:
            self._findings[key] = findings[:FINDINGS_PER_SERVICE]
        else:
            self._findings.pop(key, None)
        return instances

    def _all_findings(self) -> Iterator[Violation]:
        return chain(self._unreadable.values(), self._view.findings(), *self._findings.values())

    def _tell_failing(self) -> None:
        """What is put counts as read, though a collection may not be readable."""
        for message in self._failing.values():
            self._sink.failed(message)
            return


class _Follower:
    """Lists and watches one collection, for ever."""

    def __init__(
        self, list_watch: ListWatch[Any], credentials: Credentials, rules: FollowRules, handover: _Handover
    ) -> None:
        self._list_watch = list_watch
        self._rules = rules
        self._handover = handover
        self._client = KubernetesClient(credentials, rules.limits)
        self._delay = _Delay(rules.retry_s, rules.longest_retry_s)
        self._pace = _Pace(rules.events_per_s)
        self._page_size = rules.page_size
        self._seen = 0  # lines of the present watch
        self._short_n = 0  # short watches in a row
        self._list_due_s = 0.0
        self._list_began_s = -inf
        self._list_gap_s = 0.0
        self.is_first_list = True

    def __str__(self) -> str:
        return str(self._list_watch)

    @property
    def plural(self) -> str:
        """The collection."""
        return self._list_watch.collection.plural

    @property
    def namespace(self) -> str:
        """The namespace; empty for all."""
        return self._list_watch.namespace

    async def run(self) -> None:
        """Follow until cancelled. What the API server does wrong is told and tried again."""
        try:
            while True:
                try:
                    await self._follow()
                except XdsError as error:
                    await self._fail(error)
        finally:
            await self._client.close()

    async def _follow(self) -> None:
        if time.monotonic() >= self._list_due_s:
            self._list_watch.forget()
        if self._list_watch.needs_list:
            await self._list()
        else:
            newest = await self._client.get(self._list_watch.path, {"limit": "1"})
            self._list_watch.receive_newest(newest)
            if self._list_watch.needs_list:
                _log.warning("kubernetes.version_went_back", collection=str(self))
                return
        await self._watch()

    async def _fail(self, error: XdsError) -> None:
        retry_after_s = 0.0
        if isinstance(error, ApiError):
            retry_after_s = error.retry_after_s
            if error.is_stale:
                self._list_watch.forget()
        if not (isinstance(error, ApiError) and error.is_stale):
            self._handover.failed(self, str(error))
        delay_s = self._delay.next_s(retry_after_s)
        _log.info("kubernetes.retry", collection=str(self), error_message=str(error), delay_s=round(delay_s, 3))
        # The connection may be to a server that is gone, and the credentials may have changed.
        await self._client.close()
        await asyncio.sleep(delay_s)

    # Lists

    async def _list(self) -> None:
        listing = self._list_watch
        await self._space_lists()
        listing.begin_list()
        self._handover.begin_list()
        try:
            while True:
                page = await self._client.get(listing.path, self._query(listing.list_query(self._page_size)))
                changes = listing.receive_page(page)
                if changes:
                    break
        except ApiError as error:
            if error.is_stale:
                # The pages are of one moment, which the server has forgotten: fewer pages take less time.
                self._page_size = min(self._page_size * 4, 100_000)
            raise
        async for change in _in_slices(changes):
            self._handover.apply(change, self)
        self.is_first_list = False
        self._page_size = self._rules.page_size
        self._list_due_s = time.monotonic() + self._rules.relist_s * uniform(0.9, 1.1)  # noqa: S311
        self._handover.read(self)

    async def _space_lists(self) -> None:
        """A list costs the API server more than a watch: lists that follow each other are spaced more and more."""
        now_s = time.monotonic()
        if now_s - self._list_began_s >= STEADY_S + self._list_gap_s:
            self._list_gap_s = 0.0
        else:
            await asyncio.sleep(max(self._list_began_s + self._list_gap_s - now_s, 0.0))
            self._list_gap_s = min(max(self._list_gap_s * 2, self._rules.retry_s), LONGEST_LIST_GAP_S)
        self._list_began_s = time.monotonic()

    # Watches

    async def _watch(self) -> None:
        began_s, self._seen = time.monotonic(), 0
        asked_s = min(self._rules.watch_s * uniform(0.8, 1.0), self._list_due_s - began_s)  # noqa: S311
        try:
            # The time bounds a server that neither ends the watch nor is silent.
            async with asyncio.timeout(asked_s + self._rules.limits.silence_s):
                await self._read_watch(max(int(asked_s), 1))
        except TimeoutError:
            # It may be dead without a word. To resume it costs little, and tells.
            _log.info("kubernetes.watch_silent", collection=str(self))
            await self._client.close()
        except ConnectionLostError as error:
            _log.info("kubernetes.watch_lost", collection=str(self), error_message=str(error))
            await self._client.close()
        is_short = not self._seen and time.monotonic() - began_s < SHORT_S
        self._short_n = self._short_n + 1 if is_short else 0
        if self._short_n > 1:
            raise ApiError(f"{self}: {self._short_n} watches in a row ended at once, without an event")
        self._delay.reset()
        await asyncio.sleep(max(began_s + self._rules.retry_s - time.monotonic(), 0.0))

    async def _read_watch(self, timeout_s: int) -> None:
        watching = self._list_watch
        async with self._client.watch(watching.path, self._query(watching.watch_query(timeout_s))) as lines:
            self._handover.read(self)
            async for line in lines:
                change = watching.receive_line(line)
                self._seen += 1
                if change is not None:
                    self._handover.apply(change, self)
                self._handover.read(self)
                await self._pace.keep()

    def _query(self, query: dict[str, str]) -> dict[str, str]:
        return {**query, "labelSelector": self._rules.labels} if self._rules.labels else query


class _Delay:
    """The delay before the next attempt: doubled each time, and random, so that many do not come at once."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._s = first_s

    def reset(self) -> None:
        """Something went well."""
        self._s = self._first_s

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The delay of now; at least what the server asked for, within the longest."""
        delay_s, self._s = self._s * uniform(0.5, 1.0), min(self._s * 2, self._longest_s)  # noqa: S311
        return max(delay_s, min(at_least_s, self._longest_s))


class _Pace:
    """A bound on events per second: beyond it the watch is not read, until the second is over."""

    def __init__(self, per_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_s
        self._clock = clock
        self._began_s = clock()
        self._seen = 0

    async def keep(self) -> None:
        """One event was handled."""
        self._seen += 1
        if self._seen < self._per_s:
            return
        rest_s = self._began_s + 1.0 - self._clock()
        if rest_s > 0:
            await asyncio.sleep(rest_s)
        self._began_s, self._seen = self._clock(), 0


async def _in_slices(items: Sequence[T]) -> AsyncIterator[T]:
    """The items; other tasks run in between."""
    ends_s = time.monotonic() + SLICE_S
    for item in items:
        if time.monotonic() >= ends_s:
            await asyncio.sleep(0)
            ends_s = time.monotonic() + SLICE_S
        yield item
