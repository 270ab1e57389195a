"""Upstreams of groups, and what they are lowered to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from xds.admin.models.findings import Finding
from xds.admin.models.groups import LoweredOrigin

if TYPE_CHECKING:
    from xds.mesh.core.lower.lowered import LoweredAssignment, LoweredResource
    from xds.mesh.group_lowering import LoweredGroup
    from xds.services.core.binding import Binding

AliasOf = Callable[[str], str]  # of a type URL


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredName(LoweredOrigin):
    """A lowered resource with its origin."""

    schema_name: ClassVar[str] = "LoweredItem"

    type: str
    name: str

    @classmethod
    def from_domain(cls, one: LoweredResource, alias: str) -> LoweredName:
        """A lowered resource; ``alias`` is that of its type."""
        return cls(type=alias, name=one.name, upstreams=tuple(one.upstreams), entries=tuple(map("/".join, one.entries)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredTarget:
    """The instances that serve a lowered assignment at one priority.

    * ``filter``: the filter that the instances match; empty: all;
    * ``port``: the name of their port; empty: the first port;
    * ``datacenter``: their datacenter; empty: all;
    * ``only_passing``: true if instances with a warning get no requests;
    * ``priority``: 0, or higher for failover.
    """

    schema_name: ClassVar[str] = "AssignmentTargetItem"

    service: str
    filter: str
    port: str
    datacenter: str
    only_passing: bool
    priority: int

    @classmethod
    def from_domain(cls, priority: int, binding: Binding) -> LoweredTarget:
        """The instances of one target."""
        return cls(
            service=binding.service,
            filter=binding.filter,
            port=binding.port,
            datacenter=binding.datacenter,
            only_passing=binding.only_passing,
            priority=priority,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamAssignment(LoweredOrigin):
    """The assignment of a lowered cluster with its origin.

    * ``name``: the name of the assignment;
    * ``targets``: the instances that are its endpoints.
    """

    schema_name: ClassVar[str] = "LoweredAssignmentItem"

    name: str
    targets: tuple[LoweredTarget, ...]

    @classmethod
    def from_domain(cls, one: LoweredAssignment) -> UpstreamAssignment:
        """The assignment of a lowered cluster."""
        return cls(
            name=one.name,
            targets=tuple(LoweredTarget.from_domain(*each) for each in enumerate(one.targets)),
            upstreams=tuple(one.upstreams),
            entries=tuple(map("/".join, one.entries)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamsSummary:
    """A group with upstreams.

    * ``etag``: the etag of the upstreams document, without quotes;
    * ``nodes``: the number of connected nodes;
    * ``upstreams``: the number of upstreams;
    * ``resources``: the number of lowered resources, by type alias;
    * ``selector``: the selector of the group; empty without one;
    * ``error``: present if the upstreams cannot be lowered now: why. Proxies are served what was lowered last.
    """

    group: str
    etag: str
    nodes: int
    upstreams: int
    resources: Mapping[str, int]
    selector: str
    error: str = ""

    @classmethod
    def from_domain(cls, made: LoweredGroup, etag: str, nodes: int, selector: str, alias: AliasOf) -> UpstreamsSummary:
        """A group with upstreams in a list."""
        return cls(**_summary(made, etag, nodes, selector, alias))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUpstreams(UpstreamsSummary):
    """The upstreams of a group, and what they are lowered to.

    * ``document``: the upstreams document, as PUT accepts it;
    * ``lowered``: the lowered resources;
    * ``assignments``: the assignments of lowered clusters;
    * ``warnings``: findings of lowering.
    """

    schema_name: ClassVar[str] = "UpstreamsItem"

    document: Mapping[str, Any]
    lowered: tuple[LoweredName, ...]
    assignments: tuple[UpstreamAssignment, ...]
    warnings: tuple[Finding, ...]

    @classmethod
    def from_domain(cls, made: LoweredGroup, etag: str, nodes: int, selector: str, alias: AliasOf) -> GroupUpstreams:
        """The upstreams of a group with what they are lowered to."""
        content = made.content
        return cls(
            **_summary(made, etag, nodes, selector, alias),
            document=made.document.document(),
            lowered=tuple(LoweredName.from_domain(one, alias(one.type_url)) for one in content.origins.values()),
            assignments=tuple(map(UpstreamAssignment.from_domain, content.assignments.values())),
            warnings=tuple(map(Finding.from_domain, content.warnings)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamsPage:
    """A page of groups with upstreams.

    * ``limit``: how many groups may have upstreams (``chains.upstream_groups``).
    """

    items: tuple[UpstreamsSummary, ...]
    limit: int
    next_page_token: str = ""


def _summary(made: LoweredGroup, etag: str, nodes: int, selector: str, alias: AliasOf) -> dict[str, Any]:
    counts = Counter(alias(type_url) for type_url, _ in made.content.records)
    return {
        "group": made.group,
        "etag": etag,
        "nodes": nodes,
        "upstreams": len(made.document.upstreams),
        "resources": dict(sorted(counts.items())),
        "selector": selector,
        "error": made.error,
    }
