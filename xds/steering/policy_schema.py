"""The JSON schema of a traffic assignment policy (docs/load-assignment.md)."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from xds.steering.core.policy import DrainLimits, Policy, Reach, SpillLimits, Strategy
from xds.steering.core.policy_document import LIMITS, NAME_LIMIT, RATE_LIMIT_RPS

Document = dict[str, Any]

_DEFAULTS = {field.name: field.default for field in fields(Policy)}


def _object(description: str, required: tuple[str, ...] = (), **properties: Document) -> Document:
    schema: Document = {
        "type": "object",
        "description": description,
        "properties": properties,
        "additionalProperties": False,
    }
    return {**schema, "required": list(required)} if required else schema


def _list(description: str, items: Document, **more: object) -> Document:
    return {"type": "array", "description": description, "items": items, **more}


def _name(description: str, **more: object) -> Document:
    return {"type": "string", "maxLength": NAME_LIMIT, "description": description, **more}


def _number(description: str, least: float, most: float, default: object) -> Document:
    return {"type": "number", "minimum": least, "maximum": most, "default": default, "description": description}


def _setting(name: str, description: str) -> Document:
    return _number(description, *LIMITS[name], _DEFAULTS[name])


def _locality(description: str) -> Document:
    return _object(
        f"{description}. A part that is left out matches any value",
        region=_name("The region"),
        zone=_name("The zone"),
        sub_zone=_name("The sub-zone"),
    )


def _rps(description: str) -> Document:
    return {"type": "number", "minimum": 0, "maximum": RATE_LIMIT_RPS, "description": description}


_LOCALITY = _locality("Localities")
_APPLIES = _locality("The localities that it applies to; by default all")
_RATE: Document = {
    "oneOf": [
        _object(
            "A rate for each endpoint",
            ("per_endpoint_rps",),
            per_endpoint_rps=_rps("Requests per second that a healthy endpoint can serve"),
            localities=_APPLIES,
        ),
        _object(
            "A rate for each locality",
            ("per_locality_rps",),
            per_locality_rps=_rps(
                "Requests per second that the locality can serve while all its endpoints are healthy"
            ),
            localities=_APPLIES,
        ),
    ]
}
_METRIC = _object(
    "A metric of load reports by which capacity is learnt",
    ("name", "target"),
    name=_name("Its name in load reports, such as `cpu_utilization`", minLength=1),
    target={
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": RATE_LIMIT_RPS,
        "description": "A locality is full when the average of the metric is this",
    },
)
_RATES = "Rates by locality; the first that matches applies"
_CAPACITY: Document = {
    "description": "Capacity by locality: a rate, or learnt from metrics. Rates apply until metrics are measured",
    "anyOf": [
        _object("By rates", ("rates",), rates=_list(_RATES, _RATE, minItems=1), metric=_METRIC),
        _object("By a metric", ("metric",), rates=_list(_RATES, _RATE), metric=_METRIC),
        _object(
            "By metrics",
            ("metrics",),
            rates=_list(_RATES, _RATE),
            metrics=_list("Several metrics; the fullest counts", _METRIC, minItems=1),
        ),
    ],
}
_ORDER = _object(
    "An order of targets for some sources",
    ("targets",),
    source=_locality("The sources that it is for; by default all"),
    targets=_list("Of equally distant targets, the first is filled first. Others come last", _LOCALITY, minItems=1),
)
_SPILL = _object(
    "How many requests of a source leave its zone, and how far",
    within={
        "enum": [str(one) for one in Reach],
        "default": str(Reach.WORLD),
        "description": "How far: not out of the `zone`, not out of the `region`, or anywhere (`world`)",
    },
    at_most=_number("The largest fraction that leaves the zone", 0.0, 1.0, SpillLimits().at_most),
    shed={
        "type": "boolean",
        "default": False,
        "description": "Drop requests that fit nowhere; otherwise they stay in the zone",
    },
)
_DRAIN = _object(
    "When a locality gets no share because too few of its endpoints are healthy",
    below=_number("It begins when less than this fraction is healthy; 0: never", 0.0, 1.0, DrainLimits().below),
    restore=_number("It ends when this fraction is healthy", 0.0, 1.0, DrainLimits().restore),
)
_SCALER = _object(
    "A factor of capacity",
    ("factor",),
    factor={
        "type": "number",
        "minimum": 0,
        "maximum": 1,
        "description": "The factor; with 0 the localities get no share",
    },
    localities=_APPLIES,
)
_ERRORS: Document = {
    "type": ["number", "null"],
    "minimum": 0.01,
    "maximum": 1.0,
    "default": None,
    "description": "A locality that answers a source with a larger fraction of errors has no capacity for that source "
    "for a while. Null: errors do not count",
}

POLICY_SCHEMA = _object(
    "A traffic assignment policy: how requests to a cluster are divided among localities",
    ("capacity",),
    cluster=_name("The name of the cluster; if it is given, that of the path"),
    strategy={
        "enum": [str(one) for one in Strategy],
        "default": str(Strategy.WATERFALL_BY_ZONE),
        "description": "Where requests go while there is capacity (docs/load-assignment.md)",
    },
    capacity=_CAPACITY,
    preferred=_list("Localities that are filled before all others", _LOCALITY),
    order=_list("Which of equally distant localities are filled first, by source", _ORDER),
    drain=_DRAIN,
    spill=_SPILL,
    standby=_list("Localities that get no share while another one has capacity", _LOCALITY),
    capacity_scaler=_list("Factors of capacity; the first that matches applies", _SCALER),
    errors_above=_ERRORS,
    minimum_change=_setting("minimum_change", "The smallest change of a share"),
    maximum_step=_setting("maximum_step", "The largest change of a share in one interval"),
    hysteresis=_setting("hysteresis", "The range of utilisation in which nothing moves, as a fraction"),
    target_utilisation=_setting("target_utilisation", "The fraction of the capacity given by rates that is used"),
    interval_s=_setting("interval_s", "Seconds between decisions"),
    dwell_s=_setting("dwell_s", "Seconds after a change in which a source is not changed again"),
    stale_after_s=_setting("stale_after_s", "Seconds without reports after which the last decision is held"),
    fallback_after_s=_setting("fallback_after_s", "Seconds without reports after which the pushed weights apply again"),
)
