"""The chains of all services: what a change touches, what is refused, and that a refusal changes nothing."""

from __future__ import annotations

from random import Random

import pytest

from tests.mesh.core.chain.comparison import findings
from tests.support.chains import TRUST_DOMAIN, entries_of
from tests.support.random_entries import SERVICES, RandomEntries
from xds.mesh.core.chain.chain import ChainError, Flaw
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.index import REFUSALS_LIMIT, ChainContext, ChainIndex
from xds.mesh.core.chain.request import Overrides
from xds.mesh.core.entries.defaults import GLOBAL, ProxyDefaults
from xds.mesh.core.entries.entry import ConfigEntry, Key, entry_key, key_of, read_entries, read_entry
from xds.mesh.core.entries.entry_set import Changes, ConfigEntries
from xds.model.errors import LocalProtocolError

CONTEXT = ChainContext("dc1", TRUST_DOMAIN)
HTTP = "- {Kind: proxy-defaults, Config: {protocol: http}}\n"
WEB_API_DB = (
    HTTP
    + """
- {Kind: service-router, Name: web, Routes: [{Destination: {Service: api}}]}
- {Kind: service-splitter, Name: api, Splits: [{Weight: 50}, {Weight: 50, Service: db, ServiceSubset: v1}]}
- {Kind: service-resolver, Name: db, Subsets: {v1: {}}}
- {Kind: service-resolver, Name: alone, ConnectTimeout: 1s}
"""
)
DB = entry_key("service-resolver", "db")


def puts(text: str) -> dict[Key, ConfigEntry | None]:
    return {key_of(entry): entry for entry in read_entries(text, "yaml").entries}


def state(index: ChainIndex) -> dict[str, object]:
    return {service: _outcome(index, service) for service in index.services}


def _outcome(index: ChainIndex, service: str) -> object:
    try:
        return index.chain(service)
    except ChainError as error:
        return error.flaw, error.detail, error.path


def accept(index: ChainIndex, changes: Changes) -> frozenset[str]:
    return index.accept(index.propose(changes))


def test_the_chain_of_every_service_with_an_entry_is_kept() -> None:
    index = ChainIndex(CONTEXT, entries_of(WEB_API_DB))
    assert sorted(index.services) == ["alone", "api", "db", "web"]
    assert index.chain("web").protocol == "http"


def test_a_service_without_entries_has_the_default_chain() -> None:
    assert ChainIndex(CONTEXT).chain("web").is_default


def test_a_change_touches_the_chains_that_asked_for_the_entry() -> None:
    index = ChainIndex(CONTEXT, entries_of(WEB_API_DB))
    assert index.depending_on([DB]) == {"web", "api", "db"}
    assert index.depending_on([entry_key("service-splitter", "api")]) == {"web", "api"}
    assert index.depending_on([entry_key("service-router", "web")]) == {"web"}
    assert index.depending_on([entry_key("service-router", "api")]) == {"api"}
    assert index.depending_on([entry_key(ProxyDefaults.kind, GLOBAL)]) == set(index.services)


def test_an_entry_that_is_not_there_yet_touches_the_chains_that_looked_for_it() -> None:
    index = ChainIndex(CONTEXT, entries_of(WEB_API_DB))
    assert index.depending_on([entry_key("service-splitter", "web")]) == {"web"}
    assert index.depending_on([entry_key("service-defaults", "db")]) == {"web", "api", "db"}
    assert index.depending_on([entry_key("service-splitter", "db")]) == {"db"}  # as legs have a subset


def test_only_affected_chains_are_compiled() -> None:
    index = ChainIndex(CONTEXT, entries_of(WEB_API_DB))
    proposal = index.propose(puts("- {Kind: service-resolver, Name: db, Subsets: {v1: {}}, ConnectTimeout: 9s}"))
    assert proposal.compiled.keys() == {"api", "db", "web"}
    assert index.accept(proposal) == {"api", "db", "web"}
    assert index.chain("db").targets["db.default.default.dc1"].connect_timeout_ns == 9_000_000_000


def test_chains_that_compile_to_the_same_are_not_reported_as_changed() -> None:
    index = ChainIndex(CONTEXT, entries_of(WEB_API_DB))
    assert accept(index, puts("- {Kind: service-resolver, Name: db, Subsets: {v1: {}, v2: {}}}")) == set()
    assert accept(index, puts('- {Kind: service-defaults, Name: db, Protocol: http, Meta: {a: "1"}}')) == {"db"}


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({DB: None}, {"web", "api"}),
        (puts("- {Kind: service-resolver, Name: db, Subsets: {v2: {}}}"), {"web", "api"}),
        (puts("- {Kind: service-defaults, Name: db, Protocol: tcp}"), {"web", "api"}),
        (puts("- {Kind: service-resolver, Name: api, Redirect: {Service: db, ServiceSubset: v3}}"), {"web", "api"}),
        ({entry_key(ProxyDefaults.kind, GLOBAL): None}, {"web", "api"}),
        (
            puts("- {Kind: service-splitter, Name: db, Splits: [{Weight: 100, Service: nobody, ServiceSubset: x}]}"),
            {"db"},
        ),
    ],
)
def test_a_change_that_breaks_a_chain_is_refused_with_its_path_and_changes_nothing(
    changes: Changes, broken: set[str]
) -> None:
    index = ChainIndex(CONTEXT, entries_of(WEB_API_DB))
    before, entries = state(index), index.entries
    proposal = index.propose(changes)
    assert {error.chain for error in proposal.broken} == broken
    assert all(error.path for error in proposal.broken)
    refusal = proposal.refusal()
    assert refusal is not None
    assert {one.resource for one in refusal.violations} == {f"chain/{service}" for service in broken}
    with pytest.raises(LocalProtocolError):
        index.accept(proposal)
    assert (state(index), index.entries) == (before, entries)


