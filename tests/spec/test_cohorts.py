"""Which clients share a state, and that nothing is kept for longer than they need it."""

from __future__ import annotations

import gc
import math
from collections.abc import Mapping
from copy import copy
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.sansio import Client, Server
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE, SECRET
from xds.model.snapshot import Snapshot, empty_set
from xds.proto import wire_pb2
from xds.protocol.ack import AckState, ResponseState
from xds.protocol.client import ClientState
from xds.protocol.cohort import LONELY_REVISIONS, SHARED_S, Cohort, CohortStream
from xds.protocol.decode import CUT_FROM_BYTES, CheckCount
from xds.protocol.dialect import Variant
from xds.protocol.events import Event, HeldContent, NodeMismatch, Send
from xds.protocol.group_logs import LeftGroup
from xds.protocol.heartbeats import Heartbeats
from xds.protocol.hold import Held
from xds.protocol.hold_reasons import Reports
from xds.protocol.known_content import KnownContent, ShownContent
from xds.protocol.proof import Proof
from xds.protocol.rejections import Refused, Rejections
from xds.protocol.requests import Request
from xds.protocol.stream import DiscoveryStream
from xds.protocol.subscription import Subscription
from xds.protocol.transition import Transition
from xds.protocol.watch import Watch
from xds.protocol.watches import Watches
from xds.snapshots.interest import Interest
from xds.snapshots.linger import Lingering, Removal

pytestmark = pytest.mark.usefixtures("without_twins")

NAMED_CLUSTER = frozenset({"c"})
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


def settle_together(clients: list[Client]) -> None:
    """All answer what they are sent, one response after the other."""
    while any(client.inbox for client in clients):
        for client in clients:
            if client.inbox:
                client.ack()


def own_steps(monkeypatch: pytest.MonkeyPatch) -> list[CohortStream]:
    """The streams that leave a cohort for a step from now on."""
    left: list[CohortStream] = []
    leave = CohortStream.leave_cohort

    def note(stream: CohortStream) -> Cohort | None:
        left.append(stream)
        return leave(stream)

    monkeypatch.setattr(CohortStream, "leave_cohort", note)
    return left


def first_requests(monkeypatch: pytest.MonkeyPatch) -> list[CohortStream]:
    """The streams whose first request of clusters is not shared, from now on."""
    received: list[CohortStream] = []
    receive = DiscoveryStream.receive

    def note(stream: CohortStream, request: Request, now_s: float) -> list[Event]:
        if CLUSTER not in stream.watches:
            received.append(stream)
        return receive(stream, request, now_s)

    monkeypatch.setattr(DiscoveryStream, "receive", note)
    return received


