"""Writes of config entries and of upstreams, as parts of transactions with groups (`DerivedWrite`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from xds.access.caller import Caller
from xds.mesh.config_entries import SIZE_OF_ENTRY, EntryTable, PlannedWrite
from xds.mesh.core.lower.upstreams import UpstreamsDocument
from xds.mesh.entry_records import LINE, EntryResult, EntryWrite, check_writes, request_digest
from xds.mesh.lowered_groups import LoweredGroups, LoweringPart, TouchedGroups
from xds.push.derived import DerivedChange
from xds.push.groups import SettingsWrite
from xds.push.request import PushOptions, PushResult
from xds.store.base import Commit, Delta, GroupPush, Meta
from xds.tasks.threads import run_sized


class UpstreamsPart(LoweringPart):
    """A write of the upstreams of a group; ``document`` None deletes them.

    ``options.etag`` is the etag of the document. ``result`` is None until the write is published, or planned in a dry
    run.
    """

    def __init__(
        self,
        groups: LoweredGroups,
        group: str,
        document: UpstreamsDocument | None,
        options: PushOptions,
        settings: SettingsWrite | None = None,
    ) -> None:
        super().__init__(groups, {group: None})
        self.settings = settings
        self.result: PushResult | None = None
        self._group = group
        self._document = document
        self._options = options

    async def derive(self, deleted: Collection[str]) -> Mapping[str, DerivedChange]:
        """Lower the document. Raises as `LoweredGroups.check` and ``plan_document``."""
        groups, group, document, meta = self._groups, self._group, self._document, self._options.meta
        groups.check(group, document, self._options.etag)
        self._lowered = {group: await groups.plan_document(group, document) if document is not None else None}
        write = groups.write(group, document, Caller(meta.actor, meta.author, self._options.peer), meta.message)
        return {group: replace(groups.change(group, self._lowered[group]), writes=(write, groups.order()))}

    def done(self, results: Sequence[PushResult]) -> None:
        (self.result,) = results


class EntryPart(LoweringPart):
    """One write of config entries, with what follows for groups with upstreams.

    ``to`` is the revision to roll back to; None: ``writes`` are applied. ``result`` is None until the write is
    published, or planned in a dry run.
    """

    def __init__(
        self,
        entries: EntryTable,
        groups: LoweredGroups,
        writes: Sequence[EntryWrite],
        options: PushOptions,
        to: int | None = None,
    ) -> None:
        super().__init__(groups)
        self.result: EntryResult | None = None
        self._entries = entries
        self._writes = writes
        self._options = options
        self._to = to
        self._request_digest = ""
        self._planned: PlannedWrite | None = None
        self._touched: TouchedGroups | None = None
        self._order = groups.order()

    async def repeated_push(self) -> GroupPush | None:
        """The push by which the store finds an earlier, equal write. Raises ``ValidationError`` as ``check_writes``."""
        return GroupPush(LINE, Delta((), (), {}), request_text=await self._request_text())

    async def plan(self) -> Collection[str]:
        """Compare the write with the present entries. Raises as `EntryTable.apply`."""
        entries, options, request_text = self._entries, self._options, await self._request_text()
        if self._to is None:
            self._planned = await entries.plan(self._writes, options, request_text)
        else:
            self._planned = await entries.plan_roll_back(self._to, options, request_text)
        if options.dry_run:
            self.result = entries.preview(self._planned)
        self._touched = await self._groups.find_touched(self._planned)
        return self._touched.groups

    async def derive(self, deleted: Collection[str]) -> Mapping[str, DerivedChange]:
        """Lower the touched groups. Raises as `LoweredGroups.plan_entries`."""
        assert self._touched is not None
        self._order = self._groups.order()
        lowered = await self._groups.plan_entries(self._touched)
        self._lowered = {group: one for group, one in lowered.items() if group not in deleted}
        return {group: self._groups.change(group, one, is_next=True) for group, one in self._lowered.items()}

    def pushes(self) -> Sequence[GroupPush]:
        assert self._planned is not None
        return (replace(self._planned.push, writes=(self._order,)),)

    def begin(self, commits: Sequence[Commit], meta: Meta) -> Collection[str]:
        """Take over the entries, their chains, and the lowered resources."""
        assert self._planned is not None
        (commit,) = commits
        self._groups.known.note_committed(self._order, commit)
        self.result = self._entries.publish(self._planned, commit, meta)
        return super().begin(commits, meta)

    async def replay(self, commit: Commit) -> None:
        """Take the result of an equal write that was made before. Raises as `EntryTable.replayed`."""
        self.result = await self._entries.replayed(commit)

    def done(self, results: Sequence[PushResult]) -> None:
        """Add the changes of groups with upstreams to the result."""
        if self.result is not None and results:
            self.result = replace(self.result, groups=tuple(results))

    async def _request_text(self) -> str:
        if self._to is not None:
            return f"roll back to {self._to}"
        if not self._request_digest:
            check_writes(self._writes)
            size = len(self._writes) * SIZE_OF_ENTRY
            self._request_digest = await run_sized(request_digest, self._writes, resources=size)
        return self._request_digest
