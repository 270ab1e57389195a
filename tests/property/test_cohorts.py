"""Clients that share a state are told what they would be told alone, whatever happens to them and in whatever order.

Each stream has twins (`twin_streams`): one shares nothing, the other shares with it. All three must agree on each
event, response and deadline.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.property.test_random_worlds import play_seeds
from tests.support.examples import examples
from tests.support.sansio import Client, Server
from tests.support.twin_streams import TwinStream
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.model.snapshot import Snapshot
from xds.protocol.cohort import SHARED_S
from xds.protocol.dialect import Variant
from xds.snapshots.lines import GroupSplit

CLIENTS = 5
SEEDS = 15
TYPES = (CLUSTER, ENDPOINT, LISTENER, ROUTE)
NAMES = ("a", "b", "c")
ZONES = ("", "za")
GROUPS = ("default", "other")
LATER_S = (SHARED_S + 0.01, 1.0, 6.0, 31.0, 1240.0)

texts = st.dictionaries(st.sampled_from(NAMES), st.sampled_from("123"), max_size=3)
contents = st.fixed_dictionaries(dict.fromkeys(TYPES, texts))
clients = st.sets(st.integers(0, CLIENTS - 1), min_size=1, max_size=CLIENTS)
names = st.sets(st.sampled_from((*NAMES, "missing")), max_size=3)


class TwinServer(Server):
    """Its streams have twins."""

    stream_type = TwinStream


class Cohort(RuleBasedStateMachine):
    """Clients that mostly do the same. A rule takes some of them a step, and the others may follow, or not."""

    variant = Variant.SOTW

    @initialize(content=contents)
    def start(self, content: dict[str, dict[str, str]]) -> None:
        self.server = TwinServer()
        self.content = dict.fromkeys(GROUPS, content)
        for group in GROUPS:
            self.server.push(content, group)
        self.base: Snapshot | None = None  # of the rollout
        self.had_head: set[str] = set()
        self.step = 0
        self.clients = [
            Client(self.server, self.variant, f"node-{number}", peer=f"peer-{number}", zone=ZONES[number // 3])
            for number in range(CLIENTS)
        ]
        for client in self.clients:
            client.subscribe(CLUSTER)
            client.subscribe(ENDPOINT, *NAMES)
            client.subscribe(LISTENER)
            client.subscribe(ROUTE, *NAMES)
            client.settle()

    def _of(self, indexes: Iterable[int]) -> list[Client]:
        return [self.clients[index] for index in sorted(indexes)]

    @rule(content=contents, group=st.sampled_from(GROUPS), told=clients)
    def push(self, content: dict[str, dict[str, str]], group: str, told: set[int]) -> None:
        """Some clients are told of it; the others later, or of the next push only."""
        self.content[group] = content
        self.server.push(content, group, wake=False)
        self.wake(told)

    @rule(url=st.sampled_from(TYPES), name=st.sampled_from(NAMES), text=st.sampled_from("123"), told=clients)
    def push_one(self, url: str, name: str, text: str, told: set[int]) -> None:
        content = self.content["default"]
        self.push({**content, url: {**content[url], name: text}}, "default", told)

    @rule(told=clients)
    def wake(self, told: set[int]) -> None:
        for client in self._of(told):
            client.wake()

    @rule(put=texts, gone=names)
    def observe(self, put: dict[str, str], gone: set[str]) -> None:
        self.server.observe(put, gone - put.keys())

    @rule(suffixes=st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("+1", "+2")), max_size=2))
    def lay_over(self, suffixes: dict[str, str]) -> None:
        self.server.lay_over({ZONES[1]: suffixes})

    @rule(content=contents, wave=clients, told=clients)
    def roll(self, content: dict[str, dict[str, str]], wave: set[int], told: set[int]) -> None:
        """A rollout to some nodes begins, or takes a step."""
        head = {f"node-{index}" for index in wave}
        self.had_head |= head
        had_head, self.step = frozenset(self.had_head), self.step + 1
        begins = self.base is None
        split = GroupSplit(
            self.base or self.server.cache.pushed("default"),
            lambda node: node.id in head,
            lambda node: node.id in had_head,
            lambda revision: False,
            self.step,
            self.server.now,
        )
        self.base = split.base
        if begins:
            self.server.note_split(split)
            self.push(content, "default", told)
        else:
            self.server.roll(split, wake=False)
            self.wake(told)

    @rule(told=clients)
    def end_rollout(self, told: set[int]) -> None:
        self.base = None
        self.server.roll(None, wake=False)
        self.wake(told)

    @rule(some=clients)
    def move(self, some: set[int]) -> None:
        """Some nodes belong to another group from now on."""
        self.server.select(("other", " or ".join(f'node.id == "node-{index}"' for index in sorted(some))))

    @rule(some=clients, times=st.integers(1, 3))
    def ack(self, some: set[int], times: int) -> None:
        for client in self._of(some):
            for _ in range(min(times, len(client.inbox))):
                client.ack()

    @rule(some=clients)
    def settle(self, some: set[int]) -> None:
        for client in self._of(some):
            client.settle()

    @rule(index=st.integers(0, CLIENTS - 1))
    def nack(self, index: int) -> None:
        if self.clients[index].inbox:
            self.clients[index].nack()

    @rule(some=clients, url=st.sampled_from(TYPES), wanted=st.lists(names, min_size=2, max_size=2))
    def want(self, some: set[int], url: str, wanted: list[set[str]]) -> None:
        """At the same time some want these names, and some others."""
        for number, client in enumerate(self._of(some)):
            if url in client.types:
                client.want(url, wanted[number % 2])

    @rule(some=clients, url=st.sampled_from(TYPES))
    def repeat(self, some: set[int], url: str) -> None:
        """A second ACK, or a request whose nonce is not the last one."""
        for client in self._of(some):
            if self.variant is Variant.SOTW and url in client.types and client.types[url].nonce:
                client.repeat(url)

    @rule(some=clients)
    def reconnect(self, some: set[int]) -> None:
        for client in self._of(some):
            client.reconnect()

    @rule(index=st.integers(0, CLIENTS - 1), url=st.sampled_from(TYPES))
    def open_another(self, index: int, url: str) -> None:
        """A client has a second stream for a while, which shares its state."""
        second = Client(self.server, self.variant, f"node-{index}", peer=f"peer-{index}", zone=ZONES[index // 3])
        second.subscribe(url, *NAMES)
        self.clients[index].settle()
        second.disconnect()

    @rule(some=clients)
    def release(self, some: set[int]) -> None:
        """An operator ends what lingers."""
        for client in self._of(some):
            client.take(client.stream.end_lingering(self.server.now))

    @rule(seconds=st.sampled_from(LATER_S))
    def elapse(self, seconds: float) -> None:
        self.server.elapse(seconds)

    def teardown(self) -> None:
        for client in getattr(self, "clients", ()):
            client.disconnect()
        if hasattr(self, "server"):
            self.server.cohorts.forget_outcomes(self.server.now + 1)
            assert not len(self.server.cohorts)
            assert not len(self.server.clients)


class DeltaCohort(Cohort):
    variant = Variant.DELTA


@pytest.mark.hypothesis
@pytest.mark.timeout(3600)  # a failure is shrunk to its shortest form first
@pytest.mark.parametrize("machine", [Cohort, DeltaCohort], ids=["sotw", "delta"])
def test_clients_that_share_a_state_are_told_what_they_would_be_told_alone(machine: type[Cohort]) -> None:
    tried = examples(60, in_soak=250, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=tried)


@pytest.mark.parametrize("split", [False, True], ids=["ads", "split"])
@pytest.mark.parametrize("variant", list(Variant), ids=lambda variant: variant.value)
def test_random_worlds_are_the_same_with_cohorts(
    variant: Variant, split: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Server, "stream_type", TwinStream)
    play_seeds(variant, split, 0, SEEDS)
