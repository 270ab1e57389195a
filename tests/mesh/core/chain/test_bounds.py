"""Hostile sets of entries end in an error, in time and memory that are bounded."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable

import pytest

from tests.support.chains import TRUST_DOMAIN, entries_of
from xds.mesh.core.chain.chain import ChainError, DiscoveryChain, Flaw, SplitterNode
from xds.mesh.core.chain.compilation import DEPTH_LIMIT
from xds.mesh.core.chain.compile import LEGS_LIMIT, compile_chain
from xds.mesh.core.chain.index import ChainContext, ChainIndex
from xds.mesh.core.chain.request import CompileRequest
from xds.mesh.core.entries.defaults import ProxyDefaults
from xds.mesh.core.entries.entry import ConfigEntry, entry_key, key_of
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.core.entries.resolver import WILDCARD, Failover, FailoverTarget, Redirect, ServiceResolver
from xds.mesh.core.entries.router import Route, RouteDestination, ServiceRouter
from xds.mesh.core.entries.splitter import ServiceSplitter, Split

DEPTH = 10_000
MEMORY_LIMIT_BYTES = 200 * 1024 * 1024
HTTP = ProxyDefaults(config={"protocol": "http"})


def compiled(entries: Iterable[ConfigEntry], service: str = "s0") -> DiscoveryChain:
    return compile_chain(CompileRequest(service, ConfigEntries.of([HTTP, *entries]), "dc1", TRUST_DOMAIN))


def splitter(name: int, *legs: int) -> ServiceSplitter:
    """Equal shares for other services; the first takes the rest."""
    share = 10_000 // len(legs)
    weights = [10_000 - share * (len(legs) - 1)] + [share] * (len(legs) - 1)
    splits = tuple(Split(weight, f"s{leg}") for weight, leg in zip(weights, legs, strict=True))
    return ServiceSplitter(f"s{name}", splits)


def redirects(count: int, last: int) -> list[ConfigEntry]:
    """Each to the next, the last one to ``last``."""
    following = [*range(1, count), last]
    return [ServiceResolver(f"s{at}", redirect=Redirect(f"s{to}")) for at, to in enumerate(following)]


def splitters(count: int, last: int) -> list[ConfigEntry]:
    """Each to the next, the last one to ``last``."""
    return [splitter(at, to) for at, to in enumerate([*range(1, count), last])]


def test_redirects_as_deep_as_allowed_are_followed() -> None:
    count = DEPTH_LIMIT - 1
    chain = compiled(redirects(count, count))
    assert chain.start_node == f"resolver:s{count}.default.default.dc1"
    assert len(chain.targets) == 1


def test_splitters_as_deep_as_allowed_are_flattened() -> None:
    chain = compiled(splitters(DEPTH_LIMIT - 1, DEPTH_LIMIT))
    assert isinstance(chain.start, SplitterNode)
    assert [split.weight for split in chain.start.splits] == [10_000]
    assert len(chain.nodes) == 2


@pytest.mark.parametrize("made", [redirects, splitters])
@pytest.mark.parametrize("last", [DEPTH, 0], ids=["straight", "circle"])
def test_a_chain_of_ten_thousand_redirects_is_refused_with_a_short_path(
    made: Callable[[int, int], list[ConfigEntry]], last: int
) -> None:
    with pytest.raises(ChainError, match=f"more than {DEPTH_LIMIT} redirects and splits behind each other") as caught:
        compiled(made(DEPTH, last))
    assert caught.value.flaw is Flaw.TOO_LARGE
    assert len(caught.value.path) == DEPTH_LIMIT + 1
    assert len(caught.value.detail) < 2_000


def test_the_memory_of_long_chains_of_redirects_is_bounded() -> None:
    """Every service's chain goes through all behind it: without a limit, that grows with the square."""
    count = 10 * DEPTH_LIMIT
    index = ChainIndex(ChainContext("dc1", TRUST_DOMAIN), ConfigEntries.of(redirects(count, count)))
    assert len(index.broken()) == count - DEPTH_LIMIT + 1
    assert len(index.depending_on([entry_key("service-resolver", f"s{count - 1}")])) == DEPTH_LIMIT


