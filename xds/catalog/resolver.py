"""service-resolver: the instances that serve the requests of a service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from xds.catalog.shape import (
    COUNT,
    FLAG,
    SPAN,
    TEXT,
    TEXT_MAP,
    TEXTS,
    UINT64,
    Integer,
    ListOf,
    MapOf,
    Message,
    Span,
    member,
)

WILDCARD = "*"
HASHING_POLICIES = ("ring_hash", "maglev")


@dataclass(frozen=True, slots=True)
class Subset:
    """``filter`` selects instances (empty: all); ``only_passing`` leaves out those with a warning check."""

    filter: str = member("Filter", TEXT)
    only_passing: bool = member("OnlyPassing", FLAG)


@dataclass(frozen=True, slots=True)
class Redirect:
    """The service, subset or datacenter that is resolved instead. At least one field is set."""

    service: str = member("Service", TEXT)
    service_subset: str = member("ServiceSubset", TEXT)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)
    datacenter: str = member("Datacenter", TEXT)
    peer: str = member("Peer", TEXT)
    sameness_group: str = member("SamenessGroup", TEXT)


@dataclass(frozen=True, slots=True)
class FailoverTarget:
    """One of several targets of a failover, in order."""

    service: str = member("Service", TEXT)
    service_subset: str = member("ServiceSubset", TEXT)
    partition: str = member("Partition", TEXT)
    namespace: str = member("Namespace", TEXT)
    datacenter: str = member("Datacenter", TEXT)
    peer: str = member("Peer", TEXT)


@dataclass(frozen=True, slots=True)
class FailoverPolicy:
    """How failover targets are chosen. Only in Consul Enterprise."""

    mode: str = member("Mode", TEXT)
    regions: tuple[str, ...] = member("Regions", TEXTS)


@dataclass(frozen=True, slots=True)
class Failover:
    """Where requests go while no instance is healthy: ``datacenters`` or ``targets`` in order, or a single target."""

    service: str = member("Service", TEXT)
    service_subset: str = member("ServiceSubset", TEXT)
    namespace: str = member("Namespace", TEXT)
    datacenters: tuple[str, ...] = member("Datacenters", TEXTS)
    targets: tuple[FailoverTarget, ...] = member("Targets", ListOf(Message(FailoverTarget)))
    policy: FailoverPolicy | None = member("Policy", Message(FailoverPolicy))
    sameness_group: str = member("SamenessGroup", TEXT)


@dataclass(frozen=True, slots=True)
class LocalityPriority:
    """The preferred localities. Only in Consul Enterprise."""

    mode: str = member("Mode", TEXT)


@dataclass(frozen=True, slots=True)
class RingHashConfig:
    """Sizes of the ring; 0 means Envoy's default."""

    minimum_ring_size: int = member("MinimumRingSize", Integer(UINT64))
    maximum_ring_size: int = member("MaximumRingSize", Integer(UINT64))


@dataclass(frozen=True, slots=True)
class LeastRequestConfig:
    """The number of hosts that are compared; 0 means Envoy's default."""

    choice_count: int = member("ChoiceCount", COUNT)


@dataclass(frozen=True, slots=True)
class CookieConfig:
    """The cookie that Envoy sets for clients without one."""

    session: bool = member("Session", FLAG)
    ttl_ns: int = member("TTL", Span(as_number=True))
    path: str = member("Path", TEXT)


@dataclass(frozen=True, slots=True)
class HashPolicy:
    """The input of the hash: a header, cookie or query parameter, or the client's address."""

    field: str = member("Field", TEXT)
    field_value: str = member("FieldValue", TEXT)
    cookie_config: CookieConfig | None = member("CookieConfig", Message(CookieConfig))
    source_ip: bool = member("SourceIP", FLAG)
    terminal: bool = member("Terminal", FLAG)


@dataclass(frozen=True, slots=True)
class LoadBalancer:
    """How a host is chosen; an empty ``policy`` means Envoy's default."""

    policy: str = member("Policy", TEXT)
    ring_hash_config: RingHashConfig | None = member("RingHashConfig", Message(RingHashConfig))
    least_request_config: LeastRequestConfig | None = member("LeastRequestConfig", Message(LeastRequestConfig))
    hash_policies: tuple[HashPolicy, ...] = member("HashPolicies", ListOf(Message(HashPolicy)))

    @property
    def is_hash_based(self) -> bool:
        """Whether the policy sends equal requests to the same host."""
        return self.policy in HASHING_POLICIES


@dataclass(frozen=True, slots=True)
class ServiceResolver:
    """The resolver of the service with its name."""

    kind: ClassVar[str] = "service-resolver"

    name: str = member("Name", TEXT, always=True)
    default_subset: str = member("DefaultSubset", TEXT)
    subsets: Mapping[str, Subset] = member("Subsets", MapOf(Message(Subset)))
    redirect: Redirect | None = member("Redirect", Message(Redirect))
    failover: Mapping[str, Failover] = member("Failover", MapOf(Message(Failover)))
    prioritize_by_locality: LocalityPriority | None = member("PrioritizeByLocality", Message(LocalityPriority))
    connect_timeout_ns: int = member("ConnectTimeout", SPAN)
    request_timeout_ns: int = member("RequestTimeout", SPAN)
    load_balancer: LoadBalancer | None = member("LoadBalancer", Message(LoadBalancer))
    meta: Mapping[str, str] = member("Meta", TEXT_MAP)
    namespace: str = member("Namespace", TEXT)
    partition: str = member("Partition", TEXT)

    @property
    def is_default(self) -> bool:
        """Whether the entry has no setting, so that it has no effect."""
        return not (
            self.default_subset
            or self.subsets
            or self.redirect is not None
            or self.failover
            or self.connect_timeout_ns
            or self.request_timeout_ns
            or self.load_balancer is not None
            or self.prioritize_by_locality is not None
        )
