"""Random pushes, live changes, overlays, requests, ACKs, NACKs, stale nonces, repeats and reconnects against a model.

When all is quiet, every client holds its snapshot with the live assignments, as it is overlaid for its zone, filtered
by its subscription; and on the way no content is sent that was refused, or that the client has and did not ask for
again.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from tests.support.examples import examples
from tests.support.sansio import Client, Content, Server
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, resource_type
from xds.protocol.ack import ResponseState
from xds.protocol.dialect import Variant
from xds.protocol.events import Acked, Event, Nacked, Send

CUSTOM = "type.googleapis.com/example.Custom"
TYPES = (CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET, CUSTOM)
NAMES = ("a", "b", "c", "d")
ZONES = ("", "za", "zb")  # of the clients
OFFER_TIMEOUT_S = 6.0
ORDER_TIMEOUT_S = 31.0
DRAINED_S = 2 * 620.0  # what lingers of a client that nobody remembers

texts = st.dictionaries(st.sampled_from(NAMES), st.sampled_from("123"), max_size=4)
contents = st.fixed_dictionaries(dict.fromkeys(TYPES, texts))
urls = st.sampled_from(TYPES)
names = st.sets(st.sampled_from((*NAMES, "missing")), min_size=1, max_size=3)
overlays = st.dictionaries(
    st.sampled_from(ZONES[1:]), st.dictionaries(st.sampled_from(NAMES), st.sampled_from(("+1", "+2")), max_size=3)
)
indexes = st.integers(min_value=0, max_value=2)


class WatchfulClient(Client):
    """Fails when the server sends what was refused, or what is held and was not asked for again."""

    def watch(self, pushed: Content) -> None:
        self.refused: dict[str, tuple[bytes, dict[str, str | None]]] = {}  # digest, and the texts as in ``offered``
        self.offered: dict[str, dict[str, str | None]] = {}  # name to the text that was pushed when it was sent
        self.doubted: dict[str, set[str]] = {}  # of refused responses: who knows what was taken of them
        self.asked: dict[str, set[str]] = {}
        self.lost: dict[str, set[str]] = {}
        self.pushed = pushed

    def take(self, events: list[Event]) -> list[Event]:
        for event in events:
            if isinstance(event, Send) and not event.response.heartbeat:
                self._judge(event)
            elif isinstance(event, Nacked):
                texts = self._pushed_texts(event.type_url, event.response.names)
                if self.offered[event.type_url] == texts:
                    self.refused[event.type_url] = event.response.digest, texts
                self.doubted.setdefault(event.type_url, set()).update(event.response.names)
            elif isinstance(event, Acked):
                self.doubted.get(event.type_url, set()).difference_update(event.response.names)
                self.refused.pop(event.type_url, None)  # the client moved on: pushed anew, it is worth a try
        return super().take(events)

    def ask(self, url: str, asked: set[str]) -> None:
        self.refused.pop(url, None)
        self.asked.setdefault(url, set()).update(asked)

    def lose(self, before: Content, after: Content) -> None:
        """The client may have dropped what left the snapshot, so the server sends it again when it is pushed again.

        docs/protocol.md: "Rejected content that a later push brings back" is sent again, because a push in between
        changed it.
        """
        self.pushed = after
        for url, texts in before.items():
            self.lost.setdefault(url, set()).update(set(texts) - set(after[url]))
            _, refused = self.refused.get(url, (b"", {}))
            if any(self._pushed_texts(url, texts) != texts for texts in (refused, self.offered.get(url, {}))):
                self.refused.pop(url, None)

    def _pushed_texts(self, url: str, names: Iterable[str]) -> dict[str, str | None]:
        return {name: self.pushed.get(url, {}).get(name) for name in names}

    def _judge(self, send: Send) -> None:
        url, response = send.type_url, send.response
        digest, _ = self.refused.get(url, (b"", {}))
        assert response.digest != digest, f"refused content of {url} sent again"
        self.offered[url] = self._pushed_texts(url, response.names)
        self._judge_unchanged(send)
        self.asked.pop(url, None)
        self.lost.get(url, set()).difference_update(set(response.names) & set(self.pushed.get(url, ())))

    def _judge_unchanged(self, send: Send) -> None:
        url, response = send.type_url, send.response
        held = self.types.get(url)
        doubtful = url in self.refused or any(s.type_url == url for s, _ in self.inbox)
        if held is None or url == ENDPOINT or doubtful or self.asked.get(url) or not response.names:
            return
        if not (self.lost.get(url, set()) | self.doubted.get(url, set())).isdisjoint(response.names):
            return
        bodies = {name: response.resource_set.resources[name].body for name in response.names}
        same = all(held.resources.get(name) == body for name, body in bodies.items())
        gone = response.removed or (resource_type(url).full_state and set(held.resources) != set(bodies))
        assert not same or gone, f"unchanged content of {url} sent again: {response.names}"


class Engine(RuleBasedStateMachine):
    """Three clients of one variant each run; the clock moves only by rule."""

    variant = Variant.SOTW

    @initialize(content=contents)
    def start(self, content: dict[str, dict[str, str]]) -> None:
        self.server = Server()
        self.content = content
        self.live: dict[str, str] = {}  # assignments that are laid over the pushed ones
        self.overlays: dict[str, dict[str, str]] = {}
        self.server.push(content)
        self.clients = [
            WatchfulClient(self.server, self.variant, f"node-{i}", peer=f"peer-{i}", zone=zone)
            for i, zone in enumerate(ZONES)
        ]
        for client in self.clients:
            client.watch(content)

    @rule(content=contents)
    def push(self, content: dict[str, dict[str, str]]) -> None:
        before, self.content = self.served(), content
        self.change(before)
        self.server.push(content)

    @rule(put=texts, gone=names)
    def observe(self, put: dict[str, str], gone: set[str]) -> None:
        """Live assignments come, change and go."""
        live = {name: text for name, text in self.live.items() if name not in gone}
        before, self.live = self.served(), {**live, **{name: f"live-{text}" for name, text in put.items()}}
        self.change(before)
        self.server.observe({name: self.live[name] for name in put}, gone - put.keys())

    def served(self) -> dict[str, dict[str, str]]:
        """What is pushed, with the live assignments."""
        return {**self.content, ENDPOINT: {**self.content[ENDPOINT], **self.live}}

    def change(self, before: dict[str, dict[str, str]]) -> None:
        """The clients are to be served what is served now."""
        for client in self.clients:
            client.lose(before, self.served())

    @rule(url=urls, name=st.sampled_from(NAMES), text=st.sampled_from("123"))
    def push_one(self, url: str, name: str, text: str) -> None:
        self.push({**self.content, url: {**self.content[url], name: text}})

    @rule(overlays=overlays)
    def lay_over(self, overlays: dict[str, dict[str, str]]) -> None:
        self.overlays = overlays
        self.server.lay_over(overlays)

    @rule(index=indexes, url=urls, wanted=names)
    def subscribe(self, index: int, url: str, wanted: set[str]) -> None:
        client = self.clients[index]
        client.ask(url, wanted)
        client.subscribe(url, *sorted(wanted))

    @rule(index=indexes, url=st.sampled_from((CLUSTER, LISTENER, CUSTOM)))
    def subscribe_wildcard(self, index: int, url: str) -> None:
        client = self.clients[index]
        client.ask(url, set(NAMES))
        client.subscribe(url, *([] if url not in client.types else ["*"]))

    @rule(index=indexes, url=urls, dropped=names)
    def unsubscribe(self, index: int, url: str, dropped: set[str]) -> None:
        client = self.clients[index]
        if url in client.types and client.types[url].names & dropped:
            client.ask(url, dropped)
            client.unsubscribe(url, *sorted(client.types[url].names & dropped))

    @rule(index=indexes)
    def ack(self, index: int) -> None:
        if self.clients[index].inbox:
            self.clients[index].ack()

    @rule(index=indexes, applied=st.integers(min_value=0, max_value=3))
    def nack(self, index: int, applied: int) -> None:
        """The client refuses, having applied some of it (rule 18); no client refuses to hear that nothing is there."""
        client = self.clients[index]
        if client.inbox and client.inbox[0][0].response.names:
            send, _ = client.inbox[0]
            held = client.types[send.type_url]
            for name in [name for name in send.response.names if held.wildcard or name in held.names][:applied]:
                held.resources[name] = send.response.resource_set.resources[name].body
            client.nack()

    @rule(index=indexes, url=urls)
    def repeat(self, index: int, url: str) -> None:
        """A second ACK, or a request with a nonce that is not the last one any more."""
        client = self.clients[index]
        if self.variant is Variant.SOTW and url in client.types and client.types[url].nonce:
            client.asked.setdefault(url, set()).add("*")
            client.repeat(url)

    @rule(index=indexes)
    def reconnect(self, index: int) -> None:
        client = self.clients[index]
        for url in client.types:
            client.ask(url, set(NAMES))
        client.reconnect()

    @rule(seconds=st.sampled_from((1.0, OFFER_TIMEOUT_S, ORDER_TIMEOUT_S, DRAINED_S)))
    def elapse(self, seconds: float) -> None:
        self.server.elapse(seconds)

    @invariant()
    def one_response_in_flight(self) -> None:
        for client in getattr(self, "clients", ()):
            for watch in client.stream._offers.watches.values():
                in_flight = watch.ack.state is ResponseState.IN_FLIGHT
                assert in_flight == (watch.ack.in_flight is not None)

    def teardown(self) -> None:
        if not hasattr(self, "clients"):
            return
        # Content that was refused is not sent again: only a push that changes it repairs the client.
        self._end_with({name: f"last-{name}" for name in NAMES}, {name: f"live-last-{name}" for name in self.live})
        some = sorted(self.live)[:2]
        self._end_with({"a": "last-a", "b": "very last"}, dict.fromkeys(some, "live-very-last"))

    def _end_with(self, held: dict[str, str], live: dict[str, str]) -> None:
        """Push, let everybody ACK and every wait end, and compare."""
        self.server.observe(live, self.live.keys() - live.keys(), wake=False)
        self.live = live
        self.content = dict.fromkeys(self.content, held)
        for client in self.clients:
            for url in client.types:
                client.ask(url, set(NAMES))
        self.server.push(self.content)
        for _ in range(4):
            for client in self.clients:
                client.settle()
            self.server.elapse(ORDER_TIMEOUT_S)
        for _ in range(3):
            self.server.elapse(DRAINED_S)
            for client in self.clients:
                client.settle()
        for client in self.clients:
            self._check_in_step(client)

    def _check_in_step(self, client: WatchfulClient) -> None:
        served = self.served()
        for url, held in client.types.items():
            wanted = set(served[url]) if held.wildcard else set(served[url]) & held.names
            laid = self.overlays.get(ZONES[self.clients.index(client)], {}) if url == ENDPOINT else {}
            expected = {name: served[url][name] + laid.get(name, "") for name in wanted}
            holds = {name: text for name, text in client.texts(url).items() if self._counts(url, name)}
            assert holds == expected, f"{url}: {client.stream.status()}"

    def _counts(self, url: str, name: str) -> bool:
        """SotW has no way to tell a partial type that a name is gone: what is left of it does not count."""
        return self.variant is Variant.DELTA or resource_type(url).full_state or name in self.served()[url]


class DeltaEngine(Engine):
    variant = Variant.DELTA


@pytest.mark.hypothesis
@pytest.mark.timeout(3600)  # a failure is shrunk to its shortest form first
@pytest.mark.parametrize("machine", [Engine, DeltaEngine], ids=["sotw", "delta"])
def test_clients_end_in_step(machine: type[Engine]) -> None:
    tried = examples(60, in_soak=500, suppress_health_check=list(HealthCheck))
    run_state_machine_as_test(machine, settings=tried)


def test_a_refused_cluster_of_the_log_is_sent_again_when_a_push_brings_it_back() -> None:
    """A client is sent what its first push had removed, refuses it, and the next push has it again."""
    without: dict[str, dict[str, str]] = {url: {} for url in TYPES}
    engine = Engine()
    engine.start(content={**without, CLUSTER: {"a": "2"}})
    engine.push(content=without)
    engine.subscribe(index=0, url=CLUSTER, wanted={"a"})
    engine.nack(index=0, applied=0)
    engine.push(content={**without, CLUSTER: {"a": "2"}})
    engine.elapse(seconds=ORDER_TIMEOUT_S)
    assert [sent.response.names for sent, _ in engine.clients[0].inbox][-1] == ("a",)
    engine.teardown()
