"""One NACK record while the engine finds out what is wrong: its own events, folded as they come."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.sansio import Client, Server
from xds.fleet.event_log import EventFilter, EventKind
from xds.fleet.fleet import Fleet
from xds.fleet.node_state import NodeState
from xds.fleet.state import NackRecord, NackState, Sync, TypeState
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER
from xds.protocol.dialect import Variant
from xds.protocol.events import Event

NAMES = [f"c{index:02}" for index in range(50)]
BAD = "c17"
variants = pytest.mark.parametrize("variant", list(Variant))
types = pytest.mark.parametrize("url", [CLUSTER, LISTENER, ENDPOINT])


def content(text: str = "1", **others: str) -> dict[str, str]:
    return {**dict.fromkeys(NAMES, text), **others}


class Judge(Client):
    """A client that refuses what says ``bad``, and says of which names where ``names`` is true. A fleet looks on."""

    def __init__(self, server: Server, variant: Variant, url: str, *, names: bool = False, **more: Any) -> None:
        self.fleet: Fleet = more.pop("fleet", None) or Fleet()
        self.url, self.is_naming = url, names
        self.stream_id = 0
        super().__init__(server, variant, **more)
        self.subscribe(url, *(() if url != ENDPOINT else NAMES))
        self.judge()

    def connect(self) -> None:
        super().connect()
        self.stream_id += 1
        self.fleet.stream_opened(self.stream_id, self.peer, "ADS", self.variant.value, self.server.now)

    def disconnect(self) -> None:
        super().disconnect()
        self.fleet.stream_closed(self.stream_id, self.server.now)

    def take(self, events: list[Event]) -> list[Event]:
        self.fleet.apply_events(self.stream_id, events, self.server.now, self.server.now)
        return super().take(events)

    def judge(self) -> None:
        """Answer until nothing comes any more."""
        while self.inbox:
            send, message = self.read()
            versions = send.response.resource_set.resources
            bad = [name for name in send.response.names if b"bad" in versions[name].body]
            if not bad:
                self.hold(message)
            self.reply(send, self._words(bad))

    def _words(self, bad: list[str]) -> str:
        if not bad or not self.is_naming:
            return "malformed" if bad else ""
        return "Error adding/updating cluster(s) " + ", ".join(f"{name}: malformed" for name in bad)

    def push(self, texts: Mapping[str, str]) -> None:
        """A push, answered to the end."""
        self.fleet.published(self.server.push({self.url: texts}, wake=False))
        self.server.wake()
        self.judge()

    # What is shown

    @property
    def record(self) -> NackRecord:
        """The only one there is."""
        (found,) = self.fleet.nack_log.select()
        return found

    @property
    def node_state(self) -> NodeState:
        found = self.fleet.node("node")
        assert found is not None
        return found

    @property
    def type_state(self) -> TypeState:
        (found,) = self.node_state.types
        return found

    def verdict(self) -> tuple[Sync, tuple[str, ...]]:
        """How the node stands with what is pushed, and which names it refuses of it."""
        snapshot = self.server.cache.get("default")
        assert snapshot is not None
        found = self.fleet.convergence("default", {self.url: snapshot.get(self.url)})
        state = next(state for state in Sync if getattr(found, state.value, 0))
        return state, tuple(name for record in found.nacks for name in record.guilty)


@pytest.fixture
def server() -> Server:
    return Server()


def refused(server: Server, variant: Variant, url: str, *, names: bool, **bad: str) -> Judge:
    """A client that is in step, and then pushed what it refuses."""
    server.push({url: content()})
    client = Judge(server, variant, url, names=names)
    client.push(content(**(bad or {BAD: "bad"})))
    return client


@variants
@types
def test_one_refused_among_fifty_is_named_by_its_client(server: Server, variant: Variant, url: str) -> None:
    client = refused(server, variant, url, names=True)
    assert (client.record.guilty, client.record.names, client.record.resources) == ((BAD,), (BAD,), 1)
    assert client.verdict() == (Sync.NACKED, (BAD,))
    assert (client.type_state.state, client.type_state.guilty) == (Sync.NACKED, (BAD,))


@variants
def test_one_refused_among_fifty_is_found_where_its_client_names_nobody(server: Server, variant: Variant) -> None:
    client = refused(server, variant, ENDPOINT, names=False)
    record = client.record
    assert (record.guilty, record.names, record.resources) == ((BAD,), (BAD,), 1)
    assert record.state is NackState.OPEN
    assert client.verdict() == (Sync.NACKED, (BAD,))


@variants
@pytest.mark.parametrize("bad", [NAMES[0], BAD, NAMES[24], NAMES[-1]])
def test_many_changes_with_one_refused_are_one_record(server: Server, variant: Variant, bad: str) -> None:
    """All fifty change: a NACK that names nobody, then halves. The one that remains is the rejected one.

    Whether the halves end with a NACK of one name, or with ACKs of all others, depends on its place among them.
    """
    server.push({ENDPOINT: content()})
    client = Judge(server, variant, ENDPOINT)
    for other in ("2", "3"):
        client.push(content("2", c40=other, **{bad: "bad"}))
        record = client.record
        assert (record.guilty, record.names, record.resources, record.state) == ((bad,), (bad,), 1, NackState.OPEN)
    assert 1 < record.count < 20
    assert (client.type_state.state, client.type_state.error) == (Sync.NACKED, "malformed")
    assert client.verdict() == (Sync.NACKED, (bad,))
    told = client.fleet.events.after(0, EventFilter(frozenset({EventKind.NACK})), 100).events
    assert [event.action for event in told] == ["opened", "narrowed"]
    assert told[1].details["guilty"] == bad


@variants
def test_two_refused_in_one_push_are_one_record(server: Server, variant: Variant) -> None:
    server.push({ENDPOINT: content()})
    client = Judge(server, variant, ENDPOINT)
    client.push(content("2", c03="bad", c44="bad"))
    assert set(client.record.guilty) == {"c03"}, "the search for the second one goes on with the next push"
    assert "c44" in client.record.names
    client.push(content("2", c03="fine", c44="bad"))
    assert (client.record.guilty, client.record.state) == (("c03", "c44"), NackState.OPEN)
    client.push(content("2", c03="fine", c44="fine"))
    assert (client.record.state, client.verdict()) == (NackState.RESOLVED, (Sync.SYNCED, ()))


@variants
@types
def test_the_record_stays_open_while_other_resources_are_accepted(server: Server, variant: Variant, url: str) -> None:
    client = refused(server, variant, url, names=True)
    for text in ("2", "3"):
        client.push(content(c00=text, **{BAD: "bad"}))
        assert (client.record.state, client.record.guilty) == (NackState.OPEN, (BAD,))
        assert client.type_state.state is Sync.NACKED
        assert client.verdict() == (Sync.NACKED, (BAD,))


@variants
@types
@pytest.mark.parametrize("mended", ["repaired", "as before", "gone"])
def test_the_record_is_resolved_when_it_is_mended(server: Server, variant: Variant, url: str, mended: str) -> None:
    client = refused(server, variant, url, names=True)
    texts = {"repaired": content(**{BAD: "2"}), "as before": content(), "gone": content()}[mended]
    if mended == "gone":
        del texts[BAD]
    client.push(texts)
    assert client.record.state is NackState.RESOLVED
    assert client.type_state.state is Sync.SYNCED
    assert client.verdict() == (Sync.SYNCED, ())


@variants
@types
def test_other_content_that_is_refused_is_another_record(server: Server, variant: Variant, url: str) -> None:
    client = refused(server, variant, url, names=True)
    client.push(content(c03="bad", **{BAD: "bad"}))
    assert [(record.guilty, record.state) for record in client.fleet.nack_log.select()] == [
        (("c03",), NackState.OPEN),
        ((BAD,), NackState.OPEN),
    ]
    assert set(client.verdict()[1]) == {"c03", BAD}
    client.push(content(c03="2", **{BAD: "bad"}))
    assert [record.state for record in client.fleet.nack_log.select()] == [NackState.RESOLVED, NackState.OPEN]
    assert client.verdict() == (Sync.NACKED, (BAD,))


@variants
@types
def test_the_record_outlives_the_connection(server: Server, variant: Variant, url: str) -> None:
    client = refused(server, variant, url, names=True)
    client.reconnect()
    client.judge()
    assert (client.record.state, client.record.guilty) == (NackState.OPEN, (BAD,))
    assert client.verdict() == (Sync.NACKED, (BAD,))
    client.push(content(**{BAD: "2"}))
    assert (client.record.state, client.verdict()) == (NackState.RESOLVED, (Sync.SYNCED, ()))


@variants
def test_a_name_that_is_not_wanted_any_more_resolves(server: Server, variant: Variant) -> None:
    client = refused(server, variant, ENDPOINT, names=True)
    client.want(ENDPOINT, [name for name in NAMES if name != BAD])
    client.judge()
    assert client.record.state is NackState.RESOLVED
    assert client.type_state.state is Sync.SYNCED
