"""The JSON of services, their instances, and bindings."""

from __future__ import annotations

from collections import Counter
from typing import NotRequired

from typing_extensions import TypedDict

from xds.api.problem import finding_item
from xds.api.shapes.values import FindingItem, LocalityItem, timestamp
from xds.catalog.instance import Check, Health
from xds.catalog.service_index import ServiceInstance
from xds.control.bindings import BoundAssignment, etag_of
from xds.control.catalog import ServiceCatalog
from xds.control.live_endpoints import Owner
from xds.control.policies import Key
from xds.model.errors import Violation
from xds.model.natural_order import natural_key


class ServiceSummary(TypedDict):
    """A service: its instances by health, the sources that show it, and how many assignments follow it.

    ``held`` counts instances that are kept though their source lost them. ``changed_at`` is when an instance changed
    last.
    """

    service: str
    instances: int
    passing: int
    warning: int
    critical: int
    draining: int
    held: int
    sources: list[str]
    bindings: int
    changed_at: str | None


class ServiceSummaryPage(TypedDict):
    """A page of services."""

    items: list[ServiceSummary]
    next_page_token: NotRequired[str]


class CheckItem(TypedDict):
    """A health check of an instance."""

    id: str
    status: str
    name: str
    kind: str
    output: str
    notes: str


class WeightsItem(TypedDict):
    """The weight of an instance while it is passing, and while a check warns."""

    passing: int
    warning: int


class InstanceItem(TypedDict):
    """An instance as it is served.

    ``since`` is when it was first seen, ``changed_at`` when it changed last, ``source_read_at`` when its source was
    last read. ``is_held``: its source lost it, with more others than can be believed. ``drains_until``: it goes then.
    """

    id: str
    address: str
    port: int
    ports: dict[str, int]
    health: str
    source: str
    source_kind: str
    source_read_at: str | None
    since: str
    changed_at: str
    is_held: bool
    drains_until: str | None
    weights: WeightsItem
    locality: LocalityItem
    datacenter: str
    node: str
    meta: dict[str, str]
    tags: list[str]
    checks: list[CheckItem]


class BoundItem(TypedDict):
    """An assignment that follows a service. ``lowered``: it is that of an upstream's cluster, without a binding."""

    group: str
    assignment: str
    lowered: bool


class ServiceItem(TypedDict):
    """A service with its instances. ``is_known``: a source has shown an instance at some time."""

    service: str
    is_known: bool
    instances: list[InstanceItem]
    bindings: list[BoundItem]


class BindingItem(TypedDict):
    """A binding. ``state`` is ``laid``, or ``waiting`` until a source has shown the service: the pushed assignment is
    served.

    ``endpoints`` is the number of instances that it selects. ``left_out``: how often the filter had no answer.
    """

    group: str
    assignment: str
    etag: str
    service: str
    filter: str
    port: str
    datacenter: str
    only_passing: bool
    state: str
    endpoints: int
    left_out: int
    actor: str
    time: str | None
    warnings: list[FindingItem]
    changed: NotRequired[bool]
    dry_run: NotRequired[bool]


class BindingPage(TypedDict):
    """A page of bindings."""

    items: list[BindingItem]
    next_page_token: NotRequired[str]


class BindingDeleted(TypedDict):
    """A binding that ended: the pushed assignment is served."""

    group: str
    assignment: str
    dry_run: NotRequired[bool]


class AcceptedLosses(TypedDict):
    """The losses of a source that are accepted: the number of removed instances, by service."""

    source: str
    accepted: dict[str, int]
    dry_run: NotRequired[bool]


def service_summary(catalog: ServiceCatalog, service: str, bindings: int) -> ServiceSummary:
    """A service in a list."""
    served = catalog.instances(service)
    health = Counter(one.health for one in served)
    changed_at = max((one.observed.changed_at for one in served), default=None)
    return {
        "service": service,
        "instances": len(served),
        "passing": health[Health.PASSING],
        "warning": health[Health.WARNING],
        "critical": health[Health.CRITICAL],
        "draining": health[Health.DRAINING],
        "held": sum(one.is_held for one in served),
        "sources": sorted({one.source for one in served}),
        "bindings": bindings,
        "changed_at": timestamp(changed_at) if changed_at is not None else None,
    }


def service_item(catalog: ServiceCatalog, service: str, bindings: list[Key], lowered: list[Key]) -> ServiceItem:
    """A service with its instances."""
    states = {status.name: (status.kind, status.read_at) for status in catalog.statuses()}
    served = sorted(
        catalog.instances(service), key=lambda one: natural_key(f"{one.instance.address} {one.instance.port}")
    )
    return {
        "service": service,
        "is_known": catalog.is_known(service),
        "instances": [_instance_item(one, *states.get(one.source, ("", 0.0))) for one in served],
        "bindings": [
            {"group": group, "assignment": assignment, "lowered": is_lowered}
            for keys, is_lowered in ((bindings, False), (lowered, True))
            for group, assignment in keys
        ],
    }


def _instance_item(served: ServiceInstance, kind: str, read_at: float) -> InstanceItem:
    one, where = served.instance, served.instance.locality
    return {
        "id": one.id,
        "address": one.address,
        "port": one.port,
        "ports": dict(one.ports),
        "health": served.health.value,
        "source": served.source,
        "source_kind": kind,
        "source_read_at": timestamp(read_at) if read_at else None,
        "since": timestamp(served.observed.since),
        "changed_at": timestamp(served.observed.changed_at),
        "is_held": served.is_held,
        "drains_until": timestamp(served.drains_until) if served.drains_until is not None else None,
        "weights": {"passing": one.weight, "warning": one.warning_weight},
        "locality": {"region": where.region, "zone": where.zone, "sub_zone": where.sub_zone},
        "datacenter": one.datacenter,
        "node": one.node,
        "meta": dict(one.meta),
        "tags": list(one.tags),
        "checks": [_check_item(check) for check in one.checks],
    }


def _check_item(check: Check) -> CheckItem:
    return {
        "id": check.id,
        "status": check.status.value,
        "name": check.name,
        "kind": check.kind,
        "output": check.output,
        "notes": check.notes,
    }


def binding_item(bound: BoundAssignment, owner: Owner | None, endpoints: int, warnings: list[Violation]) -> BindingItem:
    """A binding with its state."""
    binding = bound.binding
    return {
        "group": bound.key[0],
        "assignment": bound.key[1],
        "etag": etag_of(binding),
        "service": binding.service,
        "filter": binding.filter,
        "port": binding.port,
        "datacenter": binding.datacenter,
        "only_passing": binding.only_passing,
        "state": "laid" if bound.is_live else "waiting",
        "endpoints": endpoints,
        "left_out": bound.selection.failures,
        "actor": owner.actor if owner is not None else "",
        "time": timestamp(owner.time_s) if owner is not None and owner.time_s else None,
        "warnings": [finding_item(warning) for warning in warnings],
    }
