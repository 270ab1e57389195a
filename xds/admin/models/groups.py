"""Groups: their settings, state and content."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.endpoints import AssignmentOwner
from xds.admin.models.findings import Finding
from xds.admin.models.rollouts import CarefulPlan
from xds.admin.models.values import Document, time_of
from xds.admin.models.writing import EMPTY_FOR_NONE

if TYPE_CHECKING:
    from xds.push.content import GroupContent
    from xds.push.derived import DerivedContent
    from xds.push.groups import GroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    """The settings of a group.

    * ``selector``: the filter by which the group takes nodes; empty: nodes join by name only;
    * ``priority``: selectors of groups with a higher priority are tried first;
    * ``on_nack``: ``hold`` or ``proceed``: what a rejected cluster does to the listeners and routes that refer to it.
      Empty: the setting ``server.on_nack`` applies;
    * ``removal_delay_s``: how long nodes keep removed resources; null: the setting ``order.removal_delay_s`` applies.
      A change affects removed resources whose time has not begun;
    * ``listener_drain_s``: how much longer, if the push changed or removed a listener; null: the setting
      ``order.listener_drain_s`` applies;
    * ``rollout``: the plan of each push of configuration; null: pushes go to all nodes at once;
    * ``selector_failures``: how often the selector could not be evaluated for a node, which then does not match;
    * ``settings_etag``: the etag of the settings for ``If-Match`` of ``PUT /groups/{group}``; empty if there are none.
    """

    selector: str
    priority: int
    on_nack: str
    removal_delay_s: float | None
    listener_drain_s: float | None
    rollout: CarefulPlan | None
    selector_failures: int
    settings_etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState(_Settings):
    """A group with its settings. No node belongs to a group that has settings alone.

    * ``revision``: its present revision; 0 for a group that has settings alone;
    * ``etag``: the etag of its snapshot, without quotes; empty for a group that has settings alone;
    * ``versions``: the ``version_info`` of each type, by type alias;
    * ``resources``: the number of resources, by type alias;
    * ``nodes``: the number of connected nodes; one that is connected to several servers counts at each;
    * ``message``: the message of the present revision; empty without one;
    * ``time``: when the present revision was made; empty for a group that has settings alone;
    * ``partial``: present in the answer about one group, if servers did not answer: their names. Their nodes are not
      counted.
    """

    schema_name: ClassVar[str] = "GroupItem"

    group: str
    revision: int
    etag: str
    versions: Mapping[str, str]
    resources: Mapping[str, int]
    nodes: int
    actor: str
    author: str
    message: str
    time: datetime | None = field(metadata=EMPTY_FOR_NONE)
    partial: tuple[str, ...] = ()

    @classmethod
    def from_domain(
        cls,
        group: str,
        content: GroupContent | None,
        nodes: int,
        settings: GroupSettings,
        settings_etag: str,
        selector_failures: int,
        partial: tuple[str, ...] = (),
    ) -> GroupState:
        """A group. ``content`` is None for a group that has only settings."""
        meta = content.meta if content is not None else None
        return copied(
            cls,
            settings,
            group=group,
            revision=content.revision if content is not None else 0,
            etag=content.etag if content is not None else "",
            versions=content.versions() if content is not None else {},
            resources=content.counts() if content is not None else {},
            nodes=nodes,
            rollout=CarefulPlan.from_domain(settings.rollout) if settings.rollout is not None else None,
            selector_failures=selector_failures,
            settings_etag=settings_etag,
            actor=meta.actor if meta is not None else "",
            author=meta.author if meta is not None else "",
            message=meta.message if meta is not None else "",
            time=time_of(meta.time_s) if meta is not None else None,
            partial=partial,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """The resources of a group at one revision. ``PUT /groups/{group}/snapshot`` accepts this document.

    * ``revision``: the revision;
    * ``etag``: the etag of this revision, without quotes;
    * ``versions``: the ``version_info`` of each type, by type alias;
    * ``lowered``: the number of resources that are lowered from upstreams. They are in ``resources`` only on request;
    * ``resources``: the resources as protobuf JSON, each with its ``@type``, in pushed order.
    """

    schema_name: ClassVar[str] = "SnapshotItem"

    group: str
    revision: int
    etag: str
    versions: Mapping[str, str]
    lowered: int
    resources: tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class LoweredOrigin:
    """Where a lowered resource comes from.

    * ``upstreams``: the names of upstreams in the document of the group;
    * ``entries``: the config entries, as ``kind/name``.
    """

    upstreams: tuple[str, ...]
    entries: tuple[str, ...]

    @classmethod
    def find(cls, content: DerivedContent, key: tuple[str, str]) -> LoweredOrigin | None:
        """Where a resource or an assignment comes from; None for one that is not derived."""
        if not content.owns(key):
            return None
        origin = content.origin(key)
        return cls(origin.upstreams, tuple(map("/".join, origin.entries)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PushedResource:
    """A resource of a group as it was pushed.

    * ``version``: its version: a hash of its content;
    * ``resource``: the resource as protobuf JSON, with its ``@type``;
    * ``live``: present for an assignment that a live one replaces: the owner of the live assignment;
    * ``lowered``: present if the resource was not pushed, but lowered from upstreams: where it comes from.
    """

    schema_name: ClassVar[str] = "ResourceItem"

    type: str
    name: str
    version: str
    resource: Document
    live: AssignmentOwner | None = None
    lowered: LoweredOrigin | None = None


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """A page of resources, by name."""

    items: tuple[PushedResource, ...]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A page of groups.

    * ``partial``: present if servers did not answer: their names. Their nodes are not counted.
    """

    items: tuple[GroupState, ...]
    next_page_token: str = ""
    partial: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationOutcome:
    """The result of a validation without errors. With errors the answer is 422.

    * ``valid``: true;
    * ``resources``: the number of resources;
    * ``errors``: empty;
    * ``warnings``: the warnings.
    """

    schema_name: ClassVar[str] = "ValidationAnswer"

    valid: bool
    resources: int
    errors: tuple[Finding, ...]
    warnings: tuple[Finding, ...]
