"""The contract every store engine fulfils; ``tests/store/contract.py`` checks it for each of them.

A store keeps, per group, a line of revisions (1, 2, 3 ...), each the complete manifest of a group: type URL, name and
blob id of every resource. Blobs are content-addressed bytes that the store never looks into. Documents are small
values beside the revisions. Sources: spec/storage.md 6.1, 9, 10; DESIGN 4.2.
"""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple, Protocol

from xds.model.errors import NotFoundError, XdsError
from xds.store.audit import EVERYTHING_AUDITED, AuditFilter, AuditNote, AuditPage
from xds.store.retention import Collected, Retention, StoreCondition, StoreStats

if TYPE_CHECKING:
    from xds.store.records import Record

BLOB_ID_BYTES = 20
EVENTS_KEPT = 4096  # how many commits back a watch can be resumed
READER_BUFFER = 1024  # how many commits a reader of a watch may lag behind
PUSH_IDS_KEPT_S = 24 * 3600
PUSH, ROLLBACK, RESTORE, DELETE = "push", "rollback", "restore", "delete"  # what a revision can be
SKIPPED = "skipped"  # the kind of a document that is told of where cursors were left out: it says nothing


def blob_id(data: bytes) -> str:
    """The name of a blob: BLAKE2b-160 of its bytes in hex (spec/storage.md 6.1)."""
    return blake2b(data, digest_size=BLOB_ID_BYTES).hexdigest()


class Entry(NamedTuple):
    """One line of a manifest. ``blob_id`` is the hex BLAKE2b-160 of the blob: see ``blob_id``."""

    type_url: str
    name: str
    blob_id: str


@dataclass(frozen=True, slots=True)
class Meta:
    """Who pushed and why. ``time_s`` is seconds since the epoch, given by the caller.

    ``actor`` is who was authenticated, ``author`` what the client says besides. ``kind``: what a revision is called in
    the history, where the change itself does not say it.
    """

    author: str = ""
    message: str = ""
    time_s: float = 0.0
    actor: str = ""
    kind: str = ""


NO_META = Meta()


@dataclass(frozen=True, slots=True)
class FullSet:
    """The whole new content of a group, in pushed order.

    ``blobs`` holds the bytes of (at least) every blob the store may not have yet. ``label`` and ``labels`` (by type
    URL) are the caller's version_info for the types that this push changes.
    """

    entries: tuple[Entry, ...]
    blobs: Mapping[str, bytes]
    label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delta:
    """Single resources to put or delete in a group; the rest stays. Same fields as ``FullSet`` otherwise.

    A put of a name that exists keeps its place in pushed order; a new one goes last.
    """

    put: tuple[Entry, ...]
    delete: tuple[tuple[str, str], ...]  # (type_url, name)
    blobs: Mapping[str, bytes]
    label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollback:
    """A new revision with the content, not the versions, of ``to``.

    With ``keeps_endpoints``, ``keep`` names assignments (type URL, name) that stay as the group holds them now,
    whatever ``to`` has: a caller finds them anew for each try, so they are no part of what is asked for.
    """

    to: int
    keeps_endpoints: bool = False
    keep: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete the group. Its revision counter goes on, so that a group made again never repeats a revision.

    ``docs`` are documents, by kind and id, that go with it where they are there.
    """

    docs: tuple[tuple[str, str], ...] = ()


GroupChange = FullSet | Delta | Rollback | Drop


@dataclass(frozen=True, slots=True)
class KnownContent:
    """What a group holds at a revision: all its blob ids, by type URL and name, in pushed order."""

    revision: int
    blob_ids: Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class GroupPush:
    """One group's part of a transaction. ``expect`` is the revision the group must be at, 0 for none.

    ``known`` spares an engine reading what the group holds, where its head is at that very revision; what is told of
    it must be true then. It is no part of what is asked for: the outcome is the same without it and with an older one.
    ``hashes`` (by type URL) say what the changed types will hold; they stand in the version_info of those without a
    label. ``note`` is written to the audit list with the revision that the push makes, if it makes one.
    """

    group: str
    change: GroupChange
    expect: int | None = None
    known: KnownContent | None = field(default=None, compare=False, repr=False)
    hashes: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    note: AuditNote | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The complete content of a group at one revision. ``versions``: type URL to version_info (DESIGN 1)."""

    group: str
    revision: int
    entries: tuple[Entry, ...]
    versions: Mapping[str, str]
    meta: Meta = NO_META


@dataclass(frozen=True, slots=True)
class Head:
    """Where a group stands. ``live`` is False for a deleted group, whose ``revision`` is that of its deletion."""

    group: str
    revision: int
    live: bool = True


