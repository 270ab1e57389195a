"""Policies as JSON documents. Reading returns all findings at once; writing includes all defaults.

A document: ``{"cluster", "strategy", "capacity": {"rates": [{"localities"?, "per_endpoint_rps" |
"per_locality_rps"}], "metric"?: {"name", "target"}, "metrics"?: [metric]}, "preferred": [locality],
"order": [{"source", "targets"}], "drain": {"below", "restore"}, "spill": {"within", "at_most", "shed"},
"standby": [locality], "capacity_scaler": [{"localities"?, "factor"}], "target_utilisation", "errors_above",
"minimum_change", "maximum_step", "hysteresis", "interval_s", "dwell_s", "stale_after_s", "fallback_after_s"}``.
A locality is ``{"region"?, "zone"?, "sub_zone"?}``; a missing part matches any.
Only ``capacity`` is required.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypeVar

from xds.codec.findings import Findings, short_repr
from xds.model.errors import ValidationError
from xds.steering.core.policy import (
    Capacity,
    CapacityScaler,
    DrainLimits,
    LocalityPattern,
    MetricTarget,
    Policy,
    Rate,
    Reach,
    SpillLimits,
    Strategy,
    TargetOrder,
)

LIST_LIMIT = 1_000
NAME_LIMIT = 256
RATE_LIMIT_RPS = 1e9
TIME_LIMIT_S = 86_400.0

_PARTS = tuple(field.name for field in fields(LocalityPattern))
_DEFAULTS = {field.name: field.default for field in fields(Policy)}
# The numbers of a policy, each with its least and its greatest value.
LIMITS = {
    "minimum_change": (0.0, 0.5),
    "maximum_step": (0.001, 1.0),
    "hysteresis": (0.0, 0.9),
    "target_utilisation": (0.01, 1.0),
    "interval_s": (1.0, TIME_LIMIT_S),
    "dwell_s": (0.0, TIME_LIMIT_S),
    "stale_after_s": (1.0, TIME_LIMIT_S),
    "fallback_after_s": (1.0, TIME_LIMIT_S),
}
_FIELDS = tuple(field.name for field in fields(Policy))

Path = tuple[str | int, ...]
Item = TypeVar("Item")
Default = TypeVar("Default", float, None)


def parse_policy(document: object, cluster: str = "") -> Policy:
    """The policy in a JSON document. A document without a cluster name is for ``cluster``.

    Raises ``ValidationError`` with every finding.
    """
    findings = Findings()
    given = _object(document, (), _FIELDS, findings)
    values: dict[str, Any] = {
        "cluster": _cluster(given, cluster, findings),
        "capacity": _capacity(given, findings),
        "strategy": _strategy(given, findings),
        "preferred": _list(given.get("preferred"), ("preferred",), findings, _pattern),
        "order": _list(given.get("order"), ("order",), findings, _order),
        "drain": _drain(given.get("drain"), findings),
        "spill": _spill(given.get("spill"), findings),
        "standby": _list(given.get("standby"), ("standby",), findings, _pattern),
        "capacity_scaler": _list(given.get("capacity_scaler"), ("capacity_scaler",), findings, _scaler),
        "errors_above": _errors_above(given, findings),
    }
    for name, (least, most) in LIMITS.items():
        values[name] = _number(given, (name,), least, most, findings, default=_DEFAULTS[name])
    _check_times(values, findings)
    if findings:
        raise ValidationError(findings.violations)
    return Policy(**values)


def policy_document(policy: Policy) -> dict[str, Any]:
    """A policy as JSON, defaults included."""
    written: dict[str, Any] = {name: getattr(policy, name) for name in ("cluster", *LIMITS)}
    rates = [_rate_document(rate) for rate in policy.capacity.rates]
    capacity: dict[str, Any] = {"rates": rates}
    if len(policy.capacity.metrics) == 1:
        capacity["metric"] = asdict(policy.capacity.metrics[0])
    elif policy.capacity.metrics:
        capacity["metrics"] = [asdict(metric) for metric in policy.capacity.metrics]
    written["errors_above"] = policy.errors_above
    return written | {
        "strategy": str(policy.strategy),
        "capacity": capacity,
        "preferred": [_pattern_document(pattern) for pattern in policy.preferred],
        "order": [
            {"source": _pattern_document(order.source), "targets": [_pattern_document(one) for one in order.targets]}
            for order in policy.order
        ],
        "drain": asdict(policy.drain),
        "spill": {**asdict(policy.spill), "within": str(policy.spill.within)},
        "standby": [_pattern_document(pattern) for pattern in policy.standby],
        "capacity_scaler": [_scaler_document(scaler) for scaler in policy.capacity_scaler],
    }


def _cluster(given: Mapping[str, Any], cluster: str, findings: Findings) -> str:
    named = given.get("cluster", cluster)
    if not isinstance(named, str) or not named:
        findings.add("wrong_type", "cluster must be the name of a cluster", ("cluster",))
        return cluster
    if cluster and named != cluster:
        findings.add("conflict", f"the policy of {short_repr(cluster)} names {short_repr(named)}", ("cluster",))
    return named


def _strategy(given: Mapping[str, Any], findings: Findings) -> Strategy:
    named = given.get("strategy", _DEFAULTS["strategy"])
    if isinstance(named, str) and named in set(Strategy):
        return Strategy(named)
    findings.add(
        "invalid_value",
        f"unknown strategy {short_repr(named)}",
        ("strategy",),
        hint=_strategy_hint(named),
    )
    return Strategy.WATERFALL_BY_ZONE


def _strategy_hint(named: object) -> str:
    if isinstance(named, str) and named.lower() in set(Strategy):
        return f'write "{named.lower()}"'
    return f"the strategies are {', '.join(Strategy)}"


def _capacity(policy_fields: Mapping[str, Any], findings: Findings) -> Capacity:
    if "capacity" not in policy_fields:
        findings.add("missing", "a policy needs capacity", ("capacity",), hint='give "rates" or a "metric"')
        return Capacity()
    before = len(findings)
    given = _object(policy_fields["capacity"], ("capacity",), ("rates", "metric", "metrics"), findings)
    rates = _list(given.get("rates"), ("capacity", "rates"), findings, _rate)
    if given.get("metric") is not None and given.get("metrics") is not None:
        findings.add("conflict", "give one metric, or a list of metrics", ("capacity", "metrics"))
    one = _metric(given["metric"], ("capacity", "metric"), findings) if given.get("metric") is not None else None
    several = _list(given.get("metrics"), ("capacity", "metrics"), findings, _metric)
    metrics = tuple(metric for metric in (one, *several) if metric is not None)
    if not rates and not metrics and len(findings) == before:
        findings.add("missing", "capacity is empty", ("capacity",), hint='give "rates" or a "metric"')
    return Capacity(rates, metrics)


def _rate(value: object, path: Path, findings: Findings) -> Rate:
    names = ("per_endpoint_rps", "per_locality_rps")
    given = _object(value, path, (*names, "localities"), findings)
    if isinstance(value, Mapping) and sum(name in given for name in names) != 1:
        findings.add("invalid_value", f"give exactly one of {' and '.join(names)}", path)
    amounts = {
        name: _number(given, (*path, name), 0.0, RATE_LIMIT_RPS, findings, default=None)
        for name in names
        if name in given
    }
    where = (
        _pattern(given["localities"], (*path, "localities"), findings) if "localities" in given else LocalityPattern()
    )
    return Rate(**amounts, localities=where)


def _metric(value: object, path: Path, findings: Findings) -> MetricTarget | None:
    given = _object(value, path, ("name", "target"), findings)
    name = given.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LIMIT:
        findings.add(
            "wrong_type", f"name must be the name of a metric, at most {NAME_LIMIT} characters", (*path, "name")
        )
    target = _number(given, (*path, "target"), 1e-9, RATE_LIMIT_RPS, findings, default=None)
    if "target" not in given:
        findings.add("missing", "a metric needs the value at which a locality is full", (*path, "target"))
    return MetricTarget(name, target) if isinstance(name, str) and target is not None else None


def _drain(value: object, findings: Findings) -> DrainLimits:
    if value is None:
        return DrainLimits()
    given = _object(value, ("drain",), ("below", "restore"), findings)
    below = _number(given, ("drain", "below"), 0.0, 1.0, findings, default=DrainLimits().below)
    restore = _number(given, ("drain", "restore"), 0.0, 1.0, findings, default=max(below, DrainLimits().restore))
    if restore < below:
        findings.add("out_of_range", f"restore ({restore:g}) is less than below ({below:g})", ("drain", "restore"))
    return DrainLimits(below, restore)


def _spill(value: object, findings: Findings) -> SpillLimits:
    if value is None:
        return SpillLimits()
    given = _object(value, ("spill",), ("within", "at_most", "shed"), findings)
    within, shed = given.get("within", Reach.WORLD), given.get("shed", False)
    if not isinstance(within, str) or within not in set(Reach):
        hint = f"requests may spill within the {', '.join(Reach)}"
        findings.add("invalid_value", f"unknown reach {short_repr(within)}", ("spill", "within"), hint=hint)
        within = Reach.WORLD
    if not isinstance(shed, bool):
        findings.add("wrong_type", f"shed must be true or false, not {short_repr(shed)}", ("spill", "shed"))
        shed = False
    at_most = _number(given, ("spill", "at_most"), 0.0, 1.0, findings, default=1.0)
    return SpillLimits(Reach(within), at_most, shed)


def _scaler(value: object, path: Path, findings: Findings) -> CapacityScaler:
    given = _object(value, path, ("localities", "factor"), findings)
    if isinstance(value, Mapping) and "factor" not in given:
        findings.add("missing", "a capacity scaler needs a factor between 0 and 1", (*path, "factor"))
    where = _pattern(given["localities"], (*path, "localities"), findings) if "localities" in given else None
    factor = _number(given, (*path, "factor"), 0.0, 1.0, findings, default=1.0)
    return CapacityScaler(factor, where or LocalityPattern())


def _errors_above(given: Mapping[str, Any], findings: Findings) -> float | None:
    if given.get("errors_above") is None:
        return None
    return _number(given, ("errors_above",), 0.01, 1.0, findings, default=None)


def _order(value: object, path: Path, findings: Findings) -> TargetOrder:
    given = _object(value, path, ("source", "targets"), findings)
    source = _pattern(given["source"], (*path, "source"), findings) if "source" in given else LocalityPattern()
    targets = _list(given.get("targets"), (*path, "targets"), findings, _pattern)
    if isinstance(value, Mapping) and not given.get("targets"):
        findings.add("missing", "an order needs targets: the localities that come first", (*path, "targets"))
    return TargetOrder(source, targets)


def _pattern(value: object, path: Path, findings: Findings) -> LocalityPattern:
    given = _object(value, path, _PARTS, findings)
    for name, part in given.items():
        if not isinstance(part, str) or len(part) > NAME_LIMIT:
            findings.add("wrong_type", f"{name} must be a string of at most {NAME_LIMIT} characters", (*path, name))
    return LocalityPattern(**{name: part for name, part in given.items() if isinstance(part, str)})


def _check_times(values: Mapping[str, Any], findings: Findings) -> None:
    if values["fallback_after_s"] < values["stale_after_s"]:
        findings.add("out_of_range", "fallback_after_s is less than stale_after_s", ("fallback_after_s",))
    if values["stale_after_s"] < values["interval_s"]:
        findings.add("out_of_range", "stale_after_s is less than interval_s", ("stale_after_s",))


def _object(value: object, path: Path, names: tuple[str, ...], findings: Findings) -> dict[str, Any]:
    """The known fields of an object; empty for a value that is not an object."""
    if not isinstance(value, Mapping):
        findings.add(
            "wrong_type", f"{path[-1] if path else 'a policy'} must be an object, not {short_repr(value)}", path
        )
        return {}
    for name in value:
        if name not in names:
            hint = _name_hint(str(name)[:NAME_LIMIT], names)
            findings.add(
                "unknown_field", f"unknown field {short_repr(name)}", (*path, str(name)[:NAME_LIMIT]), hint=hint
            )
    return {name: value[name] for name in names if name in value}


def _name_hint(name: str, names: tuple[str, ...]) -> str:
    equivalent = _equivalent_hint(name)
    if equivalent:
        return equivalent
    close = get_close_matches(name, names, n=1)
    return f'did you mean "{close[0]}"?' if close else f"the fields are {', '.join(names)}"


def _list(
    value: object, path: Path, findings: Findings, read: Callable[[object, Path, Findings], Item]
) -> tuple[Item, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > LIST_LIMIT:
        findings.add("wrong_type", f"{path[-1]} must be a list of at most {LIST_LIMIT} items", path)
        return ()
    return tuple(read(item, (*path, index), findings) for index, item in enumerate(value))


def _number(
    given: Mapping[str, Any], path: Path, least: float, most: float, findings: Findings, *, default: Default
) -> float | Default:
    """The number in the last field of ``path``; the default if the field is missing or invalid."""
    name = str(path[-1])
    if name not in given:
        return default
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        findings.add("wrong_type", f"{name} must be a number, not {short_repr(value)}", path)
    elif not (least <= value <= most and isfinite(value)):
        findings.add("out_of_range", f"{name} must be between {least:g} and {most:g}", path)
    else:
        return float(value)
    return default


def _rate_document(rate: Rate) -> dict[str, Any]:
    amounts = {"per_endpoint_rps": rate.per_endpoint_rps, "per_locality_rps": rate.per_locality_rps}
    written: dict[str, Any] = {name: amount for name, amount in amounts.items() if amount is not None}
    if rate.localities != LocalityPattern():
        written["localities"] = _pattern_document(rate.localities)
    return written


def _scaler_document(scaler: CapacityScaler) -> dict[str, Any]:
    written: dict[str, Any] = {"factor": scaler.factor}
    if scaler.localities != LocalityPattern():
        written["localities"] = _pattern_document(scaler.localities)
    return written


def _pattern_document(pattern: LocalityPattern) -> dict[str, str]:
    return {name: part for name, part in asdict(pattern).items() if part}


# Field names of Cloud Service Mesh and Cloud Load Balancing with their equivalents here, as hints in errors.
_EQUIVALENTS = {
    "loadBalancingAlgorithm": 'here it is "strategy", in lower case: waterfall_by_region',
    "autoCapacityDrain": 'here it is "drain", on by default; "below": 0 turns it off',
    "failoverConfig": 'here it is "drain": {"below", "restore"}, fractions of healthy endpoints',
    "failoverHealthThreshold": 'here it is "drain": {"below"}, a fraction of healthy endpoints, not a percentage',
    "isolationConfig": 'here it is "spill": {"within": "region"}',
    "isolationGranularity": 'here it is "spill": {"within": "zone" or "region"}',
    "isolationMode": 'here it is "spill": {"within", "at_most"}',
    "capacityScaler": 'here it is "capacity_scaler": [{"localities", "factor"}]',
    "maxRatePerEndpoint": 'here it is "capacity": {"rates": [{"per_endpoint_rps"}]}',
    "maxRatePerInstance": 'here it is "capacity": {"rates": [{"per_endpoint_rps"}]}',
    "maxRate": 'here it is "capacity": {"rates": [{"per_locality_rps"}]}',
    "maxUtilization": 'here it is "target_utilisation", or the "target" of a metric',
    "customMetrics": 'here it is "capacity": {"metrics": [{"name", "target"}]}',
    "balancingMode": 'here "capacity" has "rates" (RATE), or "metrics" (UTILIZATION, CUSTOM_METRICS)',
    "preference": 'here it is "preferred": [{"region", "zone"}]',
}
_EQUIVALENTS_FOLDED = {name.lower(): hint for name, hint in _EQUIVALENTS.items()}


def _equivalent_hint(name: str) -> str:
    """The equivalent of a foreign field as a hint; empty for an unknown name. Ignores case and underscores."""
    return _EQUIVALENTS_FOLDED.get(name.replace("_", "").replace("-", "").lower(), "")
