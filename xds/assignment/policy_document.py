"""Policies as JSON documents: read with all findings at once, written with all defaults.

A document: ``{"cluster", "strategy", "capacity": {"rates": [{"localities"?, "per_endpoint_rps" |
"per_locality_rps"}], "metric"?: {"name", "target"}}, "preferred": [locality], "order": [{"source", "targets"}],
"drain": {"below", "restore"}, "minimum_change", "maximum_step", "hysteresis", "interval_s", "dwell_s",
"stale_after_s", "fallback_after_s"}``. A locality is ``{"region"?, "zone"?, "sub_zone"?}``; a missing part matches any.
Only ``capacity`` is required.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypeVar

from xds.assignment.policy import (
    Capacity,
    DrainLimits,
    LocalityPattern,
    MetricTarget,
    Policy,
    Rate,
    Strategy,
    TargetOrder,
)
from xds.codec.findings import Findings, short_repr
from xds.model.errors import ValidationError

LIST_LIMIT = 1_000
NAME_LIMIT = 256
RATE_LIMIT_RPS = 1e9
TIME_LIMIT_S = 86_400.0

_PARTS = tuple(field.name for field in fields(LocalityPattern))
_DEFAULTS = {field.name: field.default for field in fields(Policy)}
# The numbers of a policy, each with its least and its greatest value.
_SHARES = {"minimum_change": (0.0, 0.5), "maximum_step": (0.001, 1.0), "hysteresis": (0.0, 0.9)}
_TIMES = {
    "interval_s": (1.0, TIME_LIMIT_S),
    "dwell_s": (0.0, TIME_LIMIT_S),
    "stale_after_s": (1.0, TIME_LIMIT_S),
    "fallback_after_s": (1.0, TIME_LIMIT_S),
}
_FIELDS = tuple(field.name for field in fields(Policy))

Path = tuple[str | int, ...]
Item = TypeVar("Item")
Default = TypeVar("Default", float, None)


def read_policy(document: object, cluster: str = "") -> Policy:
    """The policy in a JSON document. A document without a cluster name is for ``cluster``.

    Raises ``ValidationError`` with every finding.
    """
    findings = Findings()
    own = _object(document, (), _FIELDS, findings)
    values: dict[str, Any] = {
        "cluster": _cluster(own, cluster, findings),
        "capacity": _capacity(own, findings),
        "strategy": _strategy(own, findings),
        "preferred": _list(own.get("preferred"), ("preferred",), findings, _pattern),
        "order": _list(own.get("order"), ("order",), findings, _order),
        "drain": _drain(own.get("drain"), findings),
    }
    for name, (least, most) in (_SHARES | _TIMES).items():
        values[name] = _number(own, (name,), least, most, findings, default=_DEFAULTS[name])
    _check_times(values, findings)
    if findings:
        raise ValidationError(findings.violations)
    return Policy(**values)


def policy_document(policy: Policy) -> dict[str, Any]:
    """A policy as JSON, defaults included."""
    written: dict[str, Any] = {name: getattr(policy, name) for name in ("cluster", *_SHARES, *_TIMES)}
    rates = [_rate_document(rate) for rate in policy.capacity.rates]
    capacity: dict[str, Any] = {"rates": rates}
    if policy.capacity.metric:
        capacity["metric"] = asdict(policy.capacity.metric)
    return written | {
        "strategy": str(policy.strategy),
        "capacity": capacity,
        "preferred": [_pattern_document(pattern) for pattern in policy.preferred],
        "order": [
            {"source": _pattern_document(order.source), "targets": [_pattern_document(one) for one in order.targets]}
            for order in policy.order
        ],
        "drain": asdict(policy.drain),
    }


def _cluster(own: Mapping[str, Any], cluster: str, findings: Findings) -> str:
    named = own.get("cluster", cluster)
    if not isinstance(named, str) or not named:
        findings.add("wrong_type", "cluster must be the name of a cluster", ("cluster",))
        return cluster
    if cluster and named != cluster:
        findings.add("conflict", f"the policy of {short_repr(cluster)} names {short_repr(named)}", ("cluster",))
    return named


def _strategy(own: Mapping[str, Any], findings: Findings) -> Strategy:
    named = own.get("strategy", _DEFAULTS["strategy"])
    if isinstance(named, str) and named in set(Strategy):
        return Strategy(named)
    findings.add(
        "invalid_value",
        f"unknown strategy {short_repr(named)}",
        ("strategy",),
        hint=f"the strategies are {', '.join(Strategy)}",
    )
    return Strategy.WATERFALL_BY_ZONE


def _capacity(own: Mapping[str, Any], findings: Findings) -> Capacity:
    if "capacity" not in own:
        findings.add("missing", "a policy needs capacity", ("capacity",), hint='give "rates" or a "metric"')
        return Capacity()
    before = len(findings)
    given = _object(own["capacity"], ("capacity",), ("rates", "metric"), findings)
    rates = _list(given.get("rates"), ("capacity", "rates"), findings, _rate)
    metric = _metric(given.get("metric"), findings)
    if not rates and not metric and len(findings) == before:
        findings.add("missing", "capacity is empty", ("capacity",), hint='give "rates" or a "metric"')
    return Capacity(rates, metric)


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


def _metric(value: object, findings: Findings) -> MetricTarget | None:
    if value is None:
        return None
    path: Path = ("capacity", "metric")
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
    """The known fields of an object; empty for a value that is no object."""
    if not isinstance(value, Mapping):
        findings.add(
            "wrong_type", f"{path[-1] if path else 'a policy'} must be an object, not {short_repr(value)}", path
        )
        return {}
    for name in value:
        if name not in names:
            close = get_close_matches(str(name)[:NAME_LIMIT], names, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"the fields are {', '.join(names)}"
            findings.add(
                "unknown_field", f"unknown field {short_repr(name)}", (*path, str(name)[:NAME_LIMIT]), hint=hint
            )
    return {name: value[name] for name in names if name in value}


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
    """The number in the field that ``path`` ends with; the default where the field is missing or invalid."""
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


def _pattern_document(pattern: LocalityPattern) -> dict[str, str]:
    return {name: part for name, part in asdict(pattern).items() if part}
