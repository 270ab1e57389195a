"""Rules for a service-resolver (VS1 to VS24). Its load balancer is checked in ``balancer_rules``."""

from __future__ import annotations

import re
from functools import lru_cache

from xds.catalog.balancer_rules import check_balancer
from xds.catalog.duration import duration_text
from xds.catalog.resolver import WILDCARD, Failover, FailoverTarget, LocalityPriority, Redirect, ServiceResolver
from xds.catalog.shape import Path
from xds.catalog.shared_rules import check_choice, check_common, check_enterprise, check_place
from xds.codec.findings import Findings, short_repr
from xds.filter.expression import FilterSyntaxError
from xds.filter.filter import compile_filter

SUBSET_NAME_LIMIT = 63
_SUBSET_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_POLICY_MODES = ("", "sequential", "default", "order-by-locality")
_LOCALITY_MODES = ("", "none", "failover")
_FILTERS_REMEMBERED = 8_192

Pair = tuple[str, str]


def check_resolver(entry: ServiceResolver, findings: Findings) -> None:
    """Check every rule that concerns the entry alone."""
    check_common(entry.name, entry.meta, entry.namespace, entry.partition, findings)
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
            told = f"Subset {short_repr(name)} is invalid"
            hint = f"{SUBSET_NAME_LIMIT} small letters, digits and dashes at most, no dash at either end"
            findings.add("bad_subset", told, path, hint=hint)
        error = _filter_error(subset.filter)
        if error is not None:
            told = (
                f"Filter for subset {short_repr(name)} is not a valid expression: column {error.column}: {error.detail}"
            )
            findings.add("bad_filter", told, (*path, "Filter"), hint=error.hint)
    if entry.default_subset and entry.default_subset not in entry.subsets:
        told = f"DefaultSubset {short_repr(entry.default_subset)} is not a valid subset"
        findings.add("unknown_subset", told, ("DefaultSubset",), hint=_known(entry))


@lru_cache(maxsize=_FILTERS_REMEMBERED)
def _filter_error(text: str) -> FilterSyntaxError | None:
    """The syntax error of a filter; cached, because many services have equal filters."""
    try:
        compile_filter(text)
    except FilterSyntaxError as error:
        return error
    return None


def _known(entry: ServiceResolver) -> str:
    names = sorted(entry.subsets)
    return f"there are {', '.join(names[:10])}" if names else "the entry has no Subsets"


def _check_own_subset(entry: ServiceResolver, service: str, subset: str, findings: Findings, path: Path) -> None:
    """Check that a subset of the entry's own service exists. Subsets of others are checked when chains are compiled."""
    if subset and service in ("", entry.name) and subset not in entry.subsets:
        told = f"ServiceSubset {short_repr(subset)} is not a valid subset of {short_repr(entry.name)}"
        findings.add("unknown_subset", told, (*path, "ServiceSubset"), hint=_known(entry))


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
    values: dict[str, object] = {
        "Service": redirect.service,
        "ServiceSubset": redirect.service_subset,
        "Namespace": redirect.namespace,
        "Partition": redirect.partition,
        "Datacenter": redirect.datacenter,
        "Peer": redirect.peer,
        "SamenessGroup": redirect.sameness_group,
    }
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
    check_place(redirect.namespace, redirect.partition, findings, path)
    _check_sameness(redirect.sameness_group, findings, path)


def _check_sameness(group: str, findings: Findings, path: Path) -> None:
    check_enterprise("SamenessGroup", bool(group), findings, (*path, "SamenessGroup"))


# Failover

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
    values: dict[str, object] = {
        "Service": failover.service,
        "ServiceSubset": failover.service_subset,
        "Namespace": failover.namespace,
        "Targets": failover.targets,
        "SamenessGroup": failover.sameness_group,
        "Datacenters": failover.datacenters,
    }
    if subset != WILDCARD and subset not in entry.subsets:
        told = f"Failover[{short_repr(subset)}]: not a valid subset"
        findings.add("unknown_subset", told, path, hint=f"{_known(entry)}; {WILDCARD} means any subset")
    if not any(values.values()):
        told = f"Failover[{short_repr(subset)}]: one of {', '.join(values)} is required"
        findings.add("empty_failover", told, path)
    _check_own_subset(entry, failover.service, failover.service_subset, findings, path)
    _check_pairs(values, _FAILOVER_PAIRS, findings, path)
    for index, target in enumerate(failover.targets):
        _check_target(entry, target, findings, (*path, "Targets", index))
    for index, datacenter in enumerate(failover.datacenters):
        if not datacenter:
            told = f"Failover[{short_repr(subset)}].Datacenters: found empty datacenter"
            findings.add("empty_datacenter", told, (*path, "Datacenters", index))
    if failover.policy is not None:
        check_policy_mode(failover.policy.mode, failover.policy.regions, findings, (*path, "Policy"))
    check_place(failover.namespace, "", findings, path)
    _check_sameness(failover.sameness_group, findings, path)


def _check_target(entry: ServiceResolver, target: FailoverTarget, findings: Findings, path: Path) -> None:
    values: dict[str, object] = {
        "ServiceSubset": target.service_subset,
        "Partition": target.partition,
        "Datacenter": target.datacenter,
        "Peer": target.peer,
    }
    _check_pairs(values, _TARGET_PAIRS, findings, path)
    _check_own_subset(entry, target.service, target.service_subset, findings, path)
    check_place(target.namespace, target.partition, findings, path)
