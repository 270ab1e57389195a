"""Which clients share a state, and that nothing is kept for longer than they need it."""

from __future__ import annotations

import gc

import pytest

from tests.support.sansio import Client, Server
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.model.snapshot import Snapshot
from xds.protocol.cohort import LONELY_REVISIONS, SHARED_S, Cohort, CohortStream
from xds.protocol.dialect import Variant
from xds.protocol.events import NodeMismatch

pytestmark = pytest.mark.usefixtures("without_twins")

NAMED = {ENDPOINT: ("c",), ROUTE: ("r",)}
CLIENTS = 4
PUSHES = 200


def content(text: str) -> dict[str, dict[str, str]]:
    return {CLUSTER: {"c": text}, ENDPOINT: {"c": text}, LISTENER: {"l": text}, ROUTE: {"r": text}}


@pytest.fixture
def clients(server: Server, variant: Variant) -> list[Client]:
    """Clients of one state."""
    server.push(content("1"))
    found = [Client(server, variant, f"node-{number}", peer=f"peer-{number}") for number in range(CLIENTS)]
    for client in found:
        for url in content(""):
            client.subscribe(url, *NAMED.get(url, ()))
        client.settle()
    return found


def cohort(client: Client) -> Cohort | None:
    assert isinstance(client.stream, CohortStream)
    return client.stream._cohort


def own_steps(monkeypatch: pytest.MonkeyPatch) -> list[CohortStream]:
    """The streams that leave a cohort for a step from now on."""
    left: list[CohortStream] = []
    leave = CohortStream.leave_cohort

    def note(stream: CohortStream) -> Cohort | None:
        left.append(stream)
        return leave(stream)

    monkeypatch.setattr(CohortStream, "leave_cohort", note)
    return left


def test_an_ordered_push_of_four_types_is_computed_once(
    server: Server, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len({id(cohort(client)) for client in clients}) == 1
    left = own_steps(monkeypatch)
    server.push(content("2"))
    for client in clients:
        client.settle()
    assert [client.texts(ROUTE) for client in clients] == [{"r": "2"}] * CLIENTS
    assert {id(stream) for stream in left} == {id(clients[0].stream)}
    assert len({id(cohort(client)) for client in clients}) == 1


def test_a_client_that_refuses_goes_alone_and_comes_back(server: Server, clients: list[Client]) -> None:
    server.push({**content("1"), CLUSTER: {"c": "bad"}})
    clients[0].nack(CLUSTER)
    for client in clients[1:]:
        client.settle()
    assert cohort(clients[0]) is None
    assert cohort(clients[1]) is cohort(clients[2]) is not None
    server.push(content("3"))
    for client in clients:
        client.settle()
    server.push(content("4"))
    for client in clients:
        client.settle()
    assert clients[0].texts(CLUSTER) == {"c": "4"}


def test_what_a_client_has_accepted_at_last_is_not_refused_when_it_returns(
    server: Server, clients: list[Client]
) -> None:
    """The others, whose state it shares, have never refused anything."""
    bad, good = {**content("1"), CLUSTER: {"c": "bad"}}, content("1")
    server.push(bad)
    clients[0].nack(CLUSTER)
    assert server.clients.rejected.keys() == {"node-0"}
    for pushed in (good, bad, *(content(str(number)) for number in range(LONELY_REVISIONS))):
        server.push(pushed)
        for client in reversed(clients):  # it is the last to come
            client.settle()
    assert cohort(clients[0]) is cohort(clients[1]) is not None
    clients[0].disconnect()
    assert not server.clients.rejected


def test_a_second_stream_of_a_client_shares_the_state_of_the_client_alone(
    server: Server, variant: Variant, clients: list[Client]
) -> None:
    second = Client(server, variant, "node-0", peer="peer-0")
    second.subscribe(CLUSTER)
    second.settle()
    assert cohort(clients[0]) is None
    assert cohort(second) is None
    assert server.clients.state(second.stream.client_key or ("", "")) is second.stream._require_client()
    second.disconnect()
    server.elapse(60.0)
    server.push(content("2"))
    for client in clients:
        client.settle()
    assert cohort(clients[0]) is not None


def test_another_node_in_a_request_is_told_of_by_the_stream_that_has_it(clients: list[Client]) -> None:
    other = clients[0].node.replace(b"node-0", b"node-X")
    asked = clients[0].request(type_url=CLUSTER, node=other)
    assert any(isinstance(event, NodeMismatch) for event in asked)
    assert not any(isinstance(event, NodeMismatch) for event in clients[1].request(type_url=CLUSTER))
    same = clients[2].request(type_url=CLUSTER, node=clients[2].node)
    assert not any(isinstance(event, NodeMismatch) for event in same)


def test_an_outcome_is_not_taken_later(server: Server, clients: list[Client], monkeypatch: pytest.MonkeyPatch) -> None:
    """So the times in a state are right."""
    server.push(content("2"), wake=False)
    left = own_steps(monkeypatch)
    clients[0].wake()
    clients[1].wake()
    assert len(left) == 1
    server.now += 2 * SHARED_S
    clients[2].wake()
    clients[3].wake()
    assert len(left) == 2


def test_a_client_with_names_of_its_own_looks_for_others_now_and_then(server: Server, variant: Variant) -> None:
    server.push(content("0"))
    lonely = Client(server, variant)
    lonely.subscribe(CLUSTER)
    lonely.settle()
    found = []
    for number in range(2 * LONELY_REVISIONS):
        server.push(content(str(number + 1)))
        lonely.settle()
        found.append(cohort(lonely) is not None)
    assert sum(found) == 2
    another = Client(server, variant, "another", peer="another")
    another.subscribe(CLUSTER)
    another.settle()
    for number in range(LONELY_REVISIONS):
        server.push(content(f"again {number}"))
        lonely.settle()
        another.settle()
    assert cohort(lonely) is cohort(another) is not None


def test_nothing_is_kept_of_old_pushes(server: Server, clients: list[Client]) -> None:
    """One client is not told of them, and one does not answer: they keep what they have, and nothing later."""
    late, silent, *others = clients
    server.streams.remove(late)
    for number in range(PUSHES):
        server.push(content(f"push {number}"))
        for client in clients:
            client.events.clear()
        for client in others:
            client.settle()
        server.elapse(1.0)
        assert len(server.cohorts) <= 2 * CLIENTS * len(content(""))
    server.pushed.clear()
    server.pushed_s.clear()
    silent.inbox.clear()
    server.cohorts.forget_outcomes(server.now)
    gc.collect()
    cohorts = [each for each in gc.get_objects() if type(each) is Cohort]
    assert len(cohorts) <= CLIENTS
    kept = {each.revision for each in gc.get_objects() if type(each) is Snapshot and each.group == "default"}
    assert not kept.intersection(range(3, PUSHES // 2)), "of the first ones the silent clients keep what they have"
