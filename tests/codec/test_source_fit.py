"""Config sources that do not fit a client."""

from __future__ import annotations

from tests.support import resources as r
from xds.codec.resources import decode_resource
from xds.codec.source_fit import check_bootstrap, check_nodes
from xds.model.resource import Resource


def web(source: r.Json) -> list[Resource]:
    return [decode_resource(each) for each in r.web_resources("c1", 80, source=source)]


def test_both_spellings_of_a_bootstrap_are_read() -> None:
    resources = web(r.ADS)
    assert check_bootstrap(resources, {"dynamic_resources": {"ads_config": {"api_type": "GRPC"}}}) == []
    assert check_bootstrap(resources, {"dynamicResources": {"adsConfig": {"apiType": "GRPC"}}}) == []
    lacking: list[r.Json] = [{}, {"dynamic_resources": {}}, {"dynamic_resources": None}, {"dynamic_resources": []}]
    for bootstrap in lacking:
        assert [one.severity for one in check_bootstrap(resources, bootstrap)] == ["error"]
    assert check_bootstrap([decode_resource(r.static_cluster("c", 80))], {}) == []


def test_nodes_are_named_in_bounded_number() -> None:
    assert check_nodes(web(r.ADS), []) == []
    [one] = check_nodes(web(r.ADS), ["n1"])
    assert (one.code, one.severity, one.resource) == ("no_ads", "warning", "clusters/c1")
    [many] = check_nodes(web(r.ADS), [f"n{number}" for number in range(9)])
    assert "9 nodes of the group take clusters or listeners without ADS (n0, n1, n2, ...)" in many.detail
