"""What holds for every chain, over random sets of entries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st

from tests.mesh.core.chain.comparison import findings
from tests.support.chains import TRUST_DOMAIN
from tests.support.random_entries import SERVICES, RandomEntries
from xds.consul.quantities import WHOLE, basis_points, percent, product
from xds.mesh.core.chain.chain import ChainError, DiscoveryChain, ResolverNode, RouterNode, SplitterNode
from xds.mesh.core.chain.chain_json import chain_json
from xds.mesh.core.chain.compile import compile_chain, compile_recorded
from xds.mesh.core.chain.request import CompileRequest
from xds.mesh.core.chain.request_walk import HttpRequest, walk
from xds.mesh.core.entries.entry import ConfigEntry, entry_from_json, entry_json, read_entry
from xds.mesh.core.entries.entry_set import ConfigEntries

seeds = st.integers(min_value=0, max_value=2**32)


def sound_entries(seed: int) -> list[ConfigEntry]:
    made = RandomEntries(Random(seed)).entries()
    return [read_entry(one).entries[0] for one in made if not findings(one)]


def chains(entries: list[ConfigEntry]) -> Iterator[DiscoveryChain]:
    for service in SERVICES:
        request = CompileRequest(service, ConfigEntries.of(entries), "dc1", TRUST_DOMAIN)
        chain = compile_recorded(request).chain
        if chain is not None:
            yield chain


@given(seeds)
def test_compiling_is_deterministic_whatever_the_order_of_entries(seed: int) -> None:
    entries = sound_entries(seed)
    shuffled = entries.copy()
    Random(seed).shuffle(shuffled)
    first, second = list(chains(entries)), list(chains(shuffled))
    assert first == second
    assert json.dumps([chain_json(one) for one in first]) == json.dumps([chain_json(one) for one in second])


@given(seeds)
def test_every_node_is_reached_every_target_used_and_no_cycle_survives(seed: int) -> None:
    for chain in chains(sound_entries(seed)):
        seen: set[str] = set()
        _visit(chain, chain.start_node, (), seen)
        assert seen == chain.nodes.keys()
        resolvers = [node for node in chain.nodes.values() if isinstance(node, ResolverNode)]
        used = {target for node in resolvers for target in (node.target, *node.failover)}
        assert used == chain.targets.keys()


def _visit(chain: DiscoveryChain, key: str, path: tuple[str, ...], seen: set[str]) -> None:
    assert key not in path, "a cycle"
    seen.add(key)
    for below in chain.nodes[key].next_nodes:
        _visit(chain, below, (*path, key), seen)


@given(seeds)
def test_weights_sum_up_within_rounding_and_splitters_lead_to_resolvers(seed: int) -> None:
    for chain in chains(sound_entries(seed)):
        for node in chain.nodes.values():
            if isinstance(node, SplitterNode):
                # Every leg that was made by a multiplication is off by half a basis point a level at most.
                assert abs(sum(split.weight for split in node.splits) - WHOLE) <= len(node.splits) * len(SERVICES)
                assert all(isinstance(chain.nodes[split.next_node], ResolverNode) for split in node.splits)
            if isinstance(node, RouterNode):
                assert node.key == chain.start_node
                assert walk(chain, HttpRequest("/\N{SNOWMAN}")).tried[-1].matches, "the last route takes everything"


@given(seeds)
def test_every_request_comes_to_an_end(seed: int) -> None:
    for chain in chains(sound_entries(seed)):
        found = walk(chain, HttpRequest.of("/a?q=v", "PUT", [("x-a", "v")]))
        assert found.ways
        assert all(way.resolver.target in chain.targets for way in found.ways)


@given(seeds)
def test_entries_come_back_from_their_json(seed: int) -> None:
    for entry in sound_entries(seed):
        again = json.loads(json.dumps(entry_json(entry)))
        assert entry_from_json(again) == entry
        assert read_entry(again).entries == (entry,)


@given(seeds)
@example(97)  # a redirect, and behind it a failover that fails
def test_an_error_has_its_chain_and_a_path_that_begins_at_its_start(seed: int) -> None:
    entries = ConfigEntries.of(sound_entries(seed))
    for service in SERVICES:
        try:
            compile_chain(CompileRequest(service, entries, "dc1", TRUST_DOMAIN))
        except ChainError as error:
            assert error.chain == service
            assert error.path
            kind, name = error.path[0].split(":")
            assert kind in ("router", "splitter", "resolver")
            assert service in name.split(".")


@given(st.floats(min_value=0, max_value=100))
def test_weights_are_whole_basis_points(weight: float) -> None:
    points = basis_points(weight)
    assert 0 <= points <= WHOLE
    assert basis_points(percent(points)) == points
    assert abs(points - weight * 100) <= 0.51


@given(st.integers(0, WHOLE), st.integers(0, WHOLE))
def test_the_weight_below_a_weight(outer: int, inner: int) -> None:
    assert product(outer, inner) == product(inner, outer) <= min(outer, inner)
    assert product(WHOLE, inner) == inner
    assert product(0, inner) == 0
