"""Config entries as desired state, and the chains that are compiled from them (docs/discovery-chain.md).

A write is proposed to the index of chains first. A write that would break a chain is refused, and nothing changes.
Otherwise the store commits the write, and then the new entries and chains replace the old ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import structlog

from xds.access.caller import Caller
from xds.fleet.event_log import EventKind, EventLog
from xds.mesh.core.chain.chain import DiscoveryChain
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.index import ChainContext, ChainIndex, Proposal
from xds.mesh.core.chain.request import Overrides
from xds.mesh.core.entries.entry import Key, WrittenKey, entry_key
from xds.mesh.entry_history import ChainRevisions, EntryHistory, load_entries
from xds.mesh.entry_records import (
    ENTRIES_LIMIT,
    LINE,
    EntryChange,
    EntryEdit,
    EntryRecord,
    EntryResult,
    EntryWrite,
    UnreadableEntryError,
    Unused,
    edit_of,
    edit_to,
    entries_note,
    line_etag,
)
from xds.model.errors import ConflictError, NotFoundError, ValidationError, Violation
from xds.push.request import DEFAULT_OPTIONS, PushOptions
from xds.store.base import Commit, Delta, GroupPush, Meta, Store
from xds.tasks.threads import run_sized
from xds.tasks.waiting import Waiters

WAITERS_LIMIT = 1_000
DELETIONS_REMEMBERED = 100_000
# Compiling a chain, and writing an entry, take as long as this many resources.
_SIZE_OF_CHAIN, SIZE_OF_ENTRY = 10, 3


_log = structlog.get_logger(logger_name="xds.mesh.config_entries")

# Commits and publishes a write of entries, or the rollback to a revision, with what follows for groups with upstreams.
Commits = Callable[[Sequence[EntryWrite], PushOptions, int | None], Awaitable[EntryResult]]


@dataclass(frozen=True, slots=True)
class PlannedWrite:
    """A write compared with the present entries, which are locked until the write is published.

    ``changes`` are the entries that differ; ``push`` is the call to the store.
    """

    edit: EntryEdit
    changes: tuple[EntryChange, ...]
    proposal: Proposal
    push: GroupPush

    def result(self, revision: int) -> EntryResult:
        """The result, with the revision that the write has made."""
        return EntryResult(revision, self.changes, self.proposal.changed_services(), changed=bool(self.edit))


@dataclass(frozen=True, slots=True)
class MissingWrites:
    """What turns the present entries into those of a later ``revision``, which other servers have made."""

    revision: int
    edit: EntryEdit
    proposal: Proposal


class EntryTable:
    """The config entries of a store, and the chains of all services.

    ``commit`` applies a write together with the lowered resources that follow from it.

    ``revision`` is the revision of the line of config entries, 0 if there are none. ``index`` has the present chains.
    ``unreadable`` are stored entries that this release cannot read: they are kept, and not used. ``waiting`` are the
    callers that wait for a change.
    """

    limit_name = "config_entry_waiters"  # of the callers that wait

    def __init__(self, store: Store, context: ChainContext, events: EventLog | None, commit: Commits) -> None:
        self.revision = 0
        self.index = ChainIndex(context)
        self.unreadable: Mapping[WrittenKey, str] = {}
        self.history = EntryHistory(store)
        self._store = store
        self._events = events
        self._commit = commit
        self._records: dict[Key, EntryRecord] = {}
        self._unused: Unused = {}
        self._order: list[Key] | None = None  # the keys of the records in order; None after a change
        self._deletion_revisions: OrderedDict[Key, int] = OrderedDict()  # by deleted entry
        self._forgotten_deletion = 0  # the highest revision of a deletion that is no longer in ``_deletion_revisions``
        self._loaded_revision = 0  # the revision at the start
        self._kind_revisions: dict[str, int] = {}
        self._chain_revisions = ChainRevisions(self._revision_of)
        self.waiting = Waiters(WAITERS_LIMIT, "config entries")
        self._listeners: list[Callable[[], None]] = []

    # Start and stop

    async def load(self) -> None:
        """Read all entries and compile all chains. Raises ``StoreError``.

        Entries that cannot be read and chains that do not compile are logged; all others are served.
        """
        loaded = await load_entries(self._store, self.index.context)
        for key, detail in loaded.unreadable.items():
            _log.error("config_entry.unreadable", kind=key[0], name=key[1], error_message=detail)
        for key, counts in loaded.replaced.items():
            about = {"counts": counts.entry.name, "revision": counts.modified_revision}
            _log.error("config_entry.replaced", kind=key[0], name=key[1], **about)
        for error in loaded.index.broken():
            _log.error("chain.broken", service=error.chain, flaw=error.flaw.value, error_message=error.detail)
        self.revision, self._records, self.index = loaded.revision, loaded.records, loaded.index
        self.unreadable, self._unused, self._order = loaded.unreadable, loaded.unused(), None
        self._kind_revisions.clear()
        self._chain_revisions.clear()
        self._deletion_revisions.clear()
        # Earlier deletions are not known. All absent entries count as deleted in this revision, so that a revision that
        # a client has seen never decreases.
        self._loaded_revision = self._forgotten_deletion = loaded.revision
        self._wake()

    # Reading

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` after each change of entries. It must be short, and must not raise."""
        self._listeners.append(listener)

    def record(self, kind: str, name: str) -> EntryRecord | None:
        """One entry, whatever the case of its name; None if it does not exist."""
        return self._records.get(entry_key(kind, name))

    def records(self, kind: str | None = None) -> list[EntryRecord]:
        """All entries, or those of a kind, by kind and name."""
        if self._order is None:
            self._order = sorted(self._records)
        return [self._records[key] for key in self._order if kind is None or key[0] == kind]

    @property
    def etag(self) -> str:
        """The etag of all config entries together, without quotes; empty if there are none."""
        return line_etag(self.revision)

    def chain(self, service: str, overrides: Overrides | None = None, datacenter: str = "") -> DiscoveryChain:
        """The chain of any service, seen from ``datacenter`` (by default, the one of the settings).

        Raises ``ChainError`` if its entries contradict each other, ``CompileRequestError`` for an invalid request.
        """
        context = self.index.context
        if datacenter in ("", context.datacenter):
            return self.index.chain(service, overrides)
        return compile_chain(replace(context, datacenter=datacenter).request(service, self.index.entries, overrides))

    def chain_revision(self, service: str, overrides: Overrides | None = None, datacenter: str = "") -> int:
        """The revision that last changed the chain of a service; 0 for none (`ChainRevisions`).

        It never decreases. After a restart it may be the revision of the last write before the restart.
        """
        return self._chain_revisions.of(self.index, service, overrides, datacenter)

    def entry_revision(self, kind: str, name: str) -> int:
        """The revision that last changed or deleted an entry; 0 for none. As ``chain_revision`` after a restart."""
        return self._revision_of(entry_key(kind, name))

    def kind_revision(self, kind: str) -> int:
        """The revision that last changed an entry of a kind; 0 for none. As ``chain_revision`` after a restart."""
        return self._kind_revisions.get(kind, self._loaded_revision)

    async def wait(self, after: int, current: Callable[[], int], wait_s: float) -> None:
        """Return when ``current()`` is above ``after``, or after ``wait_s`` seconds.

        Raises as `Waiters.wait`.
        """
        await self.waiting.wait(LINE, after, current, wait_s)

    # Writing

    async def apply(self, changes: Sequence[EntryWrite], options: PushOptions = DEFAULT_OPTIONS) -> EntryResult:
        """Put and delete entries, all or none.

        Raises ``ValidationError`` with every chain that would break and its path, ``EntryConflictError`` if an entry
        is not as its change states, ``ConflictError`` if the line is not at ``options.expect`` or ``options.etag``,
        ``NotFoundError`` for the deletion of an unknown entry, ``StoreError``.
        """
        return await self._commit(changes, options, None)

    async def roll_back(self, to: int, options: PushOptions = DEFAULT_OPTIONS) -> EntryResult:
        """Make a new revision with the entries of revision ``to``; 0: without any.

        Raises ``NotFoundError``, ``GoneError`` for a revision whose content is no longer kept, and as ``apply``.
        """
        return await self._commit((), options, to)

    # One write; the caller holds the lock of the line

    async def plan(self, writes: Sequence[EntryWrite], options: PushOptions, request_text: str) -> PlannedWrite:
        """Compare changes with the present entries. ``request_text`` as in `GroupPush`. Raises as ``apply``."""
        self._check_line(options)
        present = (self._records, self._unused, self.revision + 1)
        edit = await run_sized(edit_of, writes, *present, resources=len(writes) * SIZE_OF_ENTRY)
        return await self._planned(edit, options, request_text)

    async def plan_roll_back(self, to: int, options: PushOptions, request_text: str) -> PlannedWrite:
        """Compare an earlier revision with the present entries. Raises as ``roll_back``."""
        self._check_line(options)
        target = await self.history.content(to)
        keys = {*target, *self._records}
        edit = await run_sized(edit_to, target, self._records, self._unused, self.revision + 1, resources=len(keys))
        return await self._planned(edit, options, request_text, to)

    def publish(self, planned: PlannedWrite, commit: Commit, meta: Meta) -> EntryResult:
        """Replace the present entries and chains by a committed write, and wake the callers that wait for it."""
        result = planned.result(commit.revision)
        self._replace(planned.edit, planned.proposal, commit.revision)
        if planned.edit:
            self._record_commit(result, meta)
            self._wake()
        return result

    def _replace(self, edit: EntryEdit, proposal: Proposal, revision: int) -> None:
        """Replace the present entries and chains by those of a later revision."""
        self.revision = revision
        if not edit:
            return
        self._chain_revisions.keep(self.index, proposal)
        self.index.accept(proposal)
        self._records.update(edit.put)
        self._order = None
        for key in edit.removed:
            self._records.pop(key, None)
            self._remember_deleted(key, revision)
        touched = {*edit.put, *edit.removed}
        self._kind_revisions.update((kind, revision) for kind, _ in touched)
        if touched & self._unused.keys():
            self._unused = {key: names for key, names in self._unused.items() if key not in touched}
            self.unreadable = {one: text for one, text in self.unreadable.items() if entry_key(*one) not in touched}

    # Other servers

    async def missing(self) -> MissingWrites | None:
        """What other servers have written since the present revision; None if all must be loaded instead.

        Raises ``StoreError``.
        """
        head = await self._store.head(LINE)
        revision = head.revision if head is not None and head.live else 0
        if revision < self.revision or self._unused:
            return None
        try:
            edit = await self.history.edit(self.revision, revision)
        except (NotFoundError, UnreadableEntryError):
            return None
        proposal = await self._proposal(edit)
        return MissingWrites(revision, edit, proposal) if proposal.refusal() is None else None

    def follow(self, missing: MissingWrites) -> None:
        """Take over what other servers have written, and wake the callers that wait for it."""
        self._replace(missing.edit, missing.proposal, missing.revision)
        if missing.edit:
            self._wake()

    def preview(self, planned: PlannedWrite) -> EntryResult:
        """The result of a dry run."""
        return replace(planned.result(self.revision), dry_run=True)

    async def replayed(self, commit: Commit) -> EntryResult:
        """The result of a write that was made before. Raises as `EntryHistory.changes`."""
        changes = await self.history.changes(commit.revision - 1, commit.revision) if commit.changed else ()
        return EntryResult(commit.revision, changes, changed=commit.changed, replayed=True)

    def _record_commit(self, result: EntryResult, meta: Meta) -> None:
        entries_n, chains_n = len(result.changes), len(result.chains)
        about = {"revision": result.revision, "actor": meta.actor, "author": meta.author}
        _log.info("config_entries.committed", **about, entries_n=entries_n, chains_n=chains_n)
        if self._events is not None:
            names = Caller(meta.actor, meta.author).names()
            self._events.record(
                EventKind.CONFIG_ENTRIES,
                "committed",
                meta.time_s,
                revision=result.revision,
                message=meta.message,
                details={**names, "entries": entries_n, "chains": chains_n},
            )

    def _check_line(self, options: PushOptions) -> None:
        if options.expect is not None and options.expect != self.revision:
            raise ConflictError(f"config entries are at revision {self.revision}, not {options.expect}", self.revision)
        if options.etag not in ("", self.etag) and (options.etag != "*" or not self.revision):
            state = f"are at {self.etag}, not {options.etag[:80]}" if self.revision else "do not exist"
            raise ConflictError(f"config entries {state}", self.revision)

    async def _planned(self, edit: EntryEdit, options: PushOptions, request_text: str, to: int = 0) -> PlannedWrite:
        added = sum(key not in self._records for key in edit.put)
        if added > 0 and len(self._records) + added - len(edit.removed) > ENTRIES_LIMIT:
            detail = f"there can be at most {ENTRIES_LIMIT} config entries"
            raise ValidationError([Violation("too_many", detail)])
        proposal = await self._proposal(edit)
        refusal = proposal.refusal()
        if refusal is not None:
            raise refusal
        size = len(edit.put) + len(edit.removed)
        changes = await run_sized(edit.changes, self._records, resources=size)
        lines, blobs = await run_sized(edit.stored, resources=size * SIZE_OF_ENTRY)
        delta = Delta(lines, edit.deleted, blobs, content_of=to)
        note = entries_note(changes, options, self.revision)
        push = GroupPush(LINE, delta, self.revision, note=note, request_text=request_text)
        return PlannedWrite(edit, changes, proposal, push)

    async def _proposal(self, edit: EntryEdit) -> Proposal:
        """The chains after an edit."""
        entries = {**{key: record.entry for key, record in edit.put.items()}, **dict.fromkeys(edit.removed)}
        size = _SIZE_OF_CHAIN * (len(self.index.depending_on(entries)) + len(entries))
        return await run_sized(self.index.propose, entries, resources=size)

    def _revision_of(self, key: Key) -> int:
        record = self._records.get(key)
        return (
            record.modified_revision
            if record is not None
            else self._deletion_revisions.get(key, self._forgotten_deletion)
        )

    def _remember_deleted(self, key: Key, revision: int) -> None:
        self._deletion_revisions.pop(key, None)
        self._deletion_revisions[key] = revision
        while len(self._deletion_revisions) > DELETIONS_REMEMBERED:
            _, self._forgotten_deletion = self._deletion_revisions.popitem(last=False)

    def _wake(self) -> None:
        self.waiting.wake((LINE,))
        for listener in self._listeners:
            listener()