def test_a_refusal_says_where_the_chain_breaks() -> None:
    refusal = ChainIndex(CONTEXT, entries_of(WEB_API_DB)).propose({DB: None}).refusal()
    assert refusal is not None
    assert [str(one) for one in refusal.violations] == [
        'chain/api: the chain of "api" would break: service "db" does not have a subset named "v1"; '
        "path: splitter:api.default.default -> resolver:v1.db.default.default.dc1",
        'chain/web: the chain of "web" would break: service "db" does not have a subset named "v1"; '
        "path: router:web.default.default -> splitter:api.default.default -> resolver:v1.db.default.default.dc1",
    ]


def test_several_entries_of_one_change_are_judged_together() -> None:
    index = ChainIndex(CONTEXT, entries_of(HTTP))
    splitter = "- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, ServiceSubset: v1}]}\n"
    assert index.propose(puts(splitter)).broken
    both = puts(splitter + "- {Kind: service-resolver, Name: web, Subsets: {v1: {}}}")
    assert accept(index, both) == {"web"}
    assert index.propose(dict.fromkeys(both)).broken == ()


def test_a_chain_that_was_broken_before_does_not_stop_a_change() -> None:
    entries = entries_of("- {Kind: service-splitter, Name: web, Splits: [{Weight: 100, Service: api}]}")
    index = ChainIndex(CONTEXT, entries)
    assert [error.flaw for error in index.broken()] == [Flaw.PROTOCOL_NOT_HTTP]
    assert accept(index, puts("- {Kind: service-resolver, Name: api, ConnectTimeout: 1s}")) == {"api"}
    assert accept(index, puts(HTTP)) == {"web", "api"}
    assert index.broken() == ()


def test_a_service_that_owns_nothing_any_more_is_dropped() -> None:
    index = ChainIndex(CONTEXT, entries_of(WEB_API_DB))
    alone = entry_key("service-resolver", "alone")
    assert accept(index, {alone: None}) == {"alone"}
    assert "alone" not in index.services


def test_a_proposal_of_other_entries_is_not_accepted() -> None:
    index = ChainIndex(CONTEXT, entries_of(WEB_API_DB))
    proposal = index.propose({entry_key("service-resolver", "alone"): None})
    accept(index, puts("- {Kind: service-resolver, Name: other}"))
    with pytest.raises(LocalProtocolError):
        index.accept(proposal)


def test_overrides_are_compiled_for_the_asking_and_kept_by_nobody() -> None:
    index = ChainIndex(CONTEXT, entries_of(WEB_API_DB))
    assert index.chain("web", Overrides(protocol="tcp")).protocol == "tcp"
    assert index.chain("web").protocol == "http"


def test_a_refusal_of_many_chains_is_bounded() -> None:
    redirects = "".join(
        f"- {{Kind: service-resolver, Name: s{index}, Redirect: {{Service: db, ServiceSubset: v1}}}}\n"
        for index in range(REFUSALS_LIMIT + 50)
    )
    index = ChainIndex(CONTEXT, entries_of(redirects + "- {Kind: service-resolver, Name: db, Subsets: {v1: {}}}"))
    proposal = index.propose({DB: None})
    refusal = proposal.refusal()
    assert len(proposal.broken) == REFUSALS_LIMIT
    assert refusal is not None
    assert len(refusal.violations) == REFUSALS_LIMIT


# Random changes against an index made anew


@pytest.mark.parametrize("seed", range(25))
def test_random_changes_leave_the_chains_of_a_new_index(seed: int) -> None:
    """Accepted or refused, undone or not: the index is always that of its entries."""
    random = Random(seed)
    index = ChainIndex(CONTEXT)
    for _ in range(20):
        before, outcomes = index.entries, state(index)
        proposal = index.propose(_random_changes(random, index.entries))
        if proposal.broken:
            assert (index.entries, state(index)) == (before, outcomes)
            continue
        changed = index.accept(proposal)
        fresh = ChainIndex(CONTEXT, index.entries)
        assert state(index) == state(fresh)
        assert changed == {name for name in SERVICES if outcomes.get(name) != state(index).get(name)}
        if random.random() < 0.3:
            _undo(index, before)
            assert state(index) == outcomes


def _random_changes(random: Random, entries: ConfigEntries) -> dict[Key, ConfigEntry | None]:
    made = [one for one in RandomEntries(random).entries() if not findings(one)]
    read = [read_entry(one).entries[0] for one in random.sample(made, min(len(made), random.randint(0, 4)))]
    removed = [key_of(one) for one in entries if random.random() < 0.1]
    return {**dict.fromkeys(removed), **{key_of(entry): entry for entry in read}}


def _undo(index: ChainIndex, before: ConfigEntries) -> None:
    keys = {key_of(one) for one in (*index.entries, *before)}
    index.accept(index.propose({key: before.get(key) for key in keys}))


@pytest.mark.parametrize("seed", range(10))
def test_entries_that_a_chain_did_not_ask_for_do_not_matter(seed: int) -> None:
    random = Random(seed)
    made = [read_entry(one).entries[0] for one in RandomEntries(random).entries() if not findings(one)]
    index = ChainIndex(CONTEXT, ConfigEntries.of(made))
    for service in index.services:
        needed = [one for one in made if service in index.depending_on([key_of(one)])]
        request = CONTEXT.request(service, ConfigEntries.of(needed))
        try:
            expected: object = compile_chain(request)
        except ChainError as error:
            expected = error.flaw, error.detail, error.path
        assert _outcome(index, service) == expected
