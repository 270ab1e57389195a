"""What streams in one state did is counted and told together, in the order in which each stream did it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.fleet.conftest import resource_set, response
from xds.fleet.fleet import Fleet
from xds.fleet.state import Sync
from xds.model.node import Node
from xds.model.resource_type import CLUSTER
from xds.protocol.cohort import Outcome, RequestKey
from xds.protocol.dialect import Variant
from xds.protocol.events import Acked, Event, Identified, Send
from xds.server.counters import Metrics
from xds.server.observer import SharedObservations, StreamObserver

SENT = response(resource_set("clusters", "1", a="x", b="x"))
SEND, ACKED = Send(CLUSTER, "n", b"body", SENT), Acked(CLUSTER, "n", SENT)
REQUEST = RequestKey(CLUSTER, "n", frozenset(), frozenset())


class Streams:
    """Observers of streams of nodes of their own."""

    def __init__(self, number: int) -> None:
        self.fleet, self.metrics = Fleet(), Metrics()
        self.shared = SharedObservations(self.fleet, self.metrics)
        engine: Any = SimpleNamespace(api_version="", node=None, group="default")
        self.observers = [
            StreamObserver(
                index,
                "p",
                "ADS",
                Variant.SOTW,
                engine=engine,
                fleet=self.fleet,
                metrics=self.metrics,
                shared=self.shared,
            )
            for index in range(number)
        ]
        for index, observer in enumerate(self.observers):
            observer.opened()
            observer.observe([Identified(Node(f"n{index}"), "default")], 0.0)

    def states(self) -> list[list[Sync]]:
        return [[each.state for each in stream.types] for stream in self.fleet.streams()]


def outcome(given: Any, *events: Event) -> Outcome:
    after: Any = SimpleNamespace(view=SimpleNamespace(log=SimpleNamespace(state=0)))
    return Outcome(given, list(events), after, 0.0)


async def test_streams_that_took_an_outcome_are_told_in_the_next_iteration() -> None:
    streams = Streams(3)
    sent, acked = outcome(None, SEND), outcome(REQUEST, ACKED)
    for observer in streams.observers:
        streams.shared.add(sent, observer, 1.0)
    await asyncio.sleep(0)
    assert streams.states() == [[Sync.PENDING]] * 3
    for observer in streams.observers[:2]:
        streams.shared.add(acked, observer, 3.0)
    await asyncio.sleep(0)
    assert streams.states() == [[Sync.SYNCED], [Sync.SYNCED], [Sync.PENDING]]
    counters = streams.metrics.type(CLUSTER)
    assert (counters.responses, counters.resources, counters.kinds["ack"]) == (3, 6, 2)
    assert (sum(counters.ack_seconds.counts), counters.ack_seconds.total) == (2, 4.0)


async def test_a_stream_that_takes_two_outcomes_at_once_is_told_of_them_in_order() -> None:
    streams = Streams(2)
    sent, acked = outcome(None, SEND), outcome(REQUEST, ACKED)
    streams.shared.add(sent, streams.observers[0], 1.0)
    await asyncio.sleep(0)
    streams.shared.add(acked, streams.observers[0], 2.0)  # so the ACK is before the response among what was noted
    streams.shared.add(sent, streams.observers[1], 2.0)
    streams.shared.add(acked, streams.observers[1], 2.0)
    await asyncio.sleep(0)
    assert streams.states() == [[Sync.SYNCED]] * 2


async def test_what_was_noted_is_told_before_a_stream_does_something_alone_or_ends() -> None:
    streams = Streams(2)
    for observer in streams.observers:
        streams.shared.add(outcome(None, SEND), observer, 1.0)
    streams.observers[0].observe([ACKED], 2.0)
    streams.observers[1].closed(1.0, "OK", "")
    assert streams.states() == [[Sync.SYNCED]]
    assert streams.metrics.type(CLUSTER).responses == 2


async def test_a_stream_that_has_acked_everything_keeps_no_table_of_times() -> None:
    streams = Streams(1)
    streams.observers[0].observe([SEND], 1.0)
    streams.observers[0].observe([ACKED], 2.0)
    assert streams.observers[0].sent_at is None
