"""Warnings about a policy in its group."""

from __future__ import annotations

from typing import Any

import pytest

from tests.steering.assigned import cluster, endpoints, policy
from tests.support.resources import zoned_load_assignment
from xds.codec.resources import decode_resource
from xds.codec.schema import require
from xds.model.errors import WARNING, Violation
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER
from xds.steering.core.assignment import Demand, Observation
from xds.steering.core.load_assignment import pushed_localities
from xds.steering.core.policy import Policy
from xds.steering.policy_review import (
    review_capacity,
    review_policy,
    review_reports,
    review_times,
    weighs_localities,
)

PLAIN = "type.googleapis.com/envoy.extensions.load_balancing_policies."
WEIGHTED: dict[str, Any] = {"locality_weighted_lb_config": {}}


def codes(*resources: Resource, own: Policy | None = None, others: tuple[str, ...] = ()) -> list[str]:
    return [one.code for one in findings(*resources, own=own, others=others)]


def findings(*resources: Resource, own: Policy | None = None, others: tuple[str, ...] = ()) -> list[Violation]:
    held = {(one.type_url, one.name): one for one in resources}
    names = [name for url, name in held if url == CLUSTER]
    found = review_policy(own or policy(), lambda url, name: held.get((url, name)), names, others)
    assert all(one.severity == WARNING and one.resource == "policy/web" for one in found)
    return found


def balanced(*policies: tuple[str, dict[str, Any]], **fields: Any) -> Resource:
    """A cluster with a load_balancing_policy."""
    packed = [
        {"typed_extension_config": {"name": name, "typed_config": {"@type": PLAIN + name, **config}}}
        for name, config in policies
    ]
    return cluster(load_balancing_policy={"policies": packed}, common_lb_config=None, **fields)


def test_a_cluster_that_lacks_nothing() -> None:
    assert codes(cluster(), endpoints()) == []


def test_a_cluster_that_is_not_there() -> None:
    (found,) = findings(cluster("webs"), endpoints())
    assert found.code == "unknown_cluster"
    assert "webs" in found.hint


def test_a_cluster_without_endpoints_over_xds() -> None:
    assert codes(cluster(type="STRICT_DNS", eds_cluster_config=None)) == ["not_eds"]


def test_a_cluster_whose_endpoints_are_not_pushed() -> None:
    assert codes(cluster()) == ["no_assignment"]


@pytest.mark.parametrize("lrs_server", [None, {"ads": {}}])
def test_grpc_reports_no_load_without_lrs_server_self(lrs_server: object) -> None:
    (found,) = findings(cluster(lrs_server=lrs_server), endpoints())
    assert found.code == "no_load_reports"
    assert "lrs_server: {self: {}}" in found.hint


def test_envoy_ignores_weights_without_locality_weighted_balancing() -> None:
    (found,) = findings(cluster(common_lb_config={"zone_aware_lb_config": {}}), endpoints())
    assert found.code == "no_locality_weights"


ROUND_ROBIN = {
    "typed_extension_config": {
        "name": "r",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"
        },
    }
}


@pytest.mark.parametrize(
    ("policies", "weighted"),
    [
        ((("round_robin.v3.RoundRobin", {}),), False),
        ((("round_robin.v3.RoundRobin", {"locality_lb_config": WEIGHTED}),), True),
        ((("least_request.v3.LeastRequest", {"locality_lb_config": {"zone_aware_lb_config": {}}}),), False),
        ((("maglev.v3.Maglev", WEIGHTED),), True),
        ((("wrr_locality.v3.WrrLocality", {"endpoint_picking_policy": {"policies": [ROUND_ROBIN]}}),), True),
    ],
)
def test_balancing_policies_that_weigh_localities(policies: Any, weighted: bool) -> None:
    assert ("no_locality_weights" not in codes(balanced(*policies), endpoints())) == weighted


