"""Assignments as they are served: their owners and endpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.findings import Finding
from xds.admin.models.values import NodeLocality, time_of
from xds.admin.models.writing import present_if

if TYPE_CHECKING:
    from xds.live.draining import EndpointState
    from xds.live.hand_assignment import HandAssignment
    from xds.live.owners import Owner

PUSHED, BY_HAND, _OF_SERVICE, _LOWERED = "pushed", "hand", "binding", "lowered"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentOwner:
    """The owner of an assignment.

    * ``kind``: ``pushed``; ``hand`` (set by hand); ``binding`` (follows a service); ``lowered`` (from an upstream); or
      ``leaving`` while endpoints of a live assignment that ended still drain;
    * ``actor``: present if it is known: the principal that set it;
    * ``author``: present if it is set by hand: the author as the client claims;
    * ``time``: present if it is known: when it was set;
    * ``service``: present for ``binding``: the service that it follows;
    * ``upstream``: present for ``lowered``: the name of the upstream.
    """

    schema_name: ClassVar[str] = "OwnerItem"

    kind: str
    actor: str = field(default="", metadata=present_if(lambda owner: owner.actor or owner.kind == BY_HAND))
    author: str = field(default="", metadata=present_if(lambda owner: owner.author or owner.kind == BY_HAND))
    time: datetime | None = None
    service: str = ""
    upstream: str = ""

    @classmethod
    def from_domain(cls, owner: Owner | None, held: HandAssignment | None = None) -> AssignmentOwner:
        """An owner; None: the push."""
        if owner is None:
            return cls(kind=PUSHED)
        kind = owner.kind
        return cls(
            kind=kind,
            actor=held.actor if held is not None else owner.actor,
            author=held.author if held is not None else "",
            time=time_of(owner.time_s) if owner.time_s else None,
            service=owner.follows if kind == _OF_SERVICE else "",
            upstream=owner.follows if kind == _LOWERED else "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedEndpoint:
    """One endpoint of an assignment.

    * ``address``: such as ``10.0.0.1:80``, ``[::1]:80`` or ``unix:PATH``;
    * ``health``: its health status as in Envoy's API, such as ``HEALTHY`` or ``DRAINING``;
    * ``weight``: its weight; null if none is set;
    * ``locality``: its locality;
    * ``priority``: the priority of its locality; 0 is the first;
    * ``hostname``: present if it has one: its host name;
    * ``until``: present if it drains: when it is removed.
    """

    schema_name: ClassVar[str] = "EndpointItem"

    address: str
    health: str
    weight: int | None
    locality: NodeLocality
    priority: int
    hostname: str = ""
    until: datetime | None = None

    @classmethod
    def from_domain(cls, state: EndpointState) -> AssignedEndpoint:
        """An endpoint as it is served."""
        return copied(cls, state, until=time_of(state.until_s) if state.until_s is not None else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentSummary:
    """An assignment in a list.

    * ``name``: the name of the ClusterLoadAssignment;
    * ``owner``: its owner;
    * ``etag``: its etag, without quotes; empty unless it is set by hand;
    * ``version``: the version of what is served: a hash of its content; empty while nothing is served;
    * ``endpoints_n``: the number of endpoints;
    * ``draining_n``: how many of them drain;
    * ``leaving``: true if the live assignment has ended, and the pushed one is served once its endpoints have drained.
    """

    group: str
    name: str
    owner: AssignmentOwner
    etag: str
    version: str
    endpoints_n: int
    draining_n: int
    leaving: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedAssignment(AssignmentSummary):
    """An assignment as it is served.

    * ``endpoints``: its endpoints, those that drain included;
    * ``assignment``: the assignment without endpoints that only drain, as PUT accepts it.
    """

    schema_name: ClassVar[str] = "LiveAssignmentItem"

    endpoints: tuple[AssignedEndpoint, ...]
    assignment: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedAssignment(ServedAssignment):
    """The result of a change of endpoints; in a dry run, what it would make.

    * ``changed``: false if the assignment was the same before.
    """

    schema_name: ClassVar[str] = "EndpointsAnswer"

    changed: bool
    warnings: tuple[Finding, ...]
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class AssignmentSummaryPage:
    """A page of the assignments of a group, by name."""

    items: tuple[AssignmentSummary, ...]
    next_page_token: str = ""
