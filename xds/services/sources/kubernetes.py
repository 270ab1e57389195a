"""Kubernetes as a source: Services and EndpointSlices, listed and watched (docs/services.md#kubernetes).

A `Follower` per collection and namespace lists and watches objects, retries after failures, and applies what it reads
to one view. Another task passes changed services to the sink. Nothing is passed on before every collection was listed
once: until then the catalog has the last good set.
"""

from __future__ import annotations

import asyncio
import time
from math import inf
from random import uniform
from typing import Any

import structlog

from xds.model.errors import XdsError
from xds.services.core.source import Sink
from xds.services.growing_delay import GrowingDelay
from xds.services.source_settings import KubernetesSettings
from xds.services.sources.kubernetes_client import ClientLimits, KubernetesClient
from xds.services.sources.kubernetes_credentials import ClusterCredentials, InCluster, Kubeconfig
from xds.services.sources.kubernetes_handover import Handover, in_slices
from xds.services.sources.kubernetes_instances import KIND
from xds.services.sources.kubernetes_list_watch import ApiError, ConnectionLostError, ListWatch
from xds.services.sources.kubernetes_objects import SERVICES, SLICES
from xds.services.sources.kubernetes_view import KubernetesView

SHORT_S = 1.0  # successive watches that end sooner, without an event, are a failure
STEADY_S = 60.0  # lists with longer pauses in between do not increase the gap
LONGEST_LIST_GAP_S = 60.0
LARGEST_PAGE = 100_000

_log = structlog.get_logger(logger_name="xds.sources.kubernetes")


class Follower:
    """Lists and watches one collection until cancelled, and passes what it reads to ``handover``.

    A label selector applies to slices too, because Kubernetes copies the labels of a Service to them.
    """

    def __init__(
        self,
        list_watch: ListWatch[Any],
        client: KubernetesClient,
        limits: ClientLimits,
        settings: KubernetesSettings,
        handover: Handover,
    ) -> None:
        self._list_watch = list_watch
        self._settings = settings
        self._handover = handover
        self._client = client
        self._silence_s = limits.silence_s
        self._delay = GrowingDelay(settings.retry_s, settings.longest_retry_s)
        self._event_rate = _EventRate(settings.events_per_s)
        self._page_size = settings.page_size
        self._lines_n = 0  # lines of the current watch
        self._short_n = 0  # short watches in a row
        self._list_due_s = 0.0
        self._listed_s = -inf
        self._listed_url = ""
        self._list_gap_s = 0.0

    def __str__(self) -> str:
        return str(self._list_watch)

    async def run(self) -> None:
        """Follow until cancelled. Failures are reported and retried."""
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
            if self._client.url != self._listed_url:  # resource versions of another cluster cannot be compared
                self._list_watch.forget()
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
            self._handover.failed(self._list_watch, str(error))
        delay_s = self._delay.next_s(retry_after_s)
        _log.debug("kubernetes.retry", collection=str(self), error_message=str(error), delay_s=round(delay_s, 3))
        # The server of the connection may be dead, and the credentials may have changed.
        await self._client.close()
        await asyncio.sleep(delay_s)

    # Lists

    async def _list(self) -> None:
        listing = self._list_watch
        await self._wait_for_gap()
        listing.begin_list()
        self._handover.begin_list(listing)
        try:
            while True:
                page = await self._client.get(listing.path, self._query(listing.list_query(self._page_size)))
                changes = listing.receive_page(page)
                if changes:
                    break
        except ApiError as error:
            if error.is_stale:
                # The pages show one moment, which the server no longer keeps. Larger pages are read faster.
                self._page_size = min(self._page_size * 4, LARGEST_PAGE)
            raise
        async for change in in_slices(changes):
            self._handover.apply(change, self._list_watch)
        self._schedule_next_list()
        self._handover.read(self._list_watch)

    async def _wait_for_gap(self) -> None:
        """Wait between lists. A list costs the API server more than a watch, so the gap between lists grows."""
        await asyncio.sleep(max(self._listed_s + self._list_gap_s - time.monotonic(), 0.0))

    def _schedule_next_list(self) -> None:
        """After a list: set the least gap to the next one, and the time when the next one is due."""
        now_s = time.monotonic()
        if now_s - self._listed_s >= STEADY_S + self._list_gap_s:
            self._list_gap_s = 0.0
        else:
            self._list_gap_s = min(max(self._list_gap_s * 2, self._settings.retry_s), LONGEST_LIST_GAP_S)
        self._listed_s, self._listed_url = now_s, self._client.url
        self._list_due_s = now_s + self._settings.relist_s * uniform(0.9, 1.1)  # noqa: S311
        self._page_size = self._settings.page_size

    # Watches

    async def _watch(self) -> None:
        began_s, self._lines_n = time.monotonic(), 0
        watch_s = min(self._settings.watch_s * uniform(0.8, 1.0), self._list_due_s - began_s)  # noqa: S311
        try:
            # The timeout ends a watch that the server does not end, even if it sends events.
            async with asyncio.timeout(watch_s + self._silence_s):
                await self._read_watch(max(int(watch_s), 1))
        except TimeoutError:
            # The connection may be dead. Resuming the watch costs little, and shows it.
            _log.info("kubernetes.watch_silent", collection=str(self))
            await self._client.close()
        except ConnectionLostError as error:
            _log.info("kubernetes.watch_lost", collection=str(self), error_message=str(error))
            await self._client.close()
        is_short = not self._lines_n and time.monotonic() - began_s < SHORT_S
        self._short_n = self._short_n + 1 if is_short else 0
        if self._short_n > 1:
            raise ApiError(f"{self}: {self._short_n} watches in a row ended at once, without an event")
        self._delay.reset()
        await asyncio.sleep(max(began_s + self._settings.retry_s - time.monotonic(), 0.0))

    async def _read_watch(self, timeout_s: int) -> None:
        watching = self._list_watch
        async with self._client.watch(watching.path, self._query(watching.watch_query(timeout_s))) as lines:
            self._handover.read(self._list_watch)
            async for line in lines:
                change = watching.receive_line(line)
                self._lines_n += 1
                if change is not None:
                    self._handover.apply(change, self._list_watch)
                self._handover.read(self._list_watch)
                await self._event_rate.wait()

    def _query(self, query: dict[str, str]) -> dict[str, str]:
        return {**query, "labelSelector": self._settings.labels} if self._settings.labels else query


