"""Assignments as JSON documents for the store."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import Any

from xds.model.errors import ValidationError, Violation
from xds.model.node import Locality
from xds.steering.core.assignment import (
    UNKNOWN_VARIATION,
    Allotment,
    Assignment,
    AssignmentMemory,
    Departure,
    HealthLapse,
    PathMemory,
    SourceAssignment,
    SourceMemory,
    Standing,
)
from xds.steering.core.trend import TREND_FIGURES


def assignment_document(assignment: Assignment) -> dict[str, Any]:
    """An assignment with its memory as JSON."""
    memory = assignment.memory
    return {
        "sources": [
            {
                "source": asdict(locality),
                "standing": str(source.standing),
                "changed_at": source.changed_at,
                "shed": source.shed,
                "allotments": [{**one._asdict(), "locality": asdict(one.locality)} for one in source.allotments],
            }
            for locality, source in assignment.sources.items()
        ],
        "memory": {
            "observed_at": memory.observed_at,
            "sources": [{"source": asdict(source), **asdict(one)} for source, one in memory.sources.items()],
            "endpoint_rps": [{"target": asdict(target), "rps": rps} for target, rps in memory.endpoint_rps.items()],
            "lapses": [{"target": asdict(target), **asdict(lapse)} for target, lapse in memory.lapses.items()],
            "paths": [
                {"source": asdict(source), "target": asdict(target), **asdict(path)}
                for (source, target), path in memory.paths.items()
            ],
        },
    }


def read_assignment(document: Any) -> Assignment:
    """The assignment in a JSON document. Raises ``ValidationError`` for any other document."""
    try:
        sources = {_locality(item["source"]): _source(item) for item in document["sources"]}
        return Assignment(sources, _memory(document["memory"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        detail = f"not a stored assignment: {type(error).__name__}: {error!s:.80}"
        raise ValidationError([Violation("malformed", detail)]) from error


def _source(item: Any) -> SourceAssignment:
    allotments = tuple(
        Allotment(_locality(one["locality"]), _weight(one["priority"], 0), _weight(one["weight"], 1))
        for one in item["allotments"]
    )
    shed = _finite(item.get("shed", 0.0))  # earlier releases wrote none
    return SourceAssignment(allotments, Standing(item["standing"]), _finite(item["changed_at"]), min(shed, 1.0))


def _memory(item: Any) -> AssignmentMemory:
    sources = {
        _locality(one["source"]): SourceMemory(
            _finite(one["demand_rps"]),
            _finite(one["heard_at"]),
            _finite(one.get("measured_rps", 0.0)),
            _finite(one.get("variation", UNKNOWN_VARIATION)),
            tuple(_finite(rps) for rps in one.get("recent_rps", ())[-TREND_FIGURES:]),
        )
        for one in item["sources"]
    }
    learnt = {_locality(one["target"]): _finite(one["rps"]) for one in item["endpoint_rps"]}
    lapses = {_locality(one["target"]): _lapse(one) for one in item["lapses"]}
    paths = {(_locality(one["source"]), _locality(one["target"])): _path(one) for one in item.get("paths", ())}
    return AssignmentMemory(_finite(item["observed_at"]), sources, learnt, lapses, paths)


def _lapse(item: Any) -> HealthLapse:
    return HealthLapse(
        _finite(item["ill_at"]), _weight(item["times"], 1), bool(item["is_drained"]), bool(item["is_well"])
    )


def _path(item: Any) -> PathMemory:
    departure = Departure(item["departure"]) if item["departure"] is not None else None
    return PathMemory(
        share=_finite(item["share"]),
        since=_finite(item["since"]),
        is_seen=bool(item["is_seen"]),
        misses=_weight(item["misses"], 0),
        judged_at=_finite(item["judged_at"]),
        departure=departure,
        left_at=_finite(item["left_at"]),
        times=_weight(item["times"], 0),
        probed_at=_finite(item["probed_at"]),
        expected=_finite(item["expected"]),
        counted=_finite(item["counted"]),
        failed=_finite(item["failed"]),
        risen_from=_finite(item.get("risen_from", 0.0)),  # earlier releases wrote none
    )


def _locality(item: Any) -> Locality:
    parts = {name: item[name] for name in ("region", "zone", "sub_zone")}
    if not all(isinstance(part, str) for part in parts.values()):
        raise TypeError("the parts of a locality must be strings")
    return Locality(**parts)


def _weight(value: Any, least: int) -> int:
    if not isinstance(value, int) or not least <= value < 2**32:
        raise ValueError(f"{value!r:.20} is not a weight or priority")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isfinite(value) or value < 0:
        raise ValueError(f"{value!r:.20} is not a figure")
    return float(value)