def test_a_balancing_policy_within_another_counts() -> None:
    inner = {"name": "x", "typed_config": {"@type": PLAIN + "random.v3.Random", "locality_lb_config": WEIGHTED}}
    outer = {
        "fallback_policy": {"policies": [{"typed_extension_config": inner}]},
        "override_host_sources": [{"header": "host"}],
    }
    assert codes(balanced(("override_host.v3.OverrideHost", outer)), endpoints()) == []


def test_balancing_policies_that_envoy_does_not_know_are_skipped() -> None:
    message: Any = require(CLUSTER)()
    unknown, known = message.load_balancing_policy.policies.add(), message.load_balancing_policy.policies.add()
    unknown.typed_extension_config.typed_config.type_url = "type.googleapis.com/example.Unheard"
    known.typed_extension_config.typed_config.type_url = PLAIN + "wrr_locality.v3.WrrLocality"
    assert weighs_localities(message)


def test_endpoints_in_one_locality_leave_no_choice() -> None:
    assert codes(cluster(), endpoints({"za": (1,)})) == ["one_locality"]


def test_localities_without_a_capacity() -> None:
    only = policy(capacity={"rates": [{"per_endpoint_rps": 5, "localities": {"zone": "za"}}]})
    (found,) = findings(cluster(), endpoints(), own=only)
    assert found.code == "no_capacity"
    assert "r/zb" in found.detail


def test_clusters_that_share_their_endpoints() -> None:
    source = {"eds_config": {"ads": {}, "resource_api_version": "V3"}, "service_name": "web"}
    other = cluster("api", eds_cluster_config=source)
    assert codes(cluster(), other, endpoints(), others=("api", "web")) == ["shared_endpoints"]
    assert codes(cluster(), other, endpoints(), others=("web",)) == []


def test_policies_that_count_the_same_endpoints_are_reported() -> None:
    """Each believes that all of their capacity is its own."""
    here, elsewhere = (pushed_localities(endpoints(zones)) for zones in ({"za": (1, 2), "zb": (3,)}, {"q": (2, 3, 9)}))
    others = {("edge", "api"): [one.addresses for one in elsewhere.values()], ("edge", "idle"): []}
    (found,) = review_capacity(policy(), here.values(), others)
    assert found.code == "shared_capacity"
    assert "2 of its 3 endpoints" in found.detail and "'api'" in found.detail
    learnt = policy(capacity={"metric": {"name": "cpu_utilization", "target": 0.8}})
    assert review_capacity(learnt, here.values(), others) == []


def test_pipes_of_the_same_path_are_not_the_same_endpoint() -> None:
    document = zoned_load_assignment("web", {"za": (1,)})
    document["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"] = {"pipe": {"path": "/run/web"}}
    assert [one.addresses for one in pushed_localities(decode_resource(document)).values()] == [frozenset()]


@pytest.mark.parametrize(("every_s", "warned"), [(1.0, False), (1.5, False), (10.0, True)])
def test_a_policy_that_has_no_patience_with_reports(every_s: float, warned: bool) -> None:
    """With reports every ten seconds, a policy that counts them as stale after three would be held nearly always."""
    assert [one.code for one in review_times(policy(), every_s)] == ["stale_too_soon"] * warned


def test_a_pushed_priority_is_reported_unless_it_is_standby() -> None:
    """A pushed priority below the first would get requests like all others."""
    document = zoned_load_assignment("web", {"za": (1,), "zb": (2,)})
    document["endpoints"][1]["priority"] = 1
    resources = cluster(), decode_resource(document)
    assert codes(*resources) == ["pushed_priority"]
    assert codes(*resources, own=policy(standby=[{"zone": "zb"}])) == []


@pytest.mark.parametrize(("silent", "warnings_n"), [(0, 0), (20, 0), (21, 1)])
def test_too_many_silent_nodes_are_warned_of(silent: int, warnings_n: int) -> None:
    """A warning names the locality if less than 80 % of its nodes report."""
    observed = Observation({Locality("r", "za"): Demand(1.0, 1.0, 100 - silent, silent)}, {})
    assert [one.code for one in review_reports(policy(), observed)] == ["partial_reports"] * warnings_n
