"""A request comes to the same endpoints through Envoy and through a Linkerd proxy, over random entries and instances.

Envoy's side are the lowered resources, Linkerd's the outbound policy and `Get` of each name in it. Where a policy
cannot express a route, that is reported, and nothing is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from tests.support.chains import TRUST_DOMAIN
from tests.support.examples import examples
from tests.support.linkerd_policy import Request, backends_of, route_taken
from tests.support.lowering import DATACENTER, lowered, served
from tests.support.random_mesh import RandomMesh
from tests.support.route_reader import Place, RouteReader
from xds.linkerd.address_index import AddressIndex
from xds.linkerd.core.authority import ProtocolGeneration, read_authority
from xds.linkerd.core.mesh_state import DestinationClient, DestinationRules
from xds.linkerd.core.outbound_policy import encode_outbound
from xds.linkerd.core.resolver import DestinationResolver, ProfileAnswer
from xds.linkerd.destinations import ServiceMeshState
from xds.linkerd.proto import outbound_pb2
from xds.mesh.core.chain.index import ChainContext, ChainIndex
from xds.mesh.core.chain.request import Overrides
from xds.mesh.core.lower.upstreams import Upstream
from xds.services.core.draining import ObservedInstance
from xds.services.core.index import ServiceInstance
from xds.services.core.instance import Instance

Shares = Mapping[frozenset[Place], Fraction]

CLIENT = DestinationClient()
UNSAID = ("which a policy cannot express", "cannot be expressed in a policy", "contradict")


class FixedCatalog:
    """Services that never change."""

    is_read = True

    def __init__(self, catalog: Mapping[str, list[Instance]]) -> None:
        self._services = {
            service: tuple(ServiceInstance("test", ObservedInstance(one, 0.0, 0.0)) for one in instances)
            for service, instances in catalog.items()
        }

    def is_shown(self, service: str) -> bool:
        return service in self._services

    def is_unread(self, service: str) -> bool:
        return False

    def instances(self, service: str) -> tuple[ServiceInstance, ...]:
        return self._services.get(service, ())


def resolver_of(mesh: RandomMesh) -> DestinationResolver:
    entries = SimpleNamespace(index=ChainIndex(ChainContext(DATACENTER, TRUST_DOMAIN, True), mesh.entries))
    world = ServiceMeshState(cast(Any, FixedCatalog(mesh.catalog)), cast(Any, entries), AddressIndex())
    return DestinationResolver(world, DestinationRules(datacenter=DATACENTER))


def is_comparable(upstream: Upstream) -> bool:
    """Whether it is the plain chain of its service: a Linkerd proxy knows no others."""
    return upstream.datacenter in ("", DATACENTER) and upstream.overrides == Overrides()


def shares(weights: Mapping[frozenset[Place], int]) -> Shares:
    total = sum(weights.values())
    return {places: Fraction(weight, total) for places, weight in weights.items() if weight}


def in_envoy(reader: RouteReader, upstream: Upstream, request: Any) -> Shares:
    routed = reader.route_request(f"{upstream.name}:{upstream.bind_address}:{upstream.bind_port}", request)
    assert routed is not None
    weights: Counter[frozenset[Place]] = Counter()
    for cluster, weight in routed.clusters.items():
        weights[frozenset(reader.serving(cluster))] += weight
    return shares(weights)


def in_linkerd(resolver: DestinationResolver, legs: Mapping[str, int]) -> Shares:
    weights: Counter[frozenset[Place]] = Counter()
    for authority, weight in legs.items():
        answer = resolver.state(read_authority(authority), CLIENT, ProtocolGeneration.LINKERD)
        assert answer.state is not None
        weights[frozenset((one.address, one.port) for one in answer.state.endpoints)] += weight
    return shares(weights)


def policy_of(resolver: DestinationResolver, name: str) -> tuple[outbound_pb2.OutboundPolicy, ProfileAnswer] | None:
    """The policy of a name, unless something of its routes cannot be said."""
    found = resolver.outbound(read_authority(name), CLIENT)
    assert found is not None
    rule, answer = found
    if any(word in each for each in answer.skipped for word in UNSAID):
        return None
    return outbound_pb2.OutboundPolicy.FromString(encode_outbound(rule)), answer


def compare(seed: int) -> int:
    """Compare the requests of one mesh. Returns how many there were."""
    mesh = RandomMesh.of(seed)
    reader = RouteReader(served(lowered(mesh.document.document(), mesh.entries), mesh.catalog))
    resolver, compared = resolver_of(mesh), 0
    for upstream in filter(is_comparable, mesh.document.upstreams):
        for name in (f"{upstream.service}.service.consul:1", f"{upstream.service}.default.svc.cluster.local:1"):
            found = policy_of(resolver, name)
            for each in mesh.requests if found is not None else ():
                assert found is not None
                request = Request(each.path, each.method, dict(each.headers), dict(each.query))
                legs = backends_of(route_taken(found[0], request))
                assert in_linkerd(resolver, legs) == in_envoy(reader, upstream, each), (name, each)
                compared += 1
            compare_profile(resolver, reader, upstream, name, mesh)
    return compared


def compare_profile(
    resolver: DestinationResolver, reader: RouteReader, upstream: Upstream, name: str, mesh: RandomMesh
) -> None:
    """A profile that leaves nothing out sends every request where Envoy sends it."""
    answer = resolver.profile(read_authority(name), CLIENT)
    if not answer.skipped:
        legs = {one.authority: one.weight for one in answer.profile.overrides} or {name: 1}
        for each in mesh.requests:
            assert in_linkerd(resolver, legs) == in_envoy(reader, upstream, each), (name, each)


@given(st.integers(min_value=0, max_value=2**32))
@examples(20)
def test_a_request_comes_to_the_same_endpoints_through_envoy_and_through_linkerd(seed: int) -> None:
    compare(seed)


def test_most_requests_are_compared() -> None:
    seeds = range(12)
    requests = sum(len(mesh.document.upstreams) * len(mesh.requests) for mesh in map(RandomMesh.of, seeds))
    assert sum(map(compare, seeds)) > requests // 2
