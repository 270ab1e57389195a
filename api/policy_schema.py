"""The JSON schema of a policy of traffic assignment, for the served description."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from xds.assignment.policy import DrainLimits, Policy, Reach, SpillLimits, Strategy
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
_METRICS: Json = {"type": "array", "items": _METRIC, "minItems": 1}
_RATES: Json = {"type": "array", "items": _RATE}
_CAPACITY: Json = {
    "description": "What a locality can take: the first rate that matches, or learnt from metrics (the fullest counts)",
    "anyOf": [
        _object(("rates",), rates={**_RATES, "minItems": 1}, metric=_METRIC),
        _object(("metric",), rates=_RATES, metric=_METRIC),
        _object(("metrics",), rates=_RATES, metrics=_METRICS),
    ],
}
_ORDER: Json = _object(("targets",), source=_LOCALITY, targets={**_LOCALITIES, "minItems": 1})
_NUMBERS = {
    "minimum_change": (0.0, 0.5),
    "maximum_step": (0.001, 1.0),
    "hysteresis": (0.0, 0.9),
    "target_utilisation": (0.01, 1.0),
    "interval_s": (1.0, TIME_LIMIT_S),
    "dwell_s": (0.0, TIME_LIMIT_S),
    "stale_after_s": (1.0, TIME_LIMIT_S),
    "fallback_after_s": (1.0, TIME_LIMIT_S),
}

_SPILL = {
    **_object(
        within={"enum": [str(one) for one in Reach], "default": str(Reach.WORLD)},
        at_most=_number(0.0, 1.0, SpillLimits().at_most),
        shed={"type": "boolean", "default": False},
    ),
    "description": "How far and how many of a source's requests leave its zone; the rest stays or is dropped",
}
_SCALER = _object(("factor",), factor={"type": "number", "minimum": 0, "maximum": 1}, localities=_LOCALITY)
_ERRORS: Json = {
    "type": ["number", "null"],
    "minimum": 0.01,
    "maximum": 1.0,
    "default": None,
    "description": "A locality that fails more of a source's requests has no capacity for it for a while",
}

POLICY_SCHEMA: Json = _object(
    ("capacity",),
    cluster={**_NAME, "description": "That of the path"},
    strategy={"enum": [str(one) for one in Strategy], "default": str(Strategy.WATERFALL_BY_ZONE)},
    capacity=_CAPACITY,
    preferred=_LOCALITIES,
    order={"type": "array", "items": _ORDER},
    drain=_object(below=_number(0.0, 1.0, DrainLimits().below), restore=_number(0.0, 1.0, DrainLimits().restore)),
    spill=_SPILL,
    standby={**_LOCALITIES, "description": "They get requests only when all others have no capacity"},
    capacity_scaler={"type": "array", "items": _SCALER},
    errors_above=_ERRORS,
    **{name: _number(*bounds, _DEFAULTS[name]) for name, bounds in _NUMBERS.items()},
)
