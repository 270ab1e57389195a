"""One idea: the contract of all store engines. ``tests/store/contract.py`` checks it for each of them.

A store keeps a sequence of revisions (1, 2, 3 ...) per group. A revision is the complete manifest of the group: type
URL, name and blob id of every resource. Blobs are content-addressed bytes that the store never parses. Documents are
small values beside the revisions. See docs/internals/design.md#storage.
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
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, Protocol

from xds.model.errors import NotFoundError, XdsError
from xds.store.audit_entries import EVERYTHING_AUDITED, AuditFilter, AuditNote, AuditPage
from xds.store.member_register import MemberRegister
from xds.store.records import BLOB_ID_BYTES, Record
from xds.store.retention import Collected, Retention, StoreCondition, StoreStats

EVENTS_KEPT = 4096  # a watch can be resumed this many commits back
READER_BUFFER = 1024  # a reader of a watch may lag this many commits behind
PUSH_IDS_KEPT_S = 24 * 3600
PUSH, ROLLBACK, RESTORE, DELETE = "push", "rollback", "restore", "delete"  # kinds of revisions
DERIVED = "lowered"  # kind of a revision that changed only derived resources; so it is stored and shown
SKIPPED = "skipped"  # kind of the empty document event that marks skipped cursors
OBSERVED = "observed"  # kind of the event of observed records: its id is the source, its body the JSON list of services


MayWrite = Callable[[], bool]
"""Whether a server still does the work that a write belongs to. It is asked when all earlier commits are done, and none
of another server can come before the write."""


def always() -> bool:
    """Any server may write."""
    return True


def blob_id(data: bytes) -> str:
    """The id of a blob: BLAKE2b-160 of its bytes in hex."""
    return blake2b(data, digest_size=BLOB_ID_BYTES).hexdigest()


class Entry(NamedTuple):
    """One line of a manifest. ``blob_id`` is the result of the function ``blob_id``."""

    type_url: str
    name: str
    blob_id: str


class Lifetime(NamedTuple):
    """An entry of a group. It is in the content of revisions from ``born`` until before ``died``; 0: still."""

    entry: Entry
    born: int
    died: int


@dataclass(frozen=True, slots=True)
class Meta:
    """Who pushed and why. ``time_s`` is seconds since the epoch, given by the caller.

    ``actor`` is authenticated, ``author`` is what the client claims. ``kind`` is the kind of the revision in the
    history, where the change does not determine it.
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

    ``blobs`` contains at least the blobs that the store may not have. ``label`` and ``labels`` (by type URL) are the
    caller's version_info for the types that this push changes.
    """

    entries: tuple[Entry, ...]
    blobs: Mapping[str, bytes]
    label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Delta:
    """Single resources to put or delete in a group; the rest stays. Other fields as in ``FullSet``.

    A resource that exists keeps its place in pushed order, a new one goes last. ``content_of`` is an earlier revision
    whose content the delta brings back: the new revision counts as a rollback to it. 0: none.
    """

    put: tuple[Entry, ...]
    delete: tuple[tuple[str, str], ...]  # (type_url, name)
    blobs: Mapping[str, bytes]
    label: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    content_of: int = 0


@dataclass(frozen=True, slots=True)
class Rollback:
    """A new revision with the content, not the versions, of ``to``.

    ``keep`` lists resources (type URL, name) that stay as they are now: assignments if ``keeps_endpoints``, and derived
    resources. ``omit`` lists resources of ``to`` that do not return. The caller computes both again for each attempt,
    so they do not count when a repeated push is compared with the first one.
    """

    to: int
    keeps_endpoints: bool = False
    keep: tuple[tuple[str, str], ...] = ()
    omit: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """Delete the group. Its revision counter is kept, so that a group that is created again never repeats a revision.

    Its documents go with it, also those that the caller does not know yet: of ``kinds`` the one whose id is the group,
    of ``kinds_within`` those about something of the group (`document_keys`).
    """

    kinds: tuple[str, ...] = ()
    kinds_within: tuple[str, ...] = ()


GroupChange = FullSet | Delta | Rollback | Drop


@dataclass(frozen=True, slots=True)
class StoredContent:
    """The content of a group at a revision: all blob ids by type URL and name, in pushed order."""

    revision: int
    blob_ids: Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """A document to put (``body``) or delete (None) together with a push. ``note`` is for the audit list.

    ``expect`` is the revision that the document must have, 0 for none; None: any. The deletion of a document that does
    not exist changes nothing.
    """

    kind: str
    id: str
    body: bytes | None
    note: AuditNote | None = field(default=None, compare=False)
    expect: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class GroupPush:
    """One group's part of a transaction. ``expect`` is the revision the group must be at, 0 for none.

    ``head_content``, when it has the revision of the head, saves the engine reading the content, and must be correct.
    Without it, or with an older one, the result is the same. ``hashes`` (by type URL) are hashes of the changed types
    after the push; they are part of the version_info of types without a label. ``note`` is written to the audit list if
    the push makes a revision. ``request_text`` is the request as text, where ``change`` also depends on the present
    content: a repeated push is compared with the first one by this text. ``requested_change`` serves the same purpose
    for a change that the server extended.

    A push ``is_derived`` if it follows from the other pushes of the transaction. A derived push counts neither when a
    repeated push is compared with the first one, nor in the result of ``committed``. ``kind`` is the kind of the
    revision, where the change does not determine it. ``writes`` are documents that are written with the push, whether
    it makes a revision or not. ``may_write``: else nothing of the transaction is written (``LeaseLostError``).
    """

    group: str
    change: GroupChange
    expect: int | None = None
    head_content: StoredContent | None = field(default=None, compare=False, repr=False)
    hashes: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    note: AuditNote | None = field(default=None, compare=False, repr=False)
    request_text: str = field(default="", compare=False, repr=False)
    requested_change: GroupChange | None = field(default=None, compare=False, repr=False)
    is_derived: bool = False
    kind: str = ""
    writes: tuple[DocumentWrite, ...] = ()
    may_write: MayWrite = field(default=always, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The complete content of a group at one revision. ``versions`` is version_info by type URL."""

    group: str
    revision: int
    entries: tuple[Entry, ...]
    versions: Mapping[str, str]
    meta: Meta = NO_META


