"""Results of the client as frozen dataclasses. Fields are those of the admin API (docs/admin-api.md).

Times are aware ``datetime`` values in UTC. A resource document is a dictionary with proto field names and ``@type``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from xds.admin.models.nacks import Nack
from xds.admin.models.nodes import HeldOnNode, NodeStatus  # noqa: F401 - `reader` finds all classes here
from xds.admin.models.values import NodeLocality

Document = Mapping[str, Any]
_NOWHERE = NodeLocality("", "", "")


@dataclass(frozen=True, slots=True)
class Finding:
    """An error or a warning about the pushed resources.

    ``pointer`` is a JSON pointer into ``resource``, ``hint`` says what to do; ``index`` is the position among the
    pushed resources, -1 if it concerns none of them.
    """

    code: str
    detail: str = ""
    severity: str = "error"
    resource: str = ""
    pointer: str = ""
    source: str = ""
    hint: str = ""
    index: int = -1

    def __str__(self) -> str:
        place = " ".join(part for part in (self.source, self.resource, self.pointer) if part)
        text = f"{self.detail}; {self.hint}" if self.hint else self.detail
        return f"{place}: {text}" if place else text


@dataclass(frozen=True, slots=True)
class PushProgress:
    """How many connected nodes have a push. ``verdict`` is ``done``, ``pending`` or ``refused``."""

    verdict: str
    synced: int = 0
    pending: int = 0
    nacked: int = 0
    pending_nodes: tuple[str, ...] = ()
    nacks: tuple[Nack, ...] = ()
    held: tuple[HeldOnNode, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangedNames:
    """The names of one type that a push added, changed and removed."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PushOutcome:
    """The result of a push. ``changed`` is false if it made no revision; ``etag`` goes into ``if_match``.

    ``changes`` and ``versions`` are by type alias (``clusters``). ``progress`` is None unless the push waited for the
    fleet. ``moves`` counts the nodes of a deleted group by the group that they move to.
    """

    group: str
    revision: int
    etag: str = ""
    changed: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, ChangedNames] = field(default_factory=dict)
    warnings: tuple[Finding, ...] = ()
    dry_run: bool = False
    moves: Mapping[str, int] = field(default_factory=dict)
    progress: PushProgress | None = None


@dataclass(frozen=True, slots=True)
class EntryChanged:
    """A config entry that a write changed: ``added``, ``changed`` or ``removed``."""

    kind: str
    name: str
    change: str


@dataclass(frozen=True, slots=True)
class EntryOutcome:
    """The result of a write of config entries. ``chains`` are the services whose discovery chain changed."""

    revision: int
    etag: str = ""
    changed: bool = False
    changes: tuple[EntryChanged, ...] = ()
    chains: tuple[str, ...] = ()
    warnings: tuple[Finding, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class TransactionOutcome:
    """The results of a transaction, in the order of its changes."""

    results: tuple[PushOutcome, ...] = ()
    config_entries: EntryOutcome | None = None


@dataclass(frozen=True, slots=True)
class ValidationOutcome:
    """A valid snapshot: the number of its resources, and the warnings."""

    valid: bool
    resources: int = 0
    warnings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupState:
    """A group: its revision, its settings, and who pushed last. ``resources`` counts by type alias.

    ``revision`` is 0 and ``time`` None for a group that has only settings.
    """

    group: str
    revision: int = 0
    etag: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    resources: Mapping[str, int] = field(default_factory=dict)
    nodes: int = 0
    selector: str = ""
    priority: int = 0
    on_nack: str = ""
    removal_delay_s: float | None = None
    listener_drain_s: float | None = None
    selector_failures: int = 0
    settings_etag: str = ""
    actor: str = ""
    author: str = ""
    message: str = ""
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class GroupSnapshot:
    """All resources of a group, as documents that ``apply`` accepts."""

    group: str
    revision: int
    etag: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    resources: tuple[Document, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupRevision:
    """A revision (docs/admin-api.md#history). ``actor`` was authenticated, ``author`` was claimed."""

    revision: int
    kind: str = "push"
    content_of: int = 0
    keeps_endpoints: bool = False
    undone_by: int = 0
    endpoints_only: bool = False
    nodes: int = 0
    refused: int = 0
    actor: str = ""
    author: str = ""
    message: str = ""
    time: datetime | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    resources: int = 0
    deleted: bool = False
    content: bool = True


@dataclass(frozen=True, slots=True)
class UndoChoice(GroupRevision):
    """A revision to go back to. ``reason`` says why undo does not choose it; empty if it may."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class UndoProposal:
    """What an undo would do. ``to`` is None if the caller has to choose among the ``candidates``."""

    group: str
    revision: int
    etag: str
    takes_back: GroupRevision
    to: int | None = None
    candidates: tuple[UndoChoice, ...] = ()
    last_undo: GroupRevision | None = None


@dataclass(frozen=True, slots=True)
class ResourceDifference:
    """A resource that differs: ``change`` is ``added``, ``changed`` or ``removed``."""

    type: str
    name: str
    change: str
    before: Document | None = None
    after: Document | None = None


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """An event. The ``kind`` ``lagged`` means that events before the next one are missing.

    ``id`` is opaque: pass it as ``after`` to continue after this event.
    """

    kind: str
    id: str = ""
    action: str = ""
    time: datetime | None = None
    group: str = ""
    node: str = ""
    type: str = ""
    revision: int | None = None
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AssignmentOwner:
    """The owner of an assignment. ``kind`` is ``pushed``, ``hand`` or ``binding`` (with its ``service``)."""

    kind: str
    actor: str = ""
    author: str = ""
    service: str = ""
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class AssignedEndpoint:
    """One endpoint as it is served. A draining endpoint is removed at ``until``."""

    address: str
    health: str = ""
    weight: int | None = None
    locality: NodeLocality = _NOWHERE
    priority: int = 0
    hostname: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True)
class ServedAssignment:
    """An assignment as it is served. A list has no ``endpoints``, only their number."""

    group: str
    name: str
    owner: AssignmentOwner
    etag: str = ""
    version: str = ""
    endpoints_n: int = 0
    draining_n: int = 0
    leaving: bool = False
    endpoints: tuple[AssignedEndpoint, ...] = ()
    assignment: Document = field(default_factory=dict)
    changed: bool = False
    warnings: tuple[Finding, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """A config entry. ``entry`` is the document that a write accepts."""

    kind: str
    name: str
    etag: str = ""
    created_revision: int = 0
    modified_revision: int = 0
    entry: Document = field(default_factory=dict)
    actor: str = ""
    author: str = ""
    message: str = ""
    time: datetime | None = None
