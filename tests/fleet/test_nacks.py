"""NACK records: what makes one, what resolves it, what bounds them."""

from __future__ import annotations

from tests.fleet.conftest import Client, resource_set, response
from xds.fleet.fleet import Fleet
from xds.fleet.nacks import MESSAGE_LIMIT, NackLog
from xds.fleet.state import NackRecord, NackState
from xds.protocol.events import Nacked
from xds.protocol.requests import ErrorDetail


def only(fleet: Fleet) -> NackRecord:
    [record] = fleet.nack_log.select()
    return record


def test_a_record_has_node_names_and_message(fleet: Fleet) -> None:
    Client(fleet, "n1", "edge").nack(response(resource_set("clusters", "2", bad="x")), "malformed")
    record = only(fleet)
    assert (record.node, record.group, record.type, record.version) == ("n1", "edge", "clusters", "2")
    assert (record.code, record.message, record.names, record.resources) == (13, "malformed", ("bad",), 1)
    assert (record.state, record.count) == (NackState.OPEN, 1)


def test_the_same_content_refused_again_raises_the_count(fleet: Fleet) -> None:
    served = resource_set("clusters", "2", bad="x")
    first = Client(fleet)
    first.nack(response(served))
    first.close()
    Client(fleet).nack(response(served))
    assert only(fleet).count == 2


def test_a_later_ack_resolves(fleet: Fleet) -> None:
    client = Client(fleet)
    client.nack(response(resource_set("clusters", "2", bad="x")))
    client.ack(response(resource_set("clusters", "3", bad="fixed")))
    assert only(fleet).state is NackState.RESOLVED
    assert not fleet.nack_log


def test_the_ack_of_other_names_does_not_resolve(fleet: Fleet) -> None:
    client, other = Client(fleet), Client(fleet)
    served = resource_set("endpoints", "2", bad="x", good="y")
    client.nack(response(served, names=("bad",)))
    other.ack(response(served, names=("good",)))
    assert only(fleet).state is NackState.OPEN
    client.ack(response(resource_set("endpoints", "3", bad="fixed", good="y"), names=("bad",)))
    assert only(fleet).state is NackState.RESOLVED


def test_a_name_no_longer_wanted_resolves(fleet: Fleet) -> None:
    client = Client(fleet)
    client.subscribe("endpoints", "bad", "good")
    client.nack(response(resource_set("endpoints", "2", bad="x"), names=("bad",)))
    client.subscribe("endpoints", "good")
    assert only(fleet).state is NackState.RESOLVED


def test_being_in_step_resolves(fleet: Fleet) -> None:
    client = Client(fleet)
    client.nack(response(resource_set("endpoints", "2", bad="x")))
    client.in_step(resource_set("endpoints", "3", bad="old"))
    assert only(fleet).state is NackState.RESOLVED


def test_a_record_stays_open_while_another_client_of_the_same_id_rejects(fleet: Fleet) -> None:
    one, other = Client(fleet), Client(fleet)
    bad, good = resource_set("clusters", "2", c="bad"), resource_set("clusters", "3", c="good")
    one.nack(response(bad))
    other.nack(response(bad))
    one.ack(response(good))
    assert only(fleet).state is NackState.OPEN
    other.ack(response(good))
    assert only(fleet).state is NackState.RESOLVED


def test_filters(fleet: Fleet) -> None:
    for name, group in (("a", "edge"), ("b", "edge"), ("c", "core")):
        Client(fleet, name, group).nack(response(resource_set("clusters", "2", bad="x")))
    Client(fleet, "d", "core").nack(response(resource_set("listeners", "2", bad="x")))
    assert [record.node for record in fleet.nack_log.select(group="edge")] == ["b", "a"]
    assert [record.node for record in fleet.nack_log.select(type="listeners")] == ["d"]
    assert [record.node for record in fleet.nack_log.select(node="c", state="open")] == ["c"]
    assert not list(fleet.nack_log.select(state=NackState.RESOLVED))
    assert not list(fleet.nack_log.select(since=1e9))
    assert fleet.census(0).nacked == {("clusters", "edge"): 2, ("clusters", "core"): 1, ("listeners", "core"): 1}


def refusal(version: str, message: str = "no") -> Nacked:
    served = resource_set("clusters", version, c=version)
    sent = response(served)
    return Nacked(served.type.type_url, sent.nonce, sent, ErrorDetail(13, message))


def test_records_are_bounded_and_the_oldest_resolved_goes_first() -> None:
    log = NackLog(records_limit=3)
    refusals = [log.refuse("n1", "g", refusal(str(number)), float(number))[0] for number in range(3)]
    log.resolve(refusals[1], 5.0)
    log.refuse("n1", "g", refusal("3"), 6.0)
    assert [record.version for record in log] == ["3", "2", "0"]
    log.refuse("n1", "g", refusal("4"), 7.0)
    assert [record.version for record in log] == ["4", "3", "2"]
    assert len(log.open_of("n1", refusals[0].record.type_url)) == 3


def test_text_is_bounded() -> None:
    log = NackLog(text_limit=3 * MESSAGE_LIMIT)
    for number in range(10):
        log.refuse("n1", "g", refusal(str(number), "x" * 10 * MESSAGE_LIMIT), float(number))
    assert len(log) == 2
    assert all(len(record.message) == MESSAGE_LIMIT for record in log)
