"""Ours beside Consul's: what counts as equal, and which differences are meant.

docs/discovery-chain.md has the reasons.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any

from tests.support.random_entries import RandomEntries
from xds.consul.quantities import parse_duration
from xds.mesh.core.chain.chain import ChainError
from xds.mesh.core.chain.chain_json import chain_json
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.request import CompileRequest, Overrides
from xds.mesh.core.entries.entry import entry_json, read_entry
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.model.errors import ValidationError

Json = dict[str, Any]
CHAINS_ASKED = 3

# The one projection: what is done to which fields of both sides before they are compared. ``*`` is any one step.
DROP, PRESENCE, EMPTY_IS_NULL = "drop", "presence", "empty is null"
NANOSECONDS, ABOUT, UNLESS_SHOWN = "nanoseconds", "about", "unless shown"
PROJECTION: Mapping[str, str] = {
    # Entries
    "CreateIndex": DROP,  # the store's, not the entry's
    "ModifyIndex": DROP,
    "Routes": EMPTY_IS_NULL,  # nil slices and maps of Go
    "Config": EMPTY_IS_NULL,
    "Splits": EMPTY_IS_NULL,
    "UpstreamConfig.*.PassiveHealthCheck.Interval": NANOSECONDS,  # an integer before Consul 1.16
    "UpstreamConfig.*.*.PassiveHealthCheck.Interval": NANOSECONDS,
    # Chains
    "CustomizationHash": PRESENCE,  # the digits are opaque
    "AutoVirtualIPs": DROP,  # since 1.15
    "ManualVirtualIPs": DROP,
    "EnvoyExtensions": DROP,
    "Targets.*.ConnectTimeout": UNLESS_SHOWN,  # in Consul 1.10, though not in the document of its time
    # Flattening in another order rounds otherwise, and Consul multiplies numbers of single precision.
    "Nodes.*.Splits.*.Weight": ABOUT,
}
WEIGHT_TOLERANCE = 0.021

# What Consul says of an entry, and the code that ours must have among its findings.
REFUSALS: tuple[tuple[str, str], ...] = (
    (r"doesn't start with '/'", "bad_path"),
    (r"at most one of PathExact", "conflict"),
    (r"missing required Name field|^Name is required|: Name is required", "missing_name"),
    (r"should only contain one of Present", "not_one"),
    (r"Methods contains an invalid method", "bad_method"),
    (r"Methods contains .* more than once", "duplicate_method"),
    (r"cannot make use of PrefixRewrite", "rewrite_without_path"),
    (r"invalid retry condition", "bad_choice"),
    (r"no splits configured", "missing_field"),
    (r"split destination occurs more than once", "duplicate_destination"),
    (r"sum of all split weights", "bad_sum"),
    (r"Subset .* is invalid|Subset defined with empty name", "bad_subset"),
    (r"is not a valid expression", "bad_filter"),
    (r"not a valid subset", "unknown_subset"),
    (r"Redirect and Failover cannot both be set", "conflict"),
    (r"Redirect is empty", "empty_redirect"),
    (r"cannot be set with", "conflict"),
    (r"defined without Redirect\.Service", "missing_service"),
    (r"is required$", "empty_failover"),
    (r"found empty datacenter", "empty_datacenter"),
    (r"must be >= 0", "negative"),
    (r"LoadBalancer policy: .* is not supported", "bad_choice"),
    (r"specified for incompatible load balancing policy|non-hash-based Policy", "incompatible_policy"),
    (r"is not a supported field", "bad_choice"),
    (
        r"cannot hash both|A FieldValue cannot be specified|cookie_config provided|cannot have an associated TTL",
        "conflict",
    ),
    (r"specified without a FieldValue|FieldValue requires a Field", "missing_field"),
    (r"not a wildcard|Wildcard name is not supported|only \"global\" is supported", "bad_name"),
    (r"invalid name \(", "bad_name"),
    (r"cannot be negative", "negative"),
    (r"Duplicate address", "duplicate_address"),
    (r"Invalid Port number", "out_of_range"),
    (r"mutually exclusive", "conflict"),
)
# What we refuse and Consul takes, by the code of the finding: legs with equal destinations and header changes of
# their own; and what Consul 1.10 does not look at (filters) or puts right unasked (the name of proxy-defaults).
STRICTER = {"duplicate_destination"}
STRICTER_THAN_OLD = STRICTER | {"bad_filter", "bad_name"}

# What Consul says of a chain, and our flaw.
FLAWS: tuple[tuple[str, str], ...] = (
    (r"uses inconsistent protocols", "protocol_mismatch"),
    (r"does not permit advanced routing", "protocol_not_http"),
    (r"circular resolver redirect", "circular_redirect"),
    (r"circular reference", "circular_reference"),
    (r"does not have a subset named", "unknown_subset"),
    (r"cannot define redirects", "external_redirect"),
    (r"cannot define subsets", "external_subsets"),
    (r"cannot define failover", "external_failover"),
)
# Consul's own merge of header changes writes into a map that is not there.
CRASH = "assignment to entry in nil map"


def question(seed: int, *, is_old: bool) -> Json:
    """A random set of entries, those of them that we take, and the chains that are asked for."""
    made = RandomEntries(Random(seed), is_old=is_old)
    entries = made.entries()
    use = [index for index, entry in enumerate(entries) if not findings(entry)]
    return {"Entries": entries, "Use": use, "Chains": made.chains(CHAINS_ASKED)}


def findings(entry: Json) -> list[str]:
    """The codes of what is wrong with an entry."""
    try:
        read_entry(entry)
    except ValidationError as error:
        return [one.code for one in error.violations]
    return []


def differences(asked: Json, told: Json, *, is_old: bool) -> Iterator[str]:
    """Every difference that is not meant."""
    for index, (entry, answer) in enumerate(zip(asked["Entries"], told["Entries"], strict=True)):
        for one in _entry_differences(entry, answer, STRICTER_THAN_OLD if is_old else STRICTER):
            yield f"entry {index} {entry}: {one}"
    used = ConfigEntries.of(read_entry(asked["Entries"][index]).entries[0] for index in asked["Use"])
    for chain, answer in zip(asked["Chains"], told["Chains"], strict=True):
        for one in _chain_differences(used, chain, answer, is_old):
            yield f"chain {chain['Service']}: {one}"


def _entry_differences(entry: Json, answer: Json, stricter: set[str]) -> Iterator[str]:
    codes = findings(entry)
    refused = answer.get("Error", "")
    if refused:
        wanted = _meaning(REFUSALS, refused)
        if wanted not in codes:
            yield f"Consul refuses it ({refused}), ours says {codes}"
    elif codes:
        if not set(codes) <= stricter:
            yield f"Consul takes it, ours says {codes}"
    else:
        yield from unequal(entry_json(read_entry(entry).entries[0]), answer["Entry"])


def _meaning(table: tuple[tuple[str, str], ...], told: str) -> str:
    return next((meaning for pattern, meaning in table if re.search(pattern, told)), f"unknown: {told}")


def _chain_differences(entries: ConfigEntries, asked: Json, answer: Json, is_old: bool) -> Iterator[str]:
    if answer.get("Panic") and CRASH in answer["Error"]:
        return
    request = CompileRequest(asked["Service"], entries, asked["Datacenter"], asked["TrustDomain"])
    overrides = Overrides(asked["Protocol"], asked["ConnectTimeout"], asked["MeshGatewayMode"])
    try:
        ours = chain_json(compile_chain(replace(request, overrides=overrides, has_partitions=not is_old)))
    except ChainError as error:
        if _meaning(FLAWS, answer.get("Error", "")) != error.flaw.value or not answer.get("Graph"):
            yield f"ours fails ({error.detail}), Consul says {answer}"
        return
    if "Chain" not in answer:
        yield f"Consul fails ({answer}), ours does not"
        return
    yield from unequal(ours, answer["Chain"])


# Equality under the projection


def unequal(ours: Any, theirs: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Where two JSON values differ."""
    rule = _rule(path)
    if rule == DROP:
        return
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys()):
            yield from unequal(ours.get(key, MISSING), theirs.get(key, MISSING), (*path, key))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from unequal(one, other, (*path, str(index)))
    elif not _is_equal(rule, ours, theirs):
        yield f"{'.'.join(path)}: ours {ours!r}, Consul's {theirs!r}"


MISSING = "<not there>"


def _rule(path: tuple[str, ...]) -> str:
    for pattern, rule in PROJECTION.items():
        steps = pattern.split(".")
        if len(steps) == len(path) and all(step in ("*", at) for step, at in zip(steps, path, strict=True)):
            return rule
    return ""


def _is_equal(rule: str, ours: Any, theirs: Any) -> bool:
    if rule == PRESENCE:
        return (ours is MISSING) == (theirs is MISSING)
    if rule == UNLESS_SHOWN and ours is MISSING:
        return True
    if rule == EMPTY_IS_NULL:
        return not ours and theirs is None
    if rule == NANOSECONDS:
        return ours is not MISSING and isinstance(ours, str) and bool(parse_duration(ours) == theirs)
    if rule == ABOUT:
        weights = [0 if one is MISSING else one for one in (ours, theirs)]
        return bool(abs(weights[0] - weights[1]) < WEIGHT_TOLERANCE)
    return bool(ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool))