@dataclass(frozen=True, slots=True)
class Head:
    """The latest revision of a group. A deleted group is not ``live``; its ``revision`` is that of the deletion."""

    group: str
    revision: int
    live: bool = True


@dataclass(frozen=True, slots=True)
class Commit:
    """The result of a commit. ``changed`` is False when the content was the same; no revision was made then.

    ``replayed`` is True when ``push_id`` was committed before and nothing was done now. ``versions`` is the
    version_info by type URL; empty for a deletion and for a replayed commit. ``documents`` are the revisions of the
    documents that were written with it, by kind and id.
    """

    group: str
    revision: int
    changed: bool = True
    replayed: bool = False
    versions: Mapping[str, str] = field(default_factory=dict, compare=False)
    documents: Mapping[tuple[str, str], int] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class RevisionInfo:
    """One line of a group's history.

    ``live`` is False for the revision that deleted the group. ``content`` is False for such a revision, and for one
    whose content was collected: neither can be read or rolled back to.

    ``kind`` is ``push``, ``rollback``, ``restore`` (of a deleted group), ``delete``, or ``lowered``. ``content_of`` is
    the target of a rollback, with ``keeps_endpoints`` where present assignments were kept. ``undone_by`` is the
    rollback that undid this revision, 0 while the revision is in effect. ``endpoints_only``: the revision changed
    endpoints alone. ``refused`` of ``nodes`` rejected it, as far as ``Store.record_outcome`` was called.
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
class StoredDocument:
    """A small document, such as the settings of a group. ``revision`` counts its changes from 1."""

    kind: str
    id: str
    body: bytes
    revision: int


@dataclass(frozen=True, slots=True)
class OpenNack:
    """An open NACK record. It is observed state, so it has no revisions and is not part of watches."""

    id: int
    node: str
    type_url: str
    body: bytes


@dataclass(frozen=True, slots=True)
class ObservedRecord:
    """The last good set of one service from one source. Observed state, as `OpenNack`."""

    source: str
    service: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Reset:
    """First item of a watch whose cursor cannot be resumed. ``groups`` are all live groups.

    It does not contain documents: read them with ``docs``. A ``DocumentChanged`` that follows may repeat what was read.
    """

    groups: tuple[Head, ...]
    cursor: int


@dataclass(frozen=True, slots=True)
class GroupCommitted:
    """One complete commit. ``cursor`` strictly increases; pass it to ``watch`` to continue after this commit."""

    head: Head
    cursor: int


@dataclass(frozen=True, slots=True)
class DocumentChanged:
    """One document was put (``body``) or deleted (None); ``revision`` is its revision since then."""

    kind: str
    id: str
    body: bytes | None
    revision: int
    cursor: int


ChangeItem = GroupCommitted | DocumentChanged
WatchItem = Reset | ChangeItem


class StoreError(XdsError):
    """Root of the errors of a store, besides ``ConflictError`` and ``NotFoundError``."""


class UnavailableError(StoreError):
    """The store cannot answer now. With ``maybe_committed``, a retry with the same push id tells."""

    def __init__(self, message: str, *, maybe_committed: bool = False) -> None:
        super().__init__(message)
        self.maybe_committed = maybe_committed


class SilentError(UnavailableError):
    """The store cannot be reached, or commits nothing.

    ``is_refusal``: it answers, and refuses this server, as for a wrong password.
    """

    def __init__(self, message: str, *, is_refusal: bool = False, maybe_committed: bool = False) -> None:
        super().__init__(message, maybe_committed=maybe_committed)
        self.is_refusal = is_refusal


class LeaseLostError(UnavailableError):
    """Another server does this work by now. Nothing was written."""

    def __init__(self) -> None:
        super().__init__("this server holds the lease no longer: nothing was written")


def check_may_write(may_write: MayWrite) -> None:
    """Raises ``LeaseLostError``."""
    if not may_write():
        raise LeaseLostError


class OutOfSpaceError(StoreError):
    """The disk or a quota is full; nothing was committed. The message says what to do."""


class CorruptError(StoreError):
    """A blob or manifest is missing or damaged."""


class ReusedPushIdError(StoreError):
    """The push id was used for another push; nothing was done."""


class GoneError(NotFoundError):
    """The revision is in the history, but its content is no longer kept."""


class Store(Protocol):
    """Durable, versioned desired state. All methods are safe to call concurrently from one event loop."""

    async def open(self) -> None:
        """Check or create the schema.

        Raises ``UnavailableError`` when another process uses the store, when it cannot be written, or when a newer
        release wrote it; ``CorruptError`` when the file is not a store.
        """

    async def close(self) -> None:
        """Complete pending commits, flush and close. Closing twice is allowed.

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
        ``CorruptError`` when a blob is neither given nor stored, or does not match its id;
        ``ValueError`` for a change that names a resource twice.
        version_info per type: a type whose content (names and blobs, in whatever order) is unchanged keeps it; a
        changed one gets ``labels[type_url]``, else ``label``, else the new revision in decimal (and ``+`` and its hash,
        where a ``GroupPush`` has one). A type without resources keeps its entry in ``versions``. The first push to a
        group makes a revision even when empty.
        If the caller is cancelled, the push may or may not be committed; a repetition with the same id tells.
        """

    async def commit_all(self, pushes: Sequence[GroupPush], *, push_id: str, meta: Meta = NO_META) -> list[Commit]:
        """Apply several groups' changes as one: all of them or none; a commit for each, in the given order.

        Everything else is as in ``commit``. ``push_id`` belongs to the whole transaction: it is stored with each group,
        and ``ReusedPushIdError`` is raised when one of them has it from a different transaction. Raises
        ``ValueError`` for no push, or two pushes to one group.
        """

    def turn(self, groups: Collection[str]) -> AbstractAsyncContextManager[None]:
        """Other servers that commit to these groups wait meanwhile: for a writer that was outrun again and again.

        A turn ends by itself after some seconds. Raises ``StoreError``.
        """

    async def committed(self, pushes: Sequence[GroupPush], push_id: str) -> list[Commit] | None:
        """The commits that ``commit_all`` would replay; None for a new ``push_id``. Raises ``ReusedPushIdError``."""

    async def head(self, group: str) -> Head | None:
        """The head of a group; None for a group that never existed."""

    async def groups(self) -> list[Head]:
        """All live groups, by name."""

    async def manifest(self, group: str, revision: int | None = None) -> Manifest:
        """The content at a revision (None: head).

        Raises ``NotFoundError``, also for a revision that deleted the group; ``GoneError`` for one whose content was
        collected; ``CorruptError``.
        """

    async def lifetimes(self, group: str, since: int) -> list[Lifetime]:
        """The entries that began or ended after a revision: with the head, the content of kept revisions from there."""

    async def blobs(self, ids: Iterable[str]) -> dict[str, bytes]:
        """Blobs by id, with verified hashes. Raises ``CorruptError`` for a missing or damaged blob."""

    async def history(
        self, group: str, *, before: int | None = None, limit: int = 50, endpoints: bool = True
    ) -> list[RevisionInfo]:
        """Newest first, strictly below ``before``. Empty for an unknown group.

        ``endpoints`` False leaves out revisions that changed endpoints alone.
        """

    async def record_outcome(self, group: str, revision: int, nodes: int, refused: int) -> None:
        """Record how many nodes a revision was for, and how many rejected it. Does nothing for a collected revision."""

    async def newest_cursor(self) -> int:
        """The cursor of the newest commit. A watch from here has all that is committed after this call."""

    def watch(self, cursor: int | None = None) -> AsyncIterator[Sequence[WatchItem]]:
        """Every commit after ``cursor`` in order, each exactly once or covered by a ``Reset``; never ends by itself.

        Yields whole commits: one or more that came since the last time. Starts with a ``Reset`` unless ``cursor`` can
        be resumed. A reader that falls behind the bounded buffer gets a ``Reset`` instead of the commits that it
        missed.
        """

    async def put_doc(
        self, kind: str, id: str, body: bytes | None, *, expect: int | None = None, note: AuditNote | None = None
    ) -> int:
        """Write (None: delete) a document; returns its new revision. ``expect`` as in ``commit``.

        Writing an identical body changes nothing. ``note`` is written to the audit list with the change. Raises
        ``NotFoundError`` for the deletion of an unknown document.
        """

    async def note(self, notes: Sequence[AuditNote]) -> None:
        """Write notes without a change to the audit list: durably, all or nothing."""

    async def audit(self, cursor: str = "", limit: int = 100, wanted: AuditFilter = EVERYTHING_AUDITED) -> AuditPage:
        """The audit list after ``cursor`` (empty: from the start), oldest first unless the newest are wanted.

        Raises ``ValueError`` for an invalid cursor.
        """

    async def docs(self, kind: str, prefix: str = "") -> list[StoredDocument]:
        """Documents of a kind whose id starts with ``prefix``, by id."""

    async def put_nacks(self, put: Sequence[OpenNack], delete: Collection[int] = ()) -> None:
        """Write open NACKs, replacing earlier ones with the same id, and delete others by id; all or nothing."""

    async def nacks(self) -> list[OpenNack]:
        """All open NACKs, by id."""

    async def put_observed(
        self,
        put: Sequence[ObservedRecord],
        delete: Collection[tuple[str, str]] = (),
        notes: Sequence[AuditNote] = (),
        *,
        is_told: bool = False,
        may_write: MayWrite = always,
    ) -> None:
        """Write records, replacing earlier ones of the same source and service; delete others by source and service.

        ``notes`` are added to the audit list. All or nothing. If the change ``is_told``, the watches get an event of
        the kind ``OBSERVED`` for each source; other changes of records make none. ``may_write``: else nothing is
        written (``LeaseLostError``).
        """

    async def observed(self, source: str = "", services: Collection[str] | None = None) -> list[ObservedRecord]:
        """All records, by source and service; those of one ``source``, or of some of its ``services``."""

    async def now_s(self) -> float:
        """The time (epoch seconds) by a clock that all servers of the store share. Raises ``StoreError``."""

    async def collect(self, policy: Retention, now_s: float) -> Collected:
        """Delete contents, lines of history, unused blobs and old push ids that ``policy`` does not keep.

        ``now_s`` (epoch seconds) is compared with ``Meta.time_s``. Pushes go on between the steps of a collection; a
        second call waits for the first. Raises ``StoreError``; the next call then deletes the rest.
        """

    async def stats(self) -> StoreStats:
        """The size of the store."""

    def dump(self, history: bool = True) -> AsyncGenerator[Sequence[Record], None]:
        """A consistent copy of everything, in batches of records in the order of ``records.KINDS``.

        Pushes go on meanwhile, collections wait. Without ``history`` the copy contains only the heads of groups,
        deleted ones included, and no audit list. Raises ``StoreError``.
        """

    async def restore(
        self, records: Callable[[], Iterator[Record]], *, replace: bool = False, note: AuditNote | None = None
    ) -> None:
        """Replace everything by ``records``, in the order of a dump: durably, all or nothing.

        The audit list is merged with that of the records, and ``note`` is appended. Observed state stays. ``records``
        is called and read in another thread. Watches start over with a ``Reset``. Raises ``ConflictError`` when the
        store is not empty and ``replace`` is False, ``CorruptError`` for inconsistent records, and any error of
        ``records``.
        """

    def register(self) -> MemberRegister | None:
        """The register of the servers that use it; None where only one can."""
        return None

    def condition(self) -> StoreCondition:
        """Problems of the store. May be called from any thread; it is cheap."""
