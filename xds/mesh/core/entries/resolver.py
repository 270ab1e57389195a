"""service-resolver: the instances that serve the requests of a service; its fields and its rules (VS1 to VS24)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

from xds.codec.findings import Findings, short_repr
from xds.consul.quantities import duration_text
from xds.consul.shape import (
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
    Path,
    Span,
    member,
    named_values,
)
from xds.consul.shared import check_choice, check_enterprise, check_tenancy
from xds.filter.expression import FilterSyntaxError
from xds.filter.filter import compile_filter

WILDCARD = "*"
HASHING_POLICIES = ("ring_hash", "maglev")

SUBSET_NAME_LIMIT = 63
_SUBSET_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_POLICY_MODES = ("", "sequential", "default", "order-by-locality")
_LOCALITY_MODES = ("", "none", "failover")
_FILTERS_CACHED = 8_192

Pair = tuple[str, str]

BALANCING_POLICIES = ("", "random", "round_robin", "least_request", "ring_hash", "maglev")
HASH_FIELDS = ("", "header", "cookie", "query_parameter")
_BALANCER: Path = ("LoadBalancer",)


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


def check_resolver(entry: ServiceResolver, findings: Findings) -> None:
    """Check every rule that concerns the entry alone."""
    _check_subsets(entry, findings)
    if entry.redirect is not None:
        _check_redirect(entry, entry.redirect, findings)
    for subset, failover in entry.failover.items():
        _check_failover(entry, subset, failover, findings)
    for field, value_ns in (
        ("ConnectTimeout", entry.connect_timeout_ns),
        ("RequestTimeout", entry.request_timeout_ns),
    ):
        if value_ns < 0:
            findings.add("negative", f"Bad {field} '{duration_text(value_ns)}', must be >= 0", (field,))
    check_locality(entry.prioritize_by_locality, findings)
    if entry.load_balancer is not None:
        check_balancer(entry.load_balancer, findings)


def check_locality(priority: LocalityPriority | None, findings: Findings) -> None:
    """Check PrioritizeByLocality of a resolver or of proxy-defaults."""
    if priority is not None:
        path = ("PrioritizeByLocality", "Mode")
        if check_choice(priority.mode, _LOCALITY_MODES, "locality mode", findings, path):
            check_enterprise("PrioritizeByLocality", bool(priority.mode), findings, path)


def check_policy_mode(mode: str, regions: tuple[str, ...], findings: Findings, path: Path) -> None:
    """Check how failover targets are chosen."""
    if check_choice(mode, _POLICY_MODES, "failover mode", findings, (*path, "Mode")):
        check_enterprise("a failover policy", bool(mode or regions), findings, path)


# Subsets


def _check_subsets(entry: ServiceResolver, findings: Findings) -> None:
    for name, subset in entry.subsets.items():
        path = ("Subsets", name)
        if not name:
            findings.add("bad_subset", "Subset defined with empty name", path)
        elif len(name) > SUBSET_NAME_LIMIT or not _SUBSET_NAME.fullmatch(name):
            detail = f"Subset {short_repr(name)} is invalid"
            hint = f"{SUBSET_NAME_LIMIT} small letters, digits and dashes at most, no dash at either end"
            findings.add("bad_subset", detail, path, hint=hint)
        error = _filter_error(subset.filter)
        if error is not None:
            detail = (
                f"Filter for subset {short_repr(name)} is not a valid expression: column {error.column}: {error.detail}"
            )
            findings.add("bad_filter", detail, (*path, "Filter"), hint=error.hint)
    if entry.default_subset and entry.default_subset not in entry.subsets:
        detail = f"DefaultSubset {short_repr(entry.default_subset)} is not a valid subset"
        findings.add("unknown_subset", detail, ("DefaultSubset",), hint=_subsets_hint(entry))


@lru_cache(maxsize=_FILTERS_CACHED)
def _filter_error(text: str) -> FilterSyntaxError | None:
    """The syntax error of a filter; cached, because many services have equal filters."""
    try:
        compile_filter(text)
    except FilterSyntaxError as error:
        return error
    return None


def _subsets_hint(entry: ServiceResolver) -> str:
    names = sorted(entry.subsets)
    return f"there are {', '.join(names[:10])}" if names else "the entry has no Subsets"


def _check_own_subset(entry: ServiceResolver, service: str, subset: str, findings: Findings, path: Path) -> None:
    """Check that a subset of the entry's own service exists. Subsets of others are checked when chains are compiled."""
    if subset and service in ("", entry.name) and subset not in entry.subsets:
        detail = f"ServiceSubset {short_repr(subset)} is not a valid subset of {short_repr(entry.name)}"
        findings.add("unknown_subset", detail, (*path, "ServiceSubset"), hint=_subsets_hint(entry))


def _check_pairs(values: dict[str, object], pairs: tuple[Pair, ...], findings: Findings, path: Path) -> None:
    """Check that only one field of each pair is set."""
    for one, other in pairs:
        if values[one] and values[other]:
            findings.add("conflict", f"{one} cannot be set with {other}", (*path, other))


# Redirect

_REDIRECT_PAIRS = tuple(
    (one, other) for one in ("Peer", "SamenessGroup") for other in ("ServiceSubset", "Partition", "Datacenter")
)
_NEED_SERVICE = ("ServiceSubset", "Namespace", "Partition", "Peer")


def _check_redirect(entry: ServiceResolver, redirect: Redirect, findings: Findings) -> None:
    path = ("Redirect",)
    values = named_values(redirect)
    if entry.failover:
        findings.add("conflict", "Redirect and Failover cannot both be set", path)
    if not any(values.values()):
        findings.add("empty_redirect", "Redirect is empty", path)
    _check_pairs(values, _REDIRECT_PAIRS, findings, path)
    if not redirect.service:
        for field in _NEED_SERVICE:
            if values[field]:
                findings.add("missing_service", f"Redirect.{field} defined without Redirect.Service", (*path, field))
    else:
        _check_own_subset(entry, redirect.service, redirect.service_subset, findings, path)
    check_tenancy(redirect.namespace, redirect.partition, findings, path)
    _check_sameness(redirect.sameness_group, findings, path)