class _EventRate:
    """A limit of events per second: when it is reached, the watch is not read until the second has ended."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._began_s = time.monotonic()
        self._events_n = 0

    async def wait(self) -> None:
        """Count one event, and wait if the limit is reached."""
        self._events_n += 1
        if self._events_n < self._per_s:
            return
        rest_s = self._began_s + 1.0 - time.monotonic()
        if rest_s > 0:
            await asyncio.sleep(rest_s)
        self._began_s, self._events_n = time.monotonic(), 0


class KubernetesSource:
    """A `Source` that reads one cluster: all of it, or some namespaces.

    By default, the settings name the ``credentials``.
    """

    kind = KIND

    def __init__(
        self,
        name: str,
        settings: KubernetesSettings,
        credentials: ClusterCredentials | None = None,
        limits: ClientLimits | None = None,
    ) -> None:
        self.name = name
        self._settings = settings
        self._credentials = credentials or _credentials(settings)
        self._limits = limits or ClientLimits(silence_s=settings.silence_s)

    async def run(self, sink: Sink) -> None:
        """As in `Source`."""
        namespaces = self._settings.namespaces or ("",)
        list_watches = [
            ListWatch[Any](collection, namespace) for namespace in namespaces for collection in (SERVICES, SLICES)
        ]
        handover = Handover(sink, KubernetesView(self._settings), map(str, list_watches))
        async with asyncio.TaskGroup() as tasks:
            for each in list_watches:
                client = KubernetesClient(self._credentials, self._limits)
                tasks.create_task(Follower(each, client, self._limits, self._settings, handover).run())
            tasks.create_task(handover.run())


def _credentials(settings: KubernetesSettings) -> ClusterCredentials:
    if settings.kubeconfig is None:
        return InCluster()
    return Kubeconfig(settings.kubeconfig.expanduser(), settings.context)
