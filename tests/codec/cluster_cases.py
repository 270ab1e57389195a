"""Clusters with sizes, ranges, keys and payloads that Envoy refuses, and their like that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.codec.case_forms import Case, Json, cluster_case

_CHECK: Json = {"timeout": "1s", "interval": "1s", "unhealthy_threshold": 1, "healthy_threshold": 1}


def _ring(code: str, pointer: str, policy: str = "RING_HASH", **sizes: int) -> Case:
    return cluster_case(code, f"/ring_hash_lb_config/{pointer}", lb_policy=policy, ring_hash_lb_config=sizes)


def _maglev(code: str, size: int, policy: str = "MAGLEV") -> Case:
    return cluster_case(code, "/maglev_lb_config/table_size", lb_policy=policy, maglev_lb_config={"table_size": size})


def _subset(code: str, *fallback: str) -> Case:
    selector = {"keys": ["a", "b"], "fallback_policy": "KEYS_SUBSET", "fallback_keys_subset": list(fallback)}
    pointer = "/lb_subset_config/subset_selectors/0/fallback_keys_subset"
    return cluster_case(code, pointer, lb_subset_config={"subset_selectors": [selector]})


def _checked(code: str, pointer: str, **kind: Any) -> Case:
    return cluster_case(code, f"/health_checks/0{pointer}", health_checks=[{**_CHECK, **kind}])


def _status(code: str, start: int, end: int) -> Case:
    ranges = [{"start": 200, "end": 201}, {"start": start, "end": end}]
    http = {"path": "/", "expected_statuses": ranges}
    return _checked(code, "/http_health_check/expected_statuses/1", http_health_check=http)


def _sent(code: str, text: str) -> Case:
    return _checked(code, "/tcp_health_check/send/text", tcp_health_check={"send": {"text": text}})


REFUSED_CLUSTERS: Mapping[str, Case] = {
    "a ring whose least is more than its most": _ring(
        "out_of_range", "maximum_ring_size", minimum_ring_size=100, maximum_ring_size=10
    ),
    "a ring below the default of its least": _ring("out_of_range", "maximum_ring_size", maximum_ring_size=10),
    "a table that is not a prime": _maglev("out_of_range", 65_536),
    "a table that is a square": _maglev("out_of_range", 251 * 251),
    "a subset that falls back to all of its keys": _subset("cluster_conflict", "b", "a"),
    "a subset that falls back to another key": _subset("cluster_conflict", "c"),
    "a range of statuses from its end": _status("out_of_range", 500, 200),
    "an empty range of statuses": _status("out_of_range", 200, 200),
    "a range of statuses below all": _status("out_of_range", 1, 200),
    "a range of statuses above all": _status("out_of_range", 200, 601),
    "statuses to try again from their end": _checked(
        "out_of_range",
        "/http_health_check/retriable_statuses/0",
        http_health_check={"path": "/", "retriable_statuses": [{"start": 500, "end": 400}]},
    ),
    "a payload that is not hexadecimal": _sent("bad_text", "ping"),
    "half of a byte": _sent("bad_text", "504"),
}
TAKEN_CLUSTERS: Mapping[str, Case] = {
    "a ring of one size": _ring("", "", minimum_ring_size=10, maximum_ring_size=10),
    "a ring that nothing uses": _ring("", "", "ROUND_ROBIN", minimum_ring_size=100, maximum_ring_size=10),
    "a table that nothing uses": _maglev("", 100, "ROUND_ROBIN"),
    "a small prime": _maglev("", 2),
    "a prime": _maglev("", 5_000_011),
    "a subset that falls back to a key": _subset("", "b"),
    "all statuses": _status("", 100, 600),
    "a payload of hexadecimal": _sent("", "50494E47"),
}