def _check_sameness(group: str, findings: Findings, path: Path) -> None:
    check_enterprise("SamenessGroup", bool(group), findings, (*path, "SamenessGroup"))


# Failover

_FAILOVER_PARTS = ("Service", "ServiceSubset", "Namespace", "Targets", "SamenessGroup", "Datacenters")
_FAILOVER_PAIRS = (
    ("Datacenters", "Targets"),
    ("ServiceSubset", "Targets"),
    ("Service", "Targets"),
    ("SamenessGroup", "Datacenters"),
    ("SamenessGroup", "ServiceSubset"),
    ("SamenessGroup", "Targets"),
)
_TARGET_PAIRS = (
    ("Peer", "ServiceSubset"),
    ("Peer", "Partition"),
    ("Peer", "Datacenter"),
    ("Partition", "Datacenter"),
)


def _check_failover(entry: ServiceResolver, subset: str, failover: Failover, findings: Findings) -> None:
    path = ("Failover", subset)
    values = named_values(failover)
    if subset != WILDCARD and subset not in entry.subsets:
        detail = f"Failover[{short_repr(subset)}]: not a valid subset"
        findings.add("unknown_subset", detail, path, hint=f"{_subsets_hint(entry)}; {WILDCARD} means any subset")
    if not any(values[part] for part in _FAILOVER_PARTS):
        detail = f"Failover[{short_repr(subset)}]: one of {', '.join(_FAILOVER_PARTS)} is required"
        findings.add("empty_failover", detail, path)
    _check_own_subset(entry, failover.service, failover.service_subset, findings, path)
    _check_pairs(values, _FAILOVER_PAIRS, findings, path)
    for index, target in enumerate(failover.targets):
        _check_target(entry, target, findings, (*path, "Targets", index))
    for index, datacenter in enumerate(failover.datacenters):
        if not datacenter:
            detail = f"Failover[{short_repr(subset)}].Datacenters: found empty datacenter"
            findings.add("empty_datacenter", detail, (*path, "Datacenters", index))
    if failover.policy is not None:
        check_policy_mode(failover.policy.mode, failover.policy.regions, findings, (*path, "Policy"))
    check_tenancy(failover.namespace, "", findings, path)
    _check_sameness(failover.sameness_group, findings, path)


def _check_target(entry: ServiceResolver, target: FailoverTarget, findings: Findings, path: Path) -> None:
    _check_pairs(named_values(target), _TARGET_PAIRS, findings, path)
    _check_own_subset(entry, target.service, target.service_subset, findings, path)
    check_tenancy(target.namespace, target.partition, findings, path)


def check_balancer(balancer: LoadBalancer, findings: Findings) -> None:
    """Check the policy, and that only its own settings are given."""
    check_choice(balancer.policy, BALANCING_POLICIES, "load balancing policy", findings, (*_BALANCER, "Policy"))
    _check_config(balancer, "RingHashConfig", balancer.ring_hash_config, "ring_hash", findings)
    _check_config(balancer, "LeastRequestConfig", balancer.least_request_config, "least_request", findings)
    if balancer.hash_policies and not balancer.is_hash_based:
        detail = f"HashPolicies specified for non-hash-based Policy: {short_repr(balancer.policy)}"
        findings.add("incompatible_policy", detail, (*_BALANCER, "HashPolicies"), hint="ring_hash and maglev have them")
    for index, policy in enumerate(balancer.hash_policies):
        _check_hash_policy(policy, index, findings)


def _check_config(balancer: LoadBalancer, field: str, config: object, policy: str, findings: Findings) -> None:
    if config is not None and balancer.policy != policy:
        detail = f"{field} specified for incompatible load balancing policy {short_repr(balancer.policy)}"
        findings.add("incompatible_policy", detail, (*_BALANCER, field), hint=f"it needs the policy {policy}")


def _check_hash_policy(policy: HashPolicy, index: int, findings: Findings) -> None:
    path = (*_BALANCER, "HashPolicies", index)
    label = f"HashPolicy[{index}]"
    check_choice(policy.field, HASH_FIELDS, "field to hash", findings, (*path, "Field"))
    if policy.source_ip and policy.field:
        detail = f"{label}: a single hash policy cannot hash both a source address and a {short_repr(policy.field)}"
        findings.add("conflict", detail, (*path, "SourceIP"))
    if policy.source_ip and policy.field_value:
        detail = f"{label}: a FieldValue cannot be specified when hashing SourceIP"
        findings.add("conflict", detail, (*path, "FieldValue"))
    if policy.field and not policy.field_value:
        detail = f"{label}: Field {short_repr(policy.field)} was specified without a FieldValue"
        findings.add("missing_field", detail, (*path, "FieldValue"))
    if policy.field_value and not policy.field:
        findings.add("missing_field", f"{label}: FieldValue requires a Field to apply to", (*path, "Field"))
    _check_cookie(policy, label, findings, (*path, "CookieConfig"))


def _check_cookie(policy: HashPolicy, label: str, findings: Findings, path: Path) -> None:
    cookie = policy.cookie_config
    if cookie is None:
        return
    if policy.field != "cookie":
        findings.add("conflict", f"{label}: CookieConfig provided for {short_repr(policy.field)}", path)
    if cookie.session and cookie.ttl_ns:
        findings.add("conflict", f"{label}: a session cookie cannot have an associated TTL", (*path, "TTL"))
