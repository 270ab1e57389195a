"""The event log: numbers, bounds, who is told what."""

from __future__ import annotations

from tests.fleet.conftest import Client, resource_set, response
from xds.fleet.event_log import (
    DEFAULT_KINDS,
    EventFilter,
    EventKind,
    EventLog,
)
from xds.fleet.fleet import Fleet
from xds.model.resource_type import type_url_of
from xds.protocol.events import AckWaitTimedOut

ALL = EventFilter(frozenset(EventKind))


def told(log: EventLog, *kinds: EventKind) -> list[tuple[str, str]]:
    """Kind and action of all events."""
    page = log.after(0, EventFilter(frozenset(kinds or EventKind)), 1000)
    return [(event.kind.value, event.action) for event in page.events]


def test_numbers_grow_and_a_reader_continues_where_it_was() -> None:
    log = EventLog(first_id=100)
    log.record(EventKind.PUSH, "committed", 1.0, group="a")
    log.record(EventKind.NODE, "connected", 2.0, node="n1")
    log.record(EventKind.PUSH, "committed", 3.0, group="b")
    first = log.after(99, ALL, 2)
    assert [event.id for event in first.events] == [100, 101]
    rest = log.after(first.cursor, ALL, 2)
    assert [event.id for event in rest.events] == [102]
    assert not first.lagged and not rest.lagged


def test_a_reader_learns_of_forgotten_events() -> None:
    log = EventLog(rare_limit=2)
    for number in range(4):
        log.record(EventKind.PUSH, "committed", 1.0, revision=number)
    page = log.after(0, ALL, 10)
    assert page.lagged
    assert [event.revision for event in page.events] == [2, 3]
    assert not log.after(2, ALL, 10).lagged


def test_a_number_of_another_process_counts_as_forgotten() -> None:
    log = EventLog(first_id=1000)
    log.record(EventKind.PUSH, "committed", 1.0)
    assert log.after(12, ALL, 10).lagged
    later = log.after(5_000, ALL, 10)
    assert later.lagged and len(later.events) == 1


def test_frequent_events_do_not_push_out_rare_ones() -> None:
    log = EventLog(frequent_limit=3)
    log.record(EventKind.PUSH, "committed", 1.0)
    for _ in range(50):
        log.record(EventKind.STREAM, "opened", 1.0)
    assert told(log) == [("push", "committed")] + [("stream", "opened")] * 3
    assert not log.after(0, EventFilter(frozenset({EventKind.PUSH})), 10).lagged
    assert log.after(0, ALL, 10).lagged


def test_filters() -> None:
    log = EventLog()
    log.record(EventKind.NACK, "opened", 1.0, group="a", node="n1")
    log.record(EventKind.NACK, "opened", 1.0, group="b", node="n2")
    assert [event.node for event in log.after(0, EventFilter(group="b"), 10).events] == ["n2"]
    assert [event.node for event in log.after(0, EventFilter(node="n1"), 10).events] == ["n1"]


def test_waiting_readers_are_called_once() -> None:
    log, called = EventLog(), list[str]()
    log.call_on_next(lambda: called.append("first"))
    log.record(EventKind.PUSH, "committed", 1.0)
    log.record(EventKind.PUSH, "committed", 1.0)
    assert called == ["first"]
    log.call_on_next(lambda: called.append("end"))
    log.close()
    assert called == ["first", "end"]


def test_messages_are_bounded() -> None:
    log = EventLog()
    log.record(EventKind.NACK, "opened", 1.0, message="x" * 100_000)
    assert len(log.after(0, ALL, 1).events[0].message) == 1000


def test_connection_and_disconnection_of_a_node_are_events(fleet: Fleet) -> None:
    client, second = Client(fleet, "n1"), Client(fleet, "n1")
    client.close()
    second.close()
    assert told(fleet.events) == [
        ("node", "connected"),
        ("stream", "opened"),
        ("stream", "opened"),
        ("stream", "closed"),
        ("stream", "closed"),
        ("node", "disconnected"),
    ]


def test_nacks_open_once_and_resolve(fleet: Fleet) -> None:
    client = Client(fleet)
    client.nack(response(resource_set("clusters", "2", bad="x")), "malformed")
    client.nack(response(resource_set("clusters", "2", bad="x")), "malformed")
    client.ack(response(resource_set("clusters", "3", bad="y")))
    assert told(fleet.events, EventKind.NACK) == [("nack", "opened"), ("nack", "resolved")]
    assert fleet.events.after(0, ALL, 10).events[2].message == "malformed"


def test_acks_are_recorded_while_a_reader_wants_them(fleet: Fleet) -> None:
    client = Client(fleet)
    client.ack(response(resource_set("clusters", "1", a="x")))
    with fleet.events.watching({EventKind.ACK}):
        client.ack(response(resource_set("clusters", "2", a="y")))
    client.ack(response(resource_set("clusters", "3", a="z")))
    assert told(fleet.events, EventKind.ACK) == [("ack", "acked")]
    assert EventKind.ACK not in DEFAULT_KINDS


def test_a_node_that_loses_its_group_is_one_event(fleet: Fleet) -> None:
    one, two = Client(fleet, "n1", "edge"), Client(fleet, "n1", "edge")
    for group in ("", "other"):
        one.follow(group)
        two.follow(group)
    assert [action for kind, action in told(fleet.events) if kind == "node"] == ["connected", "orphaned", "moved"]


def test_a_wait_that_timed_out_is_an_event(fleet: Fleet) -> None:
    Client(fleet).apply_events(AckWaitTimedOut(type_url_of("clusters")))
    assert told(fleet.events, EventKind.ORDER) == [("order", "wait_ended")]