@dataclass(frozen=True, slots=True)
class Commit:
    """What a commit came to. ``changed`` is False when the content was already so: no revision was made then.

    ``replayed`` is True when ``push_id`` had been committed before and nothing was done now. ``versions`` is the
    version_info by type URL of what was committed now; empty for a deletion and for what was replayed.
    """

    group: str
    revision: int
    changed: bool = True
    replayed: bool = False
    versions: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class RevisionInfo:
    """One line of a group's history.

    ``live`` is False for the revision that deleted the group. ``content`` is False where there is nothing to read or
    roll back to: for such a revision, and for one whose content was collected.

    ``kind`` is ``push``, ``rollback``, ``restore`` (of a deleted group) or ``delete``; ``content_of`` is the revision
    that a rollback went back to, with ``keeps_endpoints`` where assignments of the present stayed. ``undone_by`` is the
    revision that took this one back, 0 while it is in effect. ``endpoints_only``: it changed endpoints alone.
    ``refused`` of ``nodes`` refused it, as far as that was noted.
    """

    group: str
    revision: int
    meta: Meta
    versions: Mapping[str, str]
    resources: int
    live: bool = True
    content: bool = True
    kind: str = PUSH
    content_of: int = 0
    keeps_endpoints: bool = False
    undone_by: int = 0
    endpoints_only: bool = False
    nodes: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Document:
    """A small document: settings of a group, tokens and the like. ``revision`` counts its changes from 1."""

    kind: str
    id: str
    body: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class OpenNack:
    """A refusal that stands, by the number of its record. Observed state: it has no revisions and nobody watches it."""

    id: int
    node: str
    type_url: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Reset:
    """First item of a watch whose cursor cannot be resumed: the state is what ``groups`` (the live ones) say.

    Documents are not in it: read them with ``docs``; a ``DocumentChanged`` that follows may repeat what was read.
    """

    groups: tuple[Head, ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class GroupCommitted:
    """One commit, whole. ``cursor`` strictly increases; hand it to ``watch`` to go on behind it."""

    head: Head
    cursor: int


@dataclass(frozen=True, slots=True)
class DocumentChanged:
    """One document was put (``body``) or deleted (None)."""

    kind: str
    id: str
    body: bytes | None
    cursor: int


ChangeItem = GroupCommitted | DocumentChanged
WatchItem = Reset | ChangeItem


class StoreError(XdsError):
    """Root of what a store raises, besides ``ConflictError`` and ``NotFoundError``."""


class UnavailableError(StoreError):
    """The store cannot answer now. ``maybe_committed``: ask ``commit_status`` before trying anew."""

    def __init__(self, message: str, *, maybe_committed: bool = False) -> None:
        super().__init__(message)
        self.maybe_committed = maybe_committed


class OutOfSpaceError(StoreError):
    """Disk or quota is full; nothing was committed. The message says what to do."""


class CorruptError(StoreError):
    """A blob or manifest is missing or does not match its hash."""


class ReusedPushIdError(StoreError):
    """The push id was given to another push before; nothing was done."""


class GoneError(NotFoundError):
    """The revision is in the history, its content is no longer kept."""


class Store(Protocol):
    """Durable, versioned desired state. All methods are safe to call concurrently from one event loop."""

    async def open(self) -> None:
        """Check or create the schema.

        Raises ``UnavailableError`` when another process holds the store, it cannot be written, or a newer release
        wrote it; ``CorruptError`` when what is there is no store.
        """

    async def close(self) -> None:
        """Flush and release; pending commits are finished first. Closing twice is harmless.

        Afterwards every call, and every watch that is still read, raises ``UnavailableError``.
        """

    async def commit(
        self, group: str, change: GroupChange, *, push_id: str, expect: int | None = None, meta: Meta = NO_META
    ) -> Commit:
        """Apply ``change`` durably before returning, all or nothing.

        The same ``push_id`` (per group, kept at least 24 h) returns the first ``Commit`` with ``replayed=True``; with
        another change it raises ``ReusedPushIdError`` (``expect`` and ``meta`` may differ).
        ``expect`` is the revision the group must be at (0: it must not exist or be deleted), else
        ``ConflictError``. Raises ``NotFoundError`` for a ``Rollback`` to an unknown revision or one that deleted
        the group (``GoneError`` for one whose content was collected), a ``Delta`` delete of an unknown name, or a
        ``Drop`` of an unknown or deleted group;
        ``CorruptError`` when a blob is neither given nor held, or given with other bytes than its id says;
        ``ValueError`` for a change that names a resource twice.
        version_info per type: a type whose content (names and blobs, in whatever order) is unchanged keeps it; a
        changed one gets ``labels[type_url]``, else ``label``, else the new revision in decimal (and ``+`` and its hash,
        where a ``GroupPush`` has one). A type whose last resource went keeps an entry in ``versions``. The first push
        to a group makes a revision even when empty.
        Cancelling the caller leaves open whether the push is done: ``commit_status`` tells.
        """

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        """Apply several groups' changes as one: all of them or none; a commit for each, in the given order.

        Everything else is as in ``commit``. One ``push_id`` stands for the whole: it is remembered with each of the
        groups, and ``ReusedPushIdError`` is raised when any of them knows it from anything but these same pushes.
        Raises ``ValueError`` for no push at all or two to one group.
        """

    async def committed(self, pushes: Sequence[GroupPush], push_id: str) -> list[Commit] | None:
        """What ``commit_all`` would replay; None when it would try. Raises ``ReusedPushIdError``."""

    async def commit_status(self, group: str, push_id: str) -> Commit | None:
        """What became of a push whose answer was lost."""

    async def head(self, group: str) -> Head | None:
        """The group's head; None for a group that never was."""

    async def groups(self) -> list[Head]:
        """All live groups, by name."""

    async def manifest(self, group: str, revision: int | None = None) -> Manifest:
        """The content at a revision (None: head).

        Raises ``NotFoundError``, also for a revision that deleted the group; ``GoneError`` for one whose content was
        collected; ``CorruptError``.
        """

    async def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Bytes by blob id, hash verified. Raises ``CorruptError`` for a missing or damaged one."""

    async def history(
        self, group: str, *, before: int | None = None, limit: int = 50, endpoints: bool = True
    ) -> list[RevisionInfo]:
        """Newest first, strictly below ``before``. Empty for an unknown group.

        ``endpoints`` False leaves out those that changed endpoints alone.
        """

    async def tally(self, group: str, revision: int, nodes: int, refused: int) -> None:
        """Note how many nodes a revision was meant for, and how many of them refused it; it may be gone by then."""

    def watch(self, cursor: int | None = None) -> AsyncIterator[WatchItem]:
        """Every commit after ``cursor`` in order, each exactly once or covered by a ``Reset``; never ends by itself.

        Starts with a ``Reset`` unless ``cursor`` can be resumed. A reader that falls behind the bounded buffer gets
        a ``Reset`` instead of what it missed.
        """

    async def put_doc(
        self, kind: str, id: str, body: bytes | None, *, expect: int | None = None, note: AuditNote | None = None
    ) -> int:
        """Write (None: delete) a document; returns its new revision. ``expect`` as in ``commit``.

        Writing what is there already changes nothing. ``note`` goes to the audit list with what is written. Raises
        ``NotFoundError`` for deleting what is not there.
        """

    async def note(self, notes: Sequence[AuditNote]) -> None:
        """Write to the audit list what changes nothing in the store: durably, all of it or nothing."""

    async def audit(self, cursor: str = "", limit: int = 100, wanted: AuditFilter = EVERYTHING_AUDITED) -> AuditPage:
        """The audit list behind ``cursor`` (empty: from its begin), the oldest first.

        Raises ``ValueError`` for what is no cursor.
        """

    async def docs(self, kind: str, prefix: str = "") -> list[Document]:
        """Documents of a kind whose id starts with ``prefix``, by id."""

    async def put_nacks(self, put: Sequence[OpenNack], gone: Collection[int] = ()) -> None:
        """Write refusals, each in the place of an earlier one of its id, and forget those ids; all or nothing."""

    async def nacks(self) -> list[OpenNack]:
        """All refusals that were written and not forgotten, by id."""

    async def collect(self, policy: Retention, now_s: float) -> Collected:
        """Let go of what ``policy`` does not keep: contents, lines of history, blobs nobody names, old push ids.

        ``now_s``, seconds since the epoch, is compared with ``Meta.time_s``. Pushes go on meanwhile, none waits for
        the whole; a second call waits for the first. Raises ``StoreError``: what was let go by then stays so, the rest
        is found by the next call.
        """

    async def stats(self) -> StoreStats:
        """How large the store is."""

    def dump(self, history: bool = True) -> AsyncGenerator[Sequence[Record], None]:
        """All that is kept, as of one moment, some records at a time, in the order of ``records.KINDS``.

        Pushes go on meanwhile, collections wait. Without ``history`` only the heads of groups, deleted ones included,
        and no audit list. Raises ``StoreError``.
        """

    async def restore(
        self, records: Callable[[], Iterator[Record]], *, replace: bool = False, note: AuditNote | None = None
    ) -> None:
        """Put records, in the order of a dump, in place of all that is there, durably, all or nothing.

        But the audit list is added to: what was done to this store stays told, and ``note`` comes last in it. Open
        NACKs stay. ``records`` is called and read in another thread. Watches start over with a ``Reset``. Raises
        ``ConflictError`` where the store is not empty and ``replace`` is not said, ``CorruptError`` for records that do
        not fit together, and what ``records`` raises.
        """

    def condition(self) -> StoreCondition:
        """What is wrong with it; may be asked from any thread, and costs next to nothing."""
