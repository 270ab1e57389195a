"""The JSON of services, their instances, and bindings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar

from xds.admin.models.copying import copied
from xds.admin.models.findings import Finding
from xds.admin.models.values import NodeLocality, time_of

if TYPE_CHECKING:
    from xds.live.owners import Owner
    from xds.model.errors import Violation
    from xds.services.bindings import BoundAssignment
    from xds.services.catalog import ServiceCatalog
    from xds.services.core.index import ServiceInstance
    from xds.store.document_keys import Key


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSummary:
    """A service of the catalog, with the numbers of its instances.

    * ``instances``: the number of instances, those that drain included;
    * ``passing``: how many of them pass their checks;
    * ``warning``: how many of them have a check that warns;
    * ``critical``: how many of them have a critical check;
    * ``draining``: how many of them drain;
    * ``held``: how many of them are kept although their source lost them;
    * ``sources``: the names of the sources that show it;
    * ``bindings``: the number of assignments that follow it;
    * ``changed_at``: when an instance changed last; null without instances.
    """

    service: str
    instances: int
    passing: int
    warning: int
    critical: int
    draining: int
    held: int
    sources: tuple[str, ...]
    bindings: int
    changed_at: datetime | None

    @classmethod
    def from_domain(cls, service: str, instances: Sequence[ServiceInstance], bindings: int) -> ServiceSummary:
        """A service in a list."""
        health = Counter(one.health.value for one in instances)
        changed_at = max((one.observed.changed_at for one in instances), default=None)
        return cls(
            service=service,
            instances=len(instances),
            passing=health["passing"],
            warning=health["warning"],
            critical=health["critical"],
            draining=health["draining"],
            held=sum(one.is_held for one in instances),
            sources=tuple(sorted({one.source for one in instances})),
            bindings=bindings,
            changed_at=time_of(changed_at) if changed_at is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSummaryPage:
    """A page of services, by name."""

    items: tuple[ServiceSummary, ...]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceCheck:
    """A health check of an instance.

    * ``id``: its id;
    * ``status``: ``passing``, ``warning``, ``critical`` or ``draining``;
    * ``name``: its name; may be empty;
    * ``kind``: who checks, such as ``ttl``, ``http`` or ``kubernetes``;
    * ``output``: its last output;
    * ``notes``: what its definition says about it.
    """

    schema_name: ClassVar[str] = "CheckItem"

    id: str
    status: str
    name: str
    kind: str
    output: str
    notes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceWeights:
    """The weights of an instance.

    * ``passing``: its weight while it is passing;
    * ``warning``: its weight while a check warns.
    """

    schema_name: ClassVar[str] = "WeightsItem"

    passing: int
    warning: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogInstance:
    """An instance of a service as it is served.

    * ``id``: its id, unique among the instances of the service from its source;
    * ``address``: its IP address;
    * ``port``: its port;
    * ``ports``: further ports by name;
    * ``health``: ``passing``, ``warning``, ``critical`` or ``draining``;
    * ``source``: the name of its source;
    * ``source_kind``: the kind of its source, such as ``consul``;
    * ``source_read_at``: when its source was read last; null if it was not read since the start;
    * ``since``: when it was first seen;
    * ``changed_at``: when it changed last;
    * ``is_held``: true if its source lost it, together with so many others that the loss is held until it is accepted;
    * ``drains_until``: when it is removed, if it drains; else null;
    * ``weights``: its weights;
    * ``locality``: its locality;
    * ``datacenter``: its datacenter; empty for that of the server;
    * ``node``: the machine or pod that it runs on; empty if it is not known;
    * ``meta``: its metadata;
    * ``tags``: its tags;
    * ``checks``: its health checks.
    """

    schema_name: ClassVar[str] = "InstanceItem"

    id: str
    address: str
    port: int
    ports: Mapping[str, int]
    health: str
    source: str
    source_kind: str
    source_read_at: datetime | None
    since: datetime
    changed_at: datetime
    is_held: bool
    drains_until: datetime | None
    weights: InstanceWeights
    locality: NodeLocality
    datacenter: str
    node: str
    meta: Mapping[str, str]
    tags: tuple[str, ...]
    checks: tuple[InstanceCheck, ...]

    @classmethod
    def from_domain(cls, served: ServiceInstance, kind: str, read_at: float) -> CatalogInstance:
        """An instance; ``kind`` and ``read_at`` are of its source."""
        one = served.instance
        return copied(
            cls,
            one,
            ports=dict(one.ports),
            health=served.health.value,
            source=served.source,
            source_kind=kind,
            source_read_at=time_of(read_at) if read_at else None,
            since=time_of(served.observed.since),
            changed_at=time_of(served.observed.changed_at),
            is_held=served.is_held,
            drains_until=time_of(served.drains_until) if served.drains_until is not None else None,
            weights=InstanceWeights(passing=one.weight, warning=one.warning_weight),
            meta=dict(one.meta),
            checks=tuple(copied(InstanceCheck, check, status=check.status.value) for check in one.checks),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowingAssignment:
    """An assignment that follows a service.

    * ``assignment``: the name of the assignment;
    * ``lowered``: true if the assignment belongs to a lowered upstream; false for a binding.
    """

    schema_name: ClassVar[str] = "BoundItem"

    group: str
    assignment: str
    lowered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceDetail:
    """A service with its instances.

    * ``is_known``: false if no source has ever shown an instance of it;
    * ``instances``: its instances, by address and port;
    * ``bindings``: the assignments that follow it.
    """

    schema_name: ClassVar[str] = "ServiceItem"

    service: str
    is_known: bool
    instances: tuple[CatalogInstance, ...]
    bindings: tuple[FollowingAssignment, ...]

    @classmethod
    def from_domain(
        cls,
        catalog: ServiceCatalog,
        service: str,
        instances: Iterable[ServiceInstance],
        bindings: Iterable[Key],
        lowered: Iterable[Key],
    ) -> ServiceDetail:
        """A service with its instances, and the assignments that follow it."""
        states = {status.name: (status.kind, status.read_at) for status in catalog.statuses()}
        return cls(
            service=catalog.written_name(service),
            is_known=catalog.is_known(service),
            instances=tuple(CatalogInstance.from_domain(one, *states.get(one.source, ("", 0.0))) for one in instances),
            bindings=tuple(
                FollowingAssignment(group=group, assignment=assignment, lowered=is_lowered)
                for keys, is_lowered in ((bindings, False), (lowered, True))
                for group, assignment in keys
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingState:
    """A binding: an assignment that follows a service.

    * ``assignment``: the name of the assignment;
    * ``etag``: the etag of the binding, without quotes;
    * ``filter``: the filter that instances must match; empty: all instances;
    * ``port``: the name of the port; empty: the first port;
    * ``datacenter``: the datacenter of the instances; empty: all;
    * ``only_passing``: true if instances with a warning get no requests;
    * ``state``: ``live`` if the instances are served; ``waiting`` until a source has shown the service, while the
      pushed assignment is served;
    * ``endpoints``: the number of instances that it selects;
    * ``left_out``: how often the filter could not be evaluated for an instance, which then is left out;
    * ``time``: when the binding was set; null if it is not known;
    * ``warnings``: findings about the binding;
    * ``changed``: present after a write: false if the binding was the same before.
    """

    schema_name: ClassVar[str] = "BindingItem"

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
    time: datetime | None
    warnings: tuple[Finding, ...]
    changed: bool | None = None
    dry_run: bool = False

    @classmethod
    def from_domain(
        cls, bound: BoundAssignment, owner: Owner | None, endpoints: int, warnings: list[Violation]
    ) -> BindingState:
        """A binding with its state."""
        return copied(
            cls,
            bound.binding,
            group=bound.key[0],
            assignment=bound.key[1],
            etag=bound.etag,
            state="live" if bound.is_live else "waiting",
            endpoints=endpoints,
            left_out=bound.selection.failures,
            actor=owner.actor if owner is not None else "",
            time=time_of(owner.time_s) if owner is not None and owner.time_s else None,
            warnings=tuple(map(Finding.from_domain, warnings)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingPage:
    """A page of bindings, by assignment."""

    items: tuple[BindingState, ...]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingDeleted:
    """The binding that has ended; in a dry run, that would end.

    * ``assignment``: the name of the assignment.
    """

    group: str
    assignment: str
    dry_run: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedLosses:
    """The losses of a source that were accepted; in a dry run, that would be.

    * ``source``: the name of the source;
    * ``accepted``: the number of lost instances, by service.
    """

    source: str
    accepted: Mapping[str, int]
    dry_run: bool = False