def test_an_ordered_push_of_four_types_is_computed_once(
    server: Server, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len({id(cohort(client)) for client in clients}) == 1
    left = own_steps(monkeypatch)
    server.push(content("2"))
    settle_together(clients)
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
    of_others = [each for each in gc.get_objects() if type(each) is Snapshot]  # of tests before this one
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
    cohorts = [each for each in gc.get_objects() if type(each) is Cohort and each.client.cache is server.cache]
    assert len(cohorts) <= CLIENTS
    snapshots = [each for each in gc.get_objects() if type(each) is Snapshot and each.group == "default"]
    kept = {each.revision for each in snapshots if all(each is not other for other in of_others)}
    assert not kept.intersection(range(3, PUSHES // 2)), "of the first ones the silent clients keep what they have"


@pytest.mark.parametrize(
    ("variant", "changed"),
    [
        *((each, {"type_url": LISTENER}) for each in Variant),
        *((each, {"response_nonce": "older"}) for each in Variant),
        *((each, {"error_detail": {"code": 3, "message": "refused"}}) for each in Variant),
        *((each, {"type_url": SECRET}) for each in Variant),
        (Variant.SOTW, {"resource_names": ["c"]}),
        (Variant.DELTA, {"resource_names_subscribe": ["c"]}),
        (Variant.DELTA, {"resource_names_unsubscribe": ["c"]}),
        (Variant.DELTA, {"initial_resource_versions": {"c": "1"}}),
    ],
    indirect=["variant"],
)
def test_only_equal_requests_are_one_input(
    clients: list[Client], changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = own_steps(monkeypatch)
    request = {"type_url": CLUSTER, "response_nonce": "old"}
    for client, fields in zip(clients, (request, request, request | changed), strict=False):
        client.request(**fields)
    assert [each is clients[0].stream for each in left] == [True, False]


def test_the_first_request_of_a_further_type_is_computed_once(
    clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = own_steps(monkeypatch)
    for client in clients:
        client.request(type_url=SECRET)
    assert {id(stream) for stream in left} == {id(clients[0].stream)}


def test_clients_that_come_back_together_share_their_steps_from_the_first_request(
    server: Server, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    for client in clients:
        client.disconnect()
    server.push(content("2"))
    received = first_requests(monkeypatch)
    left = own_steps(monkeypatch)
    for client in clients:
        client.connect()
    for url in content(""):
        for client in clients:
            client._resume(url, client.types[url])
    settle_together(clients)
    assert received == [clients[0].stream]
    assert {id(stream) for stream in left} == {id(clients[0].stream)}
    assert [client.texts(ROUTE) for client in clients] == [{"r": "2"}] * CLIENTS


def test_of_a_client_that_comes_alone_only_the_first_step_is_kept_for_others(
    server: Server, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.elapse(2 * SHARED_S)
    server.cohorts.forget_outcomes(server.now)
    before = len(server.cohorts)
    clients[0].reconnect()
    clients[0].settle()
    assert cohort(clients[0]) is None
    assert len(server.cohorts) == before + 1
    server.elapse(2 * SHARED_S)
    received = first_requests(monkeypatch)
    clients[1].reconnect()
    assert received == [clients[1].stream]


def test_the_steps_of_a_client_are_kept_for_others_once_another_was_in_its_state(
    server: Server, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = own_steps(monkeypatch)
    server.push(content("2"))
    steps = []
    for client in clients:
        before = len(left)
        client.settle()
        steps.append(len(left) - before)
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > steps[-1]


@pytest.mark.parametrize("changed", ["user agent", "refused", "group", "shown"])
def test_clients_that_come_with_something_of_their_own_share_no_first_step(
    server: Server, variant: Variant, clients: list[Client], changed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for client in clients:
        client.disconnect()
    received = first_requests(monkeypatch)
    for client in clients[:2]:
        client.reconnect()
    last = clients[2]
    if changed == "user agent":
        last.node = wire_pb2.Node(id="node-2", user_agent_name="gRPC C++").SerializeToString()
    elif changed == "refused":
        server.clients.note_rejected("node-2", CLUSTER, {"c": ("bad",)})
    elif changed == "group":
        server.push(content("1"), "other")
        server.select(("other", 'node.id == "node-2"'))
    else:
        last.types[CLUSTER].version_info, last.types[CLUSTER].versions = "other", {"c": "other"}
    last.reconnect()
    assert received[-1] is last.stream


def test_a_request_that_needs_a_response_is_not_handled_before_its_turn(
    variant: Variant, clients: list[Client]
) -> None:
    asked = Request(CLUSTER, NAMED_CLUSTER, nonce="old")
    first, second, *_ = (client.stream for client in clients)
    assert isinstance(second, CohortStream)
    assert any(isinstance(event, Send) for event in first.receive(asked, 0.0))
    assert second.take_request(b"", lambda *_: asked, 0.0) is None
    assert any(isinstance(event, Send) for event in second.receive(asked, 0.0))


@pytest.mark.parametrize("size", [100, CUT_FROM_BYTES])
def test_a_short_request_is_decoded_once_and_a_long_one_is_not_looked_up_whole(
    server: Server, variant: Variant, clients: list[Client], size: int
) -> None:
    """A long one has a node of its own, which is cut off before."""
    server.push(content("1") | {LISTENER: {"l": "2"}})
    nonce = clients[0].stream._offers.watches[LISTENER].ack.nonce
    asked = Request(LISTENER, nonce=nonce)
    decoded: list[bytes] = []

    def decode(data: bytes, check: CheckCount) -> Request:
        decoded.append(data)
        return asked

    first, *others = (client.stream for client in clients)
    first.receive(asked, 0.0)
    for stream in others:
        assert isinstance(stream, CohortStream)
        assert stream.take_request(bytes(size), decode, 0.0) is not None
    assert len(decoded) == (1 if size < CUT_FROM_BYTES else len(others))


def test_each_client_is_told_of_its_change_of_groups(server: Server, clients: list[Client]) -> None:
    for client in clients:
        client.stream._may_return = lambda node, group: False  # so nothing in its state tells of the former group
    server.push(content("2"), "other")
    server.select(("other", " or ".join(f'node.id == "node-{number}"' for number in range(CLIENTS))))
    assert [server.clients.followed(f"node-{number}")[0].group for number in range(CLIENTS)] == ["other"] * CLIENTS


def test_an_outcome_is_not_taken_when_the_removal_log_answers_otherwise(
    server: Server, clients: list[Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.push(content("2"), wake=False)
    left = own_steps(monkeypatch)
    clients[0].wake()
    server.cache.note_refused(CLUSTER, {"c": ("another",)})
    clients[1].wake()
    assert len(left) == 2


# What decides the next steps of a client that is in step, each with another value; some attributes change together.
# ``watch`` is that of clusters.
DECIDES: Mapping[str, object] = {
    "stream._dialect": SimpleNamespace(variant=None),
    "stream._type_url": ENDPOINT,
    "stream._remaining_since_s": 0.0,
    "stream.view client.view": SimpleNamespace(),
    "client.released": copy,
    "client.reports.lingering client.lingering": Lingering(),
    "client.transition": Transition(0.0, Held(Snapshot("default", 9, {}))),
    "client.proof.clusters": empty_set(CLUSTER),
    "client.proof.overdue": frozenset({"c"}),
    "client.returned_s": -math.inf,
    "client.is_aggregated": False,
    "client.has_requested_assignments": False,
    "client.drain_until_s": math.inf,
    "client.streams": 2,
    "client.former_groups": (LeftGroup("other", 1),),
    "client.refused_before": {CLUSTER: {"c": ("1",)}},
    "client.reports.lingering": Lingering(),
    "client.reports.held_content": (HeldContent((), ()),),
    "client.reports.cut_removals": (Removal(1, {}, None),),
    "client.watches._pending_since_s": {CLUSTER: 0.0},
    "client.view": None,
    "client.watches.refused": {CLUSTER: {"c": ("1",)}},
    "watch.acked_label": "x",
    "watch.allows_placeholders": None,
    "watch.heartbeats": Heartbeats(0.0),
    "watch.pending_release": frozenset("x"),
    "watch.reads_errors": None,
    "watch.rejections": Rejections(Refused(), 0),
    "watch.reported_missing": frozenset("x"),
    "watch.resend_names": frozenset("x"),
    "watch.response_position": 1 << 30,
    "watch.shown": ShownContent(has_versions=True),
    "watch.superseded": (("1", None),),
    "watch.ack.nonce": "x",
    "watch.ack.state": ResponseState.REJECTED,
    "watch.known.base": empty_set(CLUSTER),
    "watch.known.is_doubtful": True,
    "watch.known.unanswered": frozenset("x"),
    "watch.known.uncertain": {"x": ""},
    "watch.subscription.interest": Interest(),
    "watch.subscription.is_explicit": None,
}
# What does not decide them, or follows from the rest.
OTHERS: Mapping[str, str] = {
    "stream": "_budgets _cache _client _clients _cohort _cohorts _has_unknown_names _is_lonely _limits _offers",
    "stream before a group or with another": "_authorize _may_return _parked",
    "stream of a node": "_node_prefix _peer client_key node",
    "stream that decides its view": "_matched_epoch _matched_group _matched_line api_version",
    "client": "cache proof reports rules watches",
    "client as the view": "goal",
    "client within a step": "_may_send",
    "client of whose responses the order counts": "_position",
    "client.proof": "",
    "client.reports": "",
    "client.watches": "_watches",
    "client.watches by the types": "has_v2",
    "watch": "ack known subscription type",
    "watch of a type that is pending": "is_pending",
    "watch by the last response": "sent_label",
    "watch.ack": "dirty_since_s in_flight newest_number",
    "watch.known": "",
    "watch.subscription by the type": "_legacy_allowed",
    "watch.subscription that is answered": "_started",
}
PARTS: Mapping[str, tuple[type, ...]] = {
    "stream": (DiscoveryStream, CohortStream),
    "client": (ClientState,),
    "client.proof": (Proof,),
    "client.reports": (Reports,),
    "client.watches": (Watches,),
    "watch": (Watch,),
    "watch.ack": (AckState,),
    "watch.known": (KnownContent,),
    "watch.subscription": (Subscription,),
}


def situation(client: Client) -> object:
    """The situation of a client; None if it shares its state with nobody in it."""
    stream: Any = client.stream
    return stream._find_situation(client.server.now) if stream._is_shareable(stream.client) else None


@pytest.mark.parametrize("part", PARTS)
def test_each_attribute_of_a_state_is_known_to_decide_the_next_steps_or_not(part: str) -> None:
    """A new one must be in the situation, or in the list of those that need not be."""
    has = {slot for owner in PARTS[part] for slot in owner.__slots__}  # type: ignore[attr-defined]
    paths = (path.rpartition(".") for together in DECIDES for path in together.split())
    deciding = {name for owner, _, name in paths if owner == part}
    others = {name for where, names in OTHERS.items() if where.split(" ")[0] == part for name in names.split()}
    assert has == deciding | others
    assert not deciding & others


@pytest.mark.parametrize("paths", DECIDES)
def test_clients_that_differ_in_what_decides_the_next_steps_share_no_state(clients: list[Client], paths: str) -> None:
    stream: Any = clients[0].stream
    stream.leave_cohort()
    before = situation(clients[0])
    assert before == situation(clients[1]) is not None
    value = DECIDES[paths]
    for path in paths.split():
        start, *inner, name = path.split(".")
        owner: Any = {"stream": stream, "client": stream.client, "watch": stream.watches[CLUSTER]}[start]
        for part in inner:
            setattr(owner, part, copy(getattr(owner, part)))
            owner = getattr(owner, part)
        object.__setattr__(owner, name, value(getattr(owner, name)) if value is copy else value)
    assert situation(clients[0]) != before


def test_a_client_that_has_just_returned_is_not_in_step(server: Server, clients: list[Client]) -> None:
    stream: Any = clients[0].stream
    stream.leave_cohort()
    stream.client.returned_s = server.now
    assert situation(clients[0]) is None
    server.now += server.rules.return_s
    assert situation(clients[0]) is not None
