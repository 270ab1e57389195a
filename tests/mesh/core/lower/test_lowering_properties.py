"""What a request does in a chain it does in the lowered resources, over random entries, instances and requests."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.lowering import DATACENTER, chain_of, decoded, findings, lowered, served
from tests.support.random_mesh import RandomMesh
from tests.support.route_reader import Place, Request, RoutedRequest, RouteReader
from xds.mesh.core.chain.chain import ChainTarget, DiscoveryChain, ResolverNode
from xds.mesh.core.chain.request_walk import HttpRequest, walk
from xds.mesh.core.lower.lowered import Lowered
from xds.mesh.core.lower.upstreams import Upstream
from xds.model.errors import ValidationError
from xds.services.core.instance import Health, Instance

seeds = st.integers(min_value=0, max_value=2**32)


def reader_of(found: Lowered, mesh: RandomMesh) -> RouteReader:
    """An interpreter of the very bytes that proxies get."""
    return RouteReader(served(found, mesh.catalog))


def is_healthy(one: Instance, target: ChainTarget) -> bool:
    warns = one.health is Health.WARNING
    weight = one.warning_weight if warns else one.weight
    return one.health is not Health.CRITICAL and weight > 0 and not (warns and target.subset.only_passing)


def selected(mesh: RandomMesh, target: ChainTarget) -> dict[Place, bool]:
    """The instances of a target, and whether they get requests. Random subsets have one filter only."""
    wanted = "1.2" if target.subset.filter else ""
    return {
        (one.address, one.port): is_healthy(one, target)
        for one in reversed(mesh.catalog.get(target.key.service, []))
        if (one.datacenter or DATACENTER) == target.key.datacenter and (not wanted or one.meta["version"] == wanted)
    }


def serving(mesh: RandomMesh, chain: DiscoveryChain, node: ResolverNode) -> frozenset[Place]:
    """The instances that get the requests of a resolver: those of its first target with healthy ones."""
    for key in (node.target, *node.failover):
        healthy = {place for place, gets in selected(mesh, chain.targets[key]).items() if gets}
        if healthy:
            return frozenset(healthy)
    return frozenset()


def shares(weights: dict[frozenset[Place], int]) -> dict[frozenset[Place], float]:
    total = sum(weights.values())
    return {places: weight / total for places, weight in weights.items() if weight}


def arrived(reader: RouteReader, routed: RoutedRequest) -> dict[frozenset[Place], float]:
    weights: Counter[frozenset[Place]] = Counter()
    for cluster, weight in routed.clusters.items():
        weights[frozenset(reader.serving(cluster))] += weight
    return shares(weights)


def check_request(mesh: RandomMesh, reader: RouteReader, upstream: Upstream, request: Request) -> None:
    chain = chain_of(upstream, mesh.entries).chain
    way = walk(chain, HttpRequest(request.path, request.method, request.headers, request.query))
    routed = reader.route_request(f"{upstream.name}:{upstream.bind_address}:{upstream.bind_port}", request)
    assert routed is not None, "the last route takes everything"
    assert routed.path == way.path
    expected: Counter[frozenset[Place]] = Counter()
    for one in way.ways:
        expected[serving(mesh, chain, one.resolver)] += one.weight
    assert arrived(reader, routed) == shares(expected)


@given(seeds)
@examples(60)
def test_a_request_goes_the_way_that_its_chain_says(seed: int) -> None:
    mesh = RandomMesh.of(seed)
    reader = reader_of(lowered(mesh.document.document(), mesh.entries), mesh)
    for upstream in mesh.document.upstreams:
        for request in mesh.requests:
            check_request(mesh, reader, upstream, request)


@given(seeds)
@examples(30)
def test_lowered_resources_have_no_findings_as_a_push(seed: int) -> None:
    mesh = RandomMesh.of(seed)
    assert findings(lowered(mesh.document.document(), mesh.entries), mesh.catalog) == []


@given(seeds)
@examples(60)
def test_with_peers_and_gateways_all_references_of_lowered_resources_exist(seed: int) -> None:
    mesh = RandomMesh.of(seed, is_reachable=False)
    for upstream in mesh.document.document()["upstreams"]:
        try:
            found = lowered({**mesh.document.document(), "upstreams": [upstream]}, mesh.entries)
        except ValidationError as error:
            assert {one.code for one in error.violations} <= {"unreachable", "no_weight", "mixed_tls"}
            continue
        reader = reader_of(found, mesh)
        for request in mesh.requests:
            routed = reader.route_request(
                f"{next(iter(found.resources)).upstreams[0]}:127.0.0.1:{upstream['bind_port']}", request
            )
            for cluster in routed.clusters if routed is not None else ():
                assert reader.priorities(cluster) is not None


@given(seeds)
@examples(30)
def test_equal_documents_and_entries_make_equal_bytes_in_any_order_of_upstreams(seed: int) -> None:
    mesh = RandomMesh.of(seed)
    document = mesh.document.document()
    turned = {**document, "upstreams": document["upstreams"][::-1]}
    first, second = lowered(document, mesh.entries), lowered(turned, mesh.entries)
    assert decoded(first) == decoded(second)
    assert first.assignments == second.assignments
    assert [one.upstreams for one in first.resources] == [one.upstreams for one in second.resources]
