"""Rules for the load balancer of a service-resolver (VS21, VS22)."""

from __future__ import annotations

from xds.catalog.resolver import HashPolicy, LoadBalancer
from xds.catalog.shape import Path
from xds.catalog.shared_rules import check_choice
from xds.codec.findings import Findings, short_repr

POLICIES = ("", "random", "round_robin", "least_request", "ring_hash", "maglev")
HASH_FIELDS = ("", "header", "cookie", "query_parameter")
_PATH: Path = ("LoadBalancer",)


def check_balancer(balancer: LoadBalancer, findings: Findings) -> None:
    """Check the policy, and that only its own settings are given."""
    check_choice(balancer.policy, POLICIES, "load balancing policy", findings, (*_PATH, "Policy"))
    _check_config(balancer, "RingHashConfig", balancer.ring_hash_config, "ring_hash", findings)
    _check_config(balancer, "LeastRequestConfig", balancer.least_request_config, "least_request", findings)
    if balancer.hash_policies and not balancer.is_hash_based:
        told = f"HashPolicies specified for non-hash-based Policy: {short_repr(balancer.policy)}"
        findings.add("incompatible_policy", told, (*_PATH, "HashPolicies"), hint="ring_hash and maglev have them")
    for index, policy in enumerate(balancer.hash_policies):
        _check_hash_policy(policy, index, findings)


def _check_config(balancer: LoadBalancer, field: str, config: object, policy: str, findings: Findings) -> None:
    if config is not None and balancer.policy != policy:
        told = f"{field} specified for incompatible load balancing policy {short_repr(balancer.policy)}"
        findings.add("incompatible_policy", told, (*_PATH, field), hint=f"it goes with {policy}")


def _check_hash_policy(policy: HashPolicy, index: int, findings: Findings) -> None:
    path = (*_PATH, "HashPolicies", index)
    label = f"HashPolicy[{index}]"
    check_choice(policy.field, HASH_FIELDS, "field to hash", findings, (*path, "Field"))
    if policy.source_ip and policy.field:
        told = f"{label}: a single hash policy cannot hash both a source address and a {short_repr(policy.field)}"
        findings.add("conflict", told, (*path, "SourceIP"))
    if policy.source_ip and policy.field_value:
        told = f"{label}: a FieldValue cannot be specified when hashing SourceIP"
        findings.add("conflict", told, (*path, "FieldValue"))
    if policy.field and not policy.field_value:
        told = f"{label}: Field {short_repr(policy.field)} was specified without a FieldValue"
        findings.add("missing_field", told, (*path, "FieldValue"))
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
