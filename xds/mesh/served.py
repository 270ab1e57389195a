"""The mesh on one server: config entries with their chains, and groups with upstreams."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace

from prometheus_client.registry import Collector

from xds.access.caller import Caller
from xds.admin.dependencies import Dependencies
from xds.codec.resources import ResourceDecoder
from xds.feature import Kernel, ServedFeature
from xds.fleet.event_log import EventLog
from xds.live.owners import EndpointOrigin
from xds.mesh.config_entries import EntryTable
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.lower.upstreams import UpstreamsDocument
from xds.mesh.entry_records import EntryResult, EntryWrite
from xds.mesh.lowered_endpoints import LOWERED, LoweredEndpoints
from xds.mesh.lowered_endpoints import USER as UPSTREAMS
from xds.mesh.lowered_groups import GROUPS_LIMIT, LoweredGroups
from xds.mesh.metrics import LoweredMetrics
from xds.mesh.parts import EntryPart, UpstreamsPart
from xds.mesh.settings import chain_context
from xds.push.derived import Derived
from xds.push.group_names import check_group_name
from xds.push.groups import GroupSettings, SettingsWrite, check_settings
from xds.push.publisher import Publisher
from xds.push.request import PushOptions, PushResult
from xds.services.served import ServedServices
from xds.store.base import Store
from xds.store.document_keys import Key


class ServedMesh(ServedFeature):
    """The mesh of one server: derived resources of its ``publisher``.

    ``decoder`` checks lowered resources. At most ``limit`` groups can have upstreams.
    """

    def __init__(
        self,
        store: Store,
        publisher: Publisher,
        context: ChainContext,
        events: EventLog,
        decoder: ResourceDecoder | None = None,
        limit: int = GROUPS_LIMIT,
    ) -> None:
        self.entries = EntryTable(store, context, events, self._write_entries)
        self.lowered = LoweredGroups(store, self.entries, decoder or ResourceDecoder(), limit)
        self._publisher = publisher

    @classmethod
    def of(cls, kernel: Kernel) -> ServedMesh:
        """The mesh of a server. The assignments of lowered clusters follow its services."""
        settings, publisher = kernel.settings, kernel.publisher
        chains, decoder = settings.chains, ResourceDecoder(settings.limits.resource_bytes)
        context, limit = chain_context(chains), chains.upstream_groups
        made = cls(kernel.store, publisher, context, kernel.fleet.events, decoder, limit)
        services = kernel.feature(ServedServices)
        unread_s = settings.order.order_timeout_s
        endpoints = LoweredEndpoints(services.catalog, publisher.live, chains.datacenter, unread_s=unread_s)
        made.lowered.endpoints = endpoints
        services.followed[UPSTREAMS] = endpoints.followed
        return made

    # Writing

    def entry_part(self, writes: Sequence[EntryWrite], options: PushOptions, to: int | None = None) -> EntryPart:
        """A write of config entries, or the rollback to a revision, for a transaction with groups."""
        return EntryPart(self.entries, self.lowered, writes, options, to)

    async def write_upstreams(
        self,
        group: str,
        document: UpstreamsDocument | None,
        options: PushOptions,
        settings: GroupSettings | None = None,
    ) -> PushResult:
        """Set the upstreams of a group, or delete them (None). The group is created if it does not exist.

        ``settings`` are the new settings of the group; None: they stay. ``options.etag`` is the etag of the upstreams
        document; a push id is ignored. Raises ``ValidationError`` with the places in the document and the config
        entries, also for names of pushed resources of the group; ``OwnedError`` for assignments with another owner,
        ``NotFoundError`` for the deletion of upstreams that do not exist, ``ConflictError``, ``EmptyingError``,
        ``StoreError``.
        """
        check_group_name(group)
        by = Caller(options.meta.actor, options.meta.author, options.peer)
        written: SettingsWrite | None = None
        if settings is not None:
            written = SettingsWrite(group, settings, await asyncio.to_thread(check_settings, settings), by)
        part = UpstreamsPart(self.lowered, group, document, options, written)
        await self._publisher.transaction([], replace(options, etag="", push_id=""), part)
        assert part.result is not None
        return part.result

    async def _write_entries(self, writes: Sequence[EntryWrite], options: PushOptions, to: int | None) -> EntryResult:
        part = self.entry_part(writes, options, to)
        await self._publisher.transaction([], options, part)
        assert part.result is not None
        return part.result

    # What the kernel asks

    def derived(self) -> Sequence[Derived]:
        return (self.lowered,)

    def endpoint_origins(self, key: Key, owner: str) -> Sequence[EndpointOrigin] | None:
        """The instances that the assignment of a lowered cluster selects."""
        endpoints = self.lowered.endpoints
        return endpoints.origins(key) if endpoints is not None and owner == LOWERED else None

    def collectors(self) -> Iterator[Collector]:
        yield LoweredMetrics(self.lowered)

    async def drain(self) -> None:
        self.entries.waiting.end()

    async def close(self) -> None:
        """End the queries that wait for a change."""
        self.entries.waiting.end()


def served(deps: Dependencies) -> ServedMesh:
    """The mesh of a server, for its routes."""
    return deps.feature(ServedMesh, "the mesh")