def test_a_write_that_makes_a_chain_too_deep_is_refused_and_nothing_changes() -> None:
    count = DEPTH_LIMIT - 1
    index = ChainIndex(ChainContext("dc1", TRUST_DOMAIN), ConfigEntries.of(redirects(count, count)))
    before = index.entries
    entry = ServiceResolver(f"s{count}", redirect=Redirect("further"))
    proposal = index.propose({key_of(entry): entry})
    assert [error.chain for error in proposal.broken] == ["s0"]
    assert index.entries is before
    assert len(index.chain("s0").nodes) == 1


def test_diamonds_of_splitters_do_not_take_time_that_doubles_at_every_level() -> None:
    """s0 leads to s1 and s2, both lead to s3, and so on: two to the power of thirty ways."""
    entries = []
    for level in range(30):
        top = level * 3
        entries += [splitter(top, top + 1, top + 2), splitter(top + 1, top + 3), splitter(top + 2, top + 3)]
    tracemalloc.start()
    with pytest.raises(ChainError, match=f"more than {LEGS_LIMIT} legs") as caught:
        compiled(entries)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.flaw is Flaw.TOO_LARGE
    assert peak_bytes < MEMORY_LIMIT_BYTES


def test_a_circle_below_diamonds_is_found() -> None:
    entries = []
    for level in range(30):
        top = level * 3
        entries += [splitter(top, top + 1, top + 2), splitter(top + 1, top + 3), splitter(top + 2, top + 3)]
    with pytest.raises(ChainError) as caught:
        compiled([*entries, splitter(90, 0)])
    assert caught.value.flaw is Flaw.CIRCULAR_REFERENCE


def test_splitters_that_each_keep_many_legs_are_refused_in_bounded_memory() -> None:
    entries = [splitter(at, at + 1, *range(DEPTH, DEPTH + 500)) for at in range(DEPTH_LIMIT - 1)]
    tracemalloc.start()
    with pytest.raises(ChainError) as caught:
        compiled(entries)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.flaw is Flaw.TOO_LARGE
    assert peak_bytes < MEMORY_LIMIT_BYTES


def test_failover_of_ten_thousand_services_to_each_other_is_one_level_deep() -> None:
    chain = compiled(
        ServiceResolver(f"s{at}", failover={WILDCARD: Failover(f"s{(at + 1) % DEPTH}")}) for at in range(DEPTH)
    )
    assert len(chain.targets) == 2


def test_a_failover_of_ten_thousand_targets() -> None:
    targets = tuple(FailoverTarget(f"s{at}") for at in range(DEPTH))
    chain = compiled([ServiceResolver("s0", failover={WILDCARD: Failover(targets=targets)})])
    assert len(chain.targets) == DEPTH


def test_a_router_of_ten_thousand_routes() -> None:
    routes = tuple(Route(destination=RouteDestination(f"s{at}")) for at in range(DEPTH))
    assert len(compiled([ServiceRouter("s0", routes)]).nodes) == DEPTH + 1


@pytest.mark.parametrize("length", [3, 50])
def test_circles_of_every_length_are_found(length: int) -> None:
    for entries in (redirects(length, 0), splitters(length, 0)):
        with pytest.raises(ChainError) as caught:
            compiled(entries)
        assert caught.value.flaw in (Flaw.CIRCULAR_REDIRECT, Flaw.CIRCULAR_REFERENCE)
        assert caught.value.path[0] == caught.value.path[-1]


def test_circles_through_a_default_subset_end() -> None:
    text = """
- {Kind: service-resolver, Name: s0, DefaultSubset: a, Subsets: {a: {}}, Redirect: {Service: s1}}
- {Kind: service-resolver, Name: s1, DefaultSubset: b, Subsets: {b: {}}, Redirect: {Service: s0}}
"""
    with pytest.raises(ChainError) as caught:
        compiled(entries_of(text))
    assert caught.value.flaw is Flaw.CIRCULAR_REDIRECT
