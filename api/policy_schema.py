"""The JSON schema of a policy of traffic assignment, for the served description."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from xds.assignment.policy import DrainLimits, Policy, Strategy
from xds.assignment.policy_document import NAME_LIMIT, RATE_LIMIT_RPS, TIME_LIMIT_S

Json = dict[str, Any]


def _object(required: tuple[str, ...] = (), **properties: Json) -> Json:
    found: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": list(required)} if required else found


def _number(least: float, most: float, default: object) -> Json:
    return {"type": "number", "minimum": least, "maximum": most, "default": default}


_DEFAULTS = {field.name: field.default for field in fields(Policy)}


_NAME: Json = {"type": "string", "maxLength": NAME_LIMIT}
_LOCALITY: Json = {
    **_object(region=_NAME, zone=_NAME, sub_zone=_NAME),
    "description": "Parts that are left out match any",
}
_LOCALITIES: Json = {"type": "array", "items": _LOCALITY}
_RPS: Json = {"type": "number", "minimum": 0, "maximum": RATE_LIMIT_RPS}
_RATE: Json = {
    "oneOf": [
        _object(("per_endpoint_rps",), per_endpoint_rps=_RPS, localities=_LOCALITY),
        _object(("per_locality_rps",), per_locality_rps=_RPS, localities=_LOCALITY),
    ]
}
_METRIC: Json = _object(
    ("name", "target"),
    name={**_NAME, "minLength": 1},
    target={"type": "number", "exclusiveMinimum": 0, "maximum": RATE_LIMIT_RPS},
)
_RATES: Json = {"type": "array", "items": _RATE}
_CAPACITY: Json = {
    "description": "What a locality can take: the first rate that matches it, or learnt from a metric",
    "anyOf": [
        _object(("rates",), rates={**_RATES, "minItems": 1}, metric=_METRIC),
        _object(("metric",), rates=_RATES, metric=_METRIC),
    ],
}
_ORDER: Json = _object(("targets",), source=_LOCALITY, targets={**_LOCALITIES, "minItems": 1})
_NUMBERS = {
    "minimum_change": (0.0, 0.5),
    "maximum_step": (0.001, 1.0),
    "hysteresis": (0.0, 0.9),
    "interval_s": (1.0, TIME_LIMIT_S),
    "dwell_s": (0.0, TIME_LIMIT_S),
    "stale_after_s": (1.0, TIME_LIMIT_S),
    "fallback_after_s": (1.0, TIME_LIMIT_S),
}

POLICY_SCHEMA: Json = _object(
    ("capacity",),
    cluster={**_NAME, "description": "That of the path"},
    strategy={"enum": [str(one) for one in Strategy], "default": str(Strategy.WATERFALL_BY_ZONE)},
    capacity=_CAPACITY,
    preferred=_LOCALITIES,
    order={"type": "array", "items": _ORDER},
    drain=_object(below=_number(0.0, 1.0, DrainLimits().below), restore=_number(0.0, 1.0, DrainLimits().restore)),
    **{name: _number(*bounds, _DEFAULTS[name]) for name, bounds in _NUMBERS.items()},
)
