"""Policies are read with all that is wrong with them, and written so that they read back alike."""

from __future__ import annotations

import math

import pytest

from xds.model.errors import ValidationError
from xds.model.node import Locality
from xds.steering.core.policy import (
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
from xds.steering.core.policy_document import parse_policy, policy_document

FULL = {
    "cluster": "web",
    "strategy": "spray_to_region",
    "capacity": {
        "rates": [
            {"localities": {"region": "eu", "zone": "a"}, "per_locality_rps": 500},
            {"per_endpoint_rps": 20.5},
        ],
        "metric": {"name": "cpu_utilization", "target": 0.7},
    },
    "preferred": [{"region": "us"}],
    "order": [{"source": {"region": "eu"}, "targets": [{"region": "us"}, {"region": "ap"}]}],
    "drain": {"below": 0.5, "restore": 0.6},
    "spill": {"within": "region", "at_most": 0.3, "shed": True},
    "standby": [{"region": "ap"}],
    "capacity_scaler": [{"localities": {"zone": "a"}, "factor": 0.3}],
    "target_utilisation": 0.8,
    "errors_above": 0.4,
    "minimum_change": 0.05,
    "maximum_step": 0.5,
    "hysteresis": 0.2,
    "interval_s": 5,
    "dwell_s": 0,
    "stale_after_s": 20,
    "fallback_after_s": 60,
}
LEAST = {"cluster": "web", "capacity": {"rates": [{"per_endpoint_rps": 10}]}}


def _pointers(document: object, cluster: str = "") -> dict[str, str]:
    with pytest.raises(ValidationError) as caught:
        parse_policy(document, cluster)
    return {violation.pointer: violation.code for violation in caught.value.violations}


def test_every_field_is_read() -> None:
    policy = parse_policy(FULL)
    assert policy.strategy is Strategy.SPRAY_TO_REGION
    assert policy.capacity.rates == (
        Rate(per_locality_rps=500, localities=LocalityPattern("eu", "a")),
        Rate(per_endpoint_rps=20.5),
    )
    assert policy.capacity.metric == MetricTarget("cpu_utilization", 0.7)
    assert policy.preferred == (LocalityPattern("us"),)
    assert policy.order == (TargetOrder(LocalityPattern("eu"), (LocalityPattern("us"), LocalityPattern("ap"))),)
    assert policy.drain == DrainLimits(0.5, 0.6)
    assert policy.spill == SpillLimits(Reach.REGION, 0.3, shed=True)
    assert policy.standby == (LocalityPattern("ap"),)
    assert policy.capacity_scaler == (CapacityScaler(0.3, LocalityPattern(zone="a")),)
    assert (policy.target_utilisation, policy.errors_above) == (0.8, 0.4)
    assert (policy.minimum_change, policy.maximum_step, policy.hysteresis) == (0.05, 0.5, 0.2)
    assert (policy.interval_s, policy.dwell_s, policy.stale_after_s, policy.fallback_after_s) == (5, 0, 20, 60)


def test_omitted_settings_have_their_default() -> None:
    policy = parse_policy(LEAST)
    assert policy == Policy("web", policy.capacity)


@pytest.mark.parametrize("document", [FULL, LEAST], ids=["full", "least"])
def test_a_policy_reads_back_from_its_document(document: dict[str, object]) -> None:
    policy = parse_policy(document)
    assert parse_policy(policy_document(policy)) == policy


def test_the_cluster_may_come_from_beside_the_document() -> None:
    own = {"capacity": LEAST["capacity"]}
    assert parse_policy(own, "web").cluster == "web"
    assert _pointers(own) == {"/cluster": "wrong_type"}
    assert _pointers(LEAST, "api") == {"/cluster": "conflict"}


def test_all_errors_are_reported_together() -> None:
    document = {
        "strategy": "nearest",
        "stratgy": "x",
        "capacity": {
            "rates": [{"per_endpoint_rps": 1, "per_locality_rps": 1}, {"per_endpoint_rps": -1}, 7, {}],
            "metric": {"name": "", "target": 0},
        },
        "preferred": [{"regoin": "eu"}, {"zone": 4}],
        "order": [{"source": {}}],
        "drain": {"below": 0.5, "restore": 0.1},
        "spill": {"within": "planet", "at_most": 2, "shed": 1},
        "capacity_scaler": [{"factor": 3}, {}],
        "errors_above": 0,
        "minimum_change": math.nan,
        "maximum_step": 0,
        "hysteresis": True,
        "interval_s": "10s",
        "dwell_s": math.inf,
    }
    assert _pointers(document, "web") == {
        "/strategy": "invalid_value",
        "/stratgy": "unknown_field",
        "/capacity/rates/0": "invalid_value",
        "/capacity/rates/1/per_endpoint_rps": "out_of_range",
        "/capacity/rates/2": "wrong_type",
        "/capacity/rates/3": "invalid_value",
        "/capacity/metric/name": "wrong_type",
        "/capacity/metric/target": "out_of_range",
        "/preferred/0/regoin": "unknown_field",
        "/preferred/1/zone": "wrong_type",
        "/order/0/targets": "missing",
        "/drain/restore": "out_of_range",
        "/spill/within": "invalid_value",
        "/spill/at_most": "out_of_range",
        "/spill/shed": "wrong_type",
        "/capacity_scaler/0/factor": "out_of_range",
        "/capacity_scaler/1/factor": "missing",
        "/errors_above": "out_of_range",
        "/minimum_change": "out_of_range",
        "/maximum_step": "out_of_range",
        "/hysteresis": "wrong_type",
        "/interval_s": "wrong_type",
        "/dwell_s": "out_of_range",
    }


def test_a_misspelt_field_is_answered_with_a_hint() -> None:
    with pytest.raises(ValidationError) as caught:
        parse_policy({**LEAST, "stratgy": "spray_to_world"})
    assert [violation.hint for violation in caught.value.violations] == ['did you mean "strategy"?']


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("loadBalancingAlgorithm", '"strategy"'),
        ("autoCapacityDrain", '"drain"'),
        ("failoverConfig", '"drain"'),
        ("isolationConfig", '"spill"'),
        ("isolation_config", '"spill"'),
        ("capacityScaler", '"capacity_scaler"'),
        ("maxRatePerEndpoint", '"per_endpoint_rps"'),
    ],
)
def test_names_of_cloud_service_mesh_are_answered_with_ours(name: str, own: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_policy({**LEAST, name: {}})
    (violation,) = caught.value.violations
    assert own in violation.hint


def test_a_strategy_in_upper_case_is_answered_with_ours() -> None:
    with pytest.raises(ValidationError) as caught:
        parse_policy({**LEAST, "strategy": "WATERFALL_BY_REGION"})
    assert [violation.hint for violation in caught.value.violations] == ['write "waterfall_by_region"']


def test_several_metrics_are_read_and_written() -> None:
    metrics = [{"name": "cpu_utilization", "target": 0.7}, {"name": "named_metrics.queue", "target": 9.0}]
    policy = parse_policy({"cluster": "web", "capacity": {"metrics": metrics}})
    assert [metric.name for metric in policy.capacity.metrics] == ["cpu_utilization", "named_metrics.queue"]
    assert parse_policy(policy_document(policy)) == policy
    both = {"cluster": "web", "capacity": {"metrics": metrics, "metric": metrics[0]}}
    assert _pointers(both) == {"/capacity/metrics": "conflict"}


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_a_policy_that_is_no_object_is_refused(document: object) -> None:
    assert _pointers(document, "web") == {"": "wrong_type", "/capacity": "missing"}


@pytest.mark.parametrize("capacity", [{}, {"rates": []}, {"rates": None}])
def test_a_policy_needs_capacity(capacity: dict[str, object]) -> None:
    assert _pointers({"cluster": "web", "capacity": capacity}) == {"/capacity": "missing"}


def test_times_must_follow_each_other() -> None:
    times = {"interval_s": 50, "stale_after_s": 40, "fallback_after_s": 30}
    assert _pointers({**LEAST, **times}) == {"/fallback_after_s": "out_of_range", "/stale_after_s": "out_of_range"}


def test_the_first_rate_that_matches_holds() -> None:
    policy = parse_policy(FULL)
    near, other = policy.rate(Locality("eu", "a", "rack1")), policy.rate(Locality("eu", "b"))
    assert near and near.per_locality_rps == 500
    assert other and other.per_endpoint_rps == 20.5
