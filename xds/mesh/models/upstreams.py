"""The JSON of upstreams of groups, and of what they are lowered to, as typed dictionaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NotRequired

from typing_extensions import TypedDict

from xds.admin.problem import finding_item
from xds.admin.shapes.groups import LoweredOrigin
from xds.admin.shapes.values import FindingItem
from xds.mesh.core.entries.entry import WrittenKey
from xds.mesh.core.lower.lowered import AssignmentTarget, LoweredAssignment, LoweredResource
from xds.mesh.group_lowering import LoweredGroup
from xds.mesh.lowered_groups import etag_of
from xds.push.content import type_label


class LoweredItem(LoweredOrigin):
    """A lowered resource with its origin."""

    type: str
    name: str


class AssignmentTargetItem(TypedDict):
    """The instances that serve a lowered assignment at one priority.

    * ``filter``: the filter that the instances match; empty: all;
    * ``port``: the name of their port; empty: the first port;
    * ``datacenter``: their datacenter; empty: all;
    * ``only_passing``: true if instances with a warning get no requests;
    * ``priority``: 0, or higher for failover.
    """

    service: str
    filter: str
    port: str
    datacenter: str
    only_passing: bool
    priority: int


class LoweredAssignmentItem(LoweredOrigin):
    """The assignment of a lowered cluster with its origin.

    * ``name``: the name of the assignment;
    * ``targets``: the instances that are its endpoints.
    """

    name: str
    targets: list[AssignmentTargetItem]


class UpstreamsSummary(TypedDict):
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
    resources: dict[str, int]
    selector: str
    error: NotRequired[str]


class UpstreamsItem(UpstreamsSummary):
    """The upstreams of a group, and what they are lowered to.

    * ``document``: the upstreams document, as PUT accepts it;
    * ``lowered``: the lowered resources;
    * ``assignments``: the assignments of lowered clusters;
    * ``warnings``: findings of lowering.
    """

    document: dict[str, Any]
    lowered: list[LoweredItem]
    assignments: list[LoweredAssignmentItem]
    warnings: list[FindingItem]


class UpstreamsPage(TypedDict):
    """A page of groups with upstreams.

    * ``limit``: how many groups may have upstreams (``chains.upstream_groups``).
    """

    items: list[UpstreamsSummary]
    limit: int
    next_page_token: NotRequired[str]


def upstreams_summary(made: LoweredGroup, nodes: int, selector: str) -> UpstreamsSummary:
    """A group with upstreams in a list."""
    counts = Counter(type_label(type_url) for type_url, _ in made.content.records)
    item: UpstreamsSummary = {
        "group": made.group,
        "etag": etag_of(made.document),
        "nodes": nodes,
        "upstreams": len(made.document.upstreams),
        "resources": dict(sorted(counts.items())),
        "selector": selector,
    }
    return {**item, "error": made.error} if made.error else item


def upstreams_item(made: LoweredGroup, nodes: int, selector: str) -> UpstreamsItem:
    """The upstreams of a group with what they are lowered to."""
    content = made.content
    return {
        **upstreams_summary(made, nodes, selector),
        "document": made.document.document(),
        "lowered": [_lowered_item(one) for one in content.origins.values()],
        "assignments": [_assignment_item(one) for one in content.assignments.values()],
        "warnings": [finding_item(warning) for warning in content.warnings],
    }


def _lowered_item(one: LoweredResource) -> LoweredItem:
    return {"type": type_label(one.type_url), "name": one.name, **_origin(one.upstreams, one.entries)}


def _assignment_item(one: LoweredAssignment) -> LoweredAssignmentItem:
    targets = [_target_item(target) for target in one.targets]
    return {"name": one.name, "targets": targets, **_origin(one.upstreams, one.entries)}


def _target_item(target: AssignmentTarget) -> AssignmentTargetItem:
    binding = target.binding
    return {
        "service": binding.service,
        "filter": binding.filter,
        "port": binding.port,
        "datacenter": binding.datacenter,
        "only_passing": binding.only_passing,
        "priority": target.priority,
    }


def _origin(upstreams: Iterable[str], entries: Iterable[WrittenKey]) -> LoweredOrigin:
    return {"upstreams": list(upstreams), "entries": ["/".join(key) for key in entries]}
