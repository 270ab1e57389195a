"""The history of a group: its revisions, how they differ, and what an undo would do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.pushes import ChangedNames
from xds.admin.models.values import Document, time_of
from xds.admin.models.writing import member

if TYPE_CHECKING:
    from xds.push.undo import UndoPlan
    from xds.store.base import RevisionInfo

AliasOf = Callable[[str], str]  # of a type URL


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRevision:
    """One revision in the history of a group.

    * ``revision``: its number;
    * ``kind``: ``push``, ``rollback``, ``restore`` (of a deleted group), ``delete``, or ``lowered`` after a change of
      config entries or upstreams, which leaves the pushed resources as they are;
    * ``content_of``: the revision that a rollback took its content from; 0 for other kinds;
    * ``keeps_endpoints``: true for a rollback that left assignments as they were;
    * ``undone_by``: the rollback that undid this revision; 0 if none did;
    * ``endpoints_only``: true if only assignments changed;
    * ``refused``: how many nodes rejected it, at most;
    * ``nodes``: how many nodes there were then; 0 if no node rejected it;
    * ``time``: when it was made;
    * ``versions``: the ``version_info`` of each type, by type alias;
    * ``resources``: the number of resources of the group at this revision;
    * ``deleted``: true for the revision that deleted the group;
    * ``content``: false if its content cannot be read: it deleted the group, or retention has deleted the content;
    * ``line``: present while a careful rollout goes on, for the revision that is its ``head`` or its ``base``.
    """

    schema_name: ClassVar[str] = "RevisionItem"

    revision: int
    kind: str
    content_of: int
    keeps_endpoints: bool
    undone_by: int
    endpoints_only: bool
    nodes: int
    refused: int
    actor: str
    author: str
    message: str
    time: datetime
    versions: Mapping[str, str]
    resources: int
    deleted: bool
    content: bool
    line: str = ""

    @classmethod
    def from_domain(cls, info: RevisionInfo, alias: AliasOf, line: str = "") -> GroupRevision:
        """A revision."""
        return copied(cls, info, **_revision(info, alias), line=line)


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoChoice(GroupRevision):
    """An earlier revision that an undo may go back to.

    * ``reason``: why the undo does not choose it; empty if it can be chosen.
    """

    schema_name: ClassVar[str] = "UndoCandidateItem"

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoProposal:
    """The plan of undoing the last configuration change of a group.

    * ``revision``: the present revision of the group;
    * ``etag``: the etag of the group. Send it as ``If-Match`` with the rollback, so that nothing else is undone;
    * ``takes_back``: the revision that would be undone;
    * ``to``: the revision to roll back to; null if there is none, so that a person has to choose among ``candidates``;
    * ``candidates``: the newest earlier revisions, newest first;
    * ``last_undo``: the rollback that the group is at now; null if it is at none.
    """

    schema_name: ClassVar[str] = "UndoItem"

    group: str
    revision: int
    etag: str
    takes_back: GroupRevision
    to: int | None
    candidates: tuple[UndoChoice, ...]
    last_undo: GroupRevision | None

    @classmethod
    def from_domain(cls, plan: UndoPlan, alias: AliasOf) -> UndoProposal:
        """The plan of an undo."""
        return copied(
            cls,
            plan,
            takes_back=GroupRevision.from_domain(plan.takes_back, alias),
            to=plan.to.revision if plan.to is not None else None,
            candidates=tuple(
                copied(UndoChoice, each.line, **_revision(each.line, alias), reason=each.reason)
                for each in plan.candidates
            ),
            last_undo=GroupRevision.from_domain(plan.last_undo, alias) if plan.last_undo is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceDifference:
    """A resource that differs between two revisions. If only redacted values differ, both sides look the same.

    * ``change``: ``added``, ``changed`` or ``removed``;
    * ``before``: the resource at the first revision, as protobuf JSON; null if there is none;
    * ``after``: the resource at the second revision, as protobuf JSON; null if there is none;
    * ``left_out_bytes``: present if the resource is larger than ``max_bytes``: its size, as protobuf. Both sides are
      null then.
    """

    schema_name: ClassVar[str] = "DifferenceItem"

    type: str
    name: str
    change: str
    before: Document | None
    after: Document | None
    left_out_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionDifference:
    """The difference between two revisions of a group.

    * ``from``: the first revision; 0: no resources;
    * ``to``: the second revision;
    * ``changes``: the names of all resources that differ, by type alias;
    * ``resources``: present with ``contents``: one page of these resources, before and after.
    """

    schema_name: ClassVar[str] = "DifferenceAnswer"

    group: str
    base: int = field(metadata=member("from"))
    to: int
    changes: Mapping[str, ChangedNames]
    resources: tuple[ResourceDifference, ...] | None = None
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class RevisionPage:
    """A page of revisions, newest first."""

    items: tuple[GroupRevision, ...]
    next_page_token: str = ""


def _revision(info: RevisionInfo, alias: AliasOf) -> dict[str, Any]:
    """The fields of a revision that have other values than those of ``info``."""
    return {
        "actor": info.meta.actor,
        "author": info.meta.author,
        "message": info.meta.message,
        "time": time_of(info.meta.time_s),
        "versions": {alias(type_url): version for type_url, version in info.versions.items()},
        "deleted": not info.live,
    }
