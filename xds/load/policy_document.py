"""Policies as JSON documents: read with all findings at once, written out whole.

``{"cluster", "strategy", "capacity": {"rates": [{"localities"?, "per_endpoint_rps" | "per_locality_rps"}],
"metric"?: {"name", "target"}}, "preferred": [locality], "order": [{"source", "targets"}], "drain": {"below",
"restore"}, "minimum_change", "maximum_step", "hysteresis", "interval_s", "dwell_s", "stale_after_s",
"fallback_after_s"}``. A locality is ``{"region"?, "zone"?, "sub_zone"?}``; parts left out match any. Only ``capacity``
must be there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from difflib import get_close_matches
from math import isfinite
from typing import Any, TypeVar

from xds.codec.findings import Findings, short_repr
from xds.load.policy import Capacity, Drain, LocalityPattern, MetricTarget, Order, Policy, Rate, Strategy
from xds.model.errors import ValidationError

LIST_LIMIT = 1_000
NAME_LIMIT = 256
RATE_LIMIT_RPS = 1e9
TIME_LIMIT_S = 86_400.0

_PARTS = tuple(field.name for field in fields(LocalityPattern))
_DEFAULTS = {field.name: field.default for field in fields(Policy)}
# What is a number in a policy, and its least and greatest value.
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
    """A policy from its JSON; ``cluster`` where the document need not name it. Raises ``ValidationError``."""
    found = Findings()
    own = _object(document, (), _FIELDS, found)
    values: dict[str, Any] = {
        "cluster": _cluster(own, cluster, found),
        "capacity": _capacity(own, found),
        "strategy": _strategy(own, found),
        "preferred": _list(own.get("preferred"), ("preferred",), found, _pattern),
        "order": _list(own.get("order"), ("order",), found, _order),
        "drain": _drain(own.get("drain"), found),
    }
    for name, (least, most) in (_SHARES | _TIMES).items():
        values[name] = _number(own, (name,), least, most, found, default=_DEFAULTS[name])
    _check_times(values, found)
    if found:
        raise ValidationError(found.violations)
    return Policy(**values)


def policy_document(policy: Policy) -> dict[str, Any]:
    """The JSON of a policy, defaults written out."""
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


def _cluster(own: Mapping[str, Any], cluster: str, found: Findings) -> str:
    named = own.get("cluster", cluster)
    if not isinstance(named, str) or not named:
        found.add("wrong_type", "cluster must be the name of a cluster", ("cluster",))
        return cluster
    if cluster and named != cluster:
        found.add("conflict", f"the policy of {short_repr(cluster)} names {short_repr(named)}", ("cluster",))
    return named


def _strategy(own: Mapping[str, Any], found: Findings) -> Strategy:
    named = own.get("strategy", _DEFAULTS["strategy"])
    if isinstance(named, str) and named in set(Strategy):
        return Strategy(named)
    found.add(
        "invalid_value", f"{short_repr(named)} is no strategy", ("strategy",), hint=f"there are: {', '.join(Strategy)}"
    )
    return Strategy.WATERFALL_BY_ZONE


def _capacity(own: Mapping[str, Any], found: Findings) -> Capacity:
    if "capacity" not in own:
        found.add(
            "missing", "a policy needs the capacity of localities", ("capacity",), hint='give "rates" or a "metric"'
        )
        return Capacity()
    before = len(found)
    given = _object(own["capacity"], ("capacity",), ("rates", "metric"), found)
    rates = _list(given.get("rates"), ("capacity", "rates"), found, _rate)
    metric = _metric(given.get("metric"), found)
    if not rates and not metric and len(found) == before:
        found.add("missing", "capacity is empty", ("capacity",), hint='give "rates" or a "metric"')
    return Capacity(rates, metric)


def _rate(value: object, path: Path, found: Findings) -> Rate:
    names = ("per_endpoint_rps", "per_locality_rps")
    given = _object(value, path, (*names, "localities"), found)
    if isinstance(value, Mapping) and sum(name in given for name in names) != 1:
        found.add("invalid_value", f"give one of {' and '.join(names)}", path)
    amounts = {
        name: _number(given, (*path, name), 0.0, RATE_LIMIT_RPS, found, default=None) for name in names if name in given
    }
    where = _pattern(given["localities"], (*path, "localities"), found) if "localities" in given else LocalityPattern()
    return Rate(**amounts, localities=where)


def _metric(value: object, found: Findings) -> MetricTarget | None:
    if value is None:
        return None
    path: Path = ("capacity", "metric")
    given = _object(value, path, ("name", "target"), found)
    name = given.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= NAME_LIMIT:
        found.add("wrong_type", f"name must be that of a metric, at most {NAME_LIMIT} characters", (*path, "name"))
    target = _number(given, (*path, "target"), 1e-9, RATE_LIMIT_RPS, found, default=None)
    if "target" not in given:
        found.add("missing", "a metric needs the value at which a locality is full", (*path, "target"))
    return MetricTarget(name, target) if isinstance(name, str) and target is not None else None


def _drain(value: object, found: Findings) -> Drain:
    if value is None:
        return Drain()
    given = _object(value, ("drain",), ("below", "restore"), found)
    below = _number(given, ("drain", "below"), 0.0, 1.0, found, default=Drain().below)
    restore = _number(given, ("drain", "restore"), 0.0, 1.0, found, default=max(below, Drain().restore))
    if restore < below:
        found.add("out_of_range", f"restore ({restore:g}) is less than below ({below:g})", ("drain", "restore"))
    return Drain(below, restore)


def _order(value: object, path: Path, found: Findings) -> Order:
    given = _object(value, path, ("source", "targets"), found)
    source = _pattern(given["source"], (*path, "source"), found) if "source" in given else LocalityPattern()
    targets = _list(given.get("targets"), (*path, "targets"), found, _pattern)
    if isinstance(value, Mapping) and not given.get("targets"):
        found.add("missing", "an order needs the localities that come first", (*path, "targets"))
    return Order(source, targets)


def _pattern(value: object, path: Path, found: Findings) -> LocalityPattern:
    given = _object(value, path, _PARTS, found)
    for name, part in given.items():
        if not isinstance(part, str) or len(part) > NAME_LIMIT:
            found.add("wrong_type", f"{name} must be a text of at most {NAME_LIMIT} characters", (*path, name))
    return LocalityPattern(**{name: part for name, part in given.items() if isinstance(part, str)})


def _check_times(values: Mapping[str, Any], found: Findings) -> None:
    if values["fallback_after_s"] < values["stale_after_s"]:
        found.add("out_of_range", "fallback_after_s is less than stale_after_s", ("fallback_after_s",))
    if values["stale_after_s"] < values["interval_s"]:
        found.add("out_of_range", "stale_after_s is less than interval_s", ("stale_after_s",))


def _object(value: object, path: Path, names: tuple[str, ...], found: Findings) -> dict[str, Any]:
    """The known fields of an object; nothing where it is none."""
    if not isinstance(value, Mapping):
        found.add("wrong_type", f"{path[-1] if path else 'a policy'} must be an object, not {short_repr(value)}", path)
        return {}
    for name in value:
        if name not in names:
            close = get_close_matches(str(name)[:NAME_LIMIT], names, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"there are: {', '.join(names)}"
            found.add("unknown_field", f"unknown field {short_repr(name)}", (*path, str(name)[:NAME_LIMIT]), hint=hint)
    return {name: value[name] for name in names if name in value}


def _list(
    value: object, path: Path, found: Findings, read: Callable[[object, Path, Findings], Item]
) -> tuple[Item, ...]:
    if value is None:
        return ()
    if not isinstance(value, list | tuple) or len(value) > LIST_LIMIT:
        found.add("wrong_type", f"{path[-1]} must be a list of at most {LIST_LIMIT}", path)
        return ()
    return tuple(read(item, (*path, index), found) for index, item in enumerate(value))


def _number(
    given: Mapping[str, Any], path: Path, least: float, most: float, found: Findings, *, default: Default
) -> float | Default:
    """The number under the last name of ``path``; the default where there is none or it is wrong."""
    name = str(path[-1])
    if name not in given:
        return default
    value = given[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        found.add("wrong_type", f"{name} must be a number, not {short_repr(value)}", path)
    elif not (least <= value <= most and isfinite(value)):
        found.add("out_of_range", f"{name} must be between {least:g} and {most:g}", path)
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
