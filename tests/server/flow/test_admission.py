"""New connections and streams are served in order, some at a time; silent ones delay nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
import pytest

from tests.server.conftest import Harness, Start, sotw, until, within
from xds.server.counters import Metrics
from xds.server.flow.admission import Admission, AdmissionSlot, ConnectionThrottle
from xds.server.flow.limits import FlowLimits

NEWCOMERS = 500
ON_ONE_CONNECTION = 50


async def entered(admission: Admission, order: list[int], number: int) -> AdmissionSlot:
    slot = await admission.acquire("peer")
    order.append(number)
    return slot


class Line:
    """An admission with few slots, and the order of admission."""

    def __init__(self, slots: int, newcomers: int) -> None:
        self.metrics = Metrics()
        self.admission = Admission(self.metrics, FlowLimits(admission_slots=slots))
        self.order: list[int] = []
        self.tasks = [asyncio.create_task(entered(self.admission, self.order, each)) for each in range(newcomers)]

    async def slot(self, number: int) -> AdmissionSlot:
        """The slot of a newcomer; it does not give it up by itself."""
        slot: AdmissionSlot = await within(self.tasks[number])
        slot.extend()
        return slot


async def test_streams_are_admitted_in_the_order_they_came() -> None:
    line = Line(2, 6)
    for number in range(6):
        (await line.slot(number)).release()
    assert line.order == list(range(6))
    assert sum(line.metrics.admission_seconds.counts) == 6


async def test_those_beyond_the_places_wait() -> None:
    line = Line(2, 5)
    first, _second = await line.slot(0), await line.slot(1)
    assert line.metrics.awaiting_admission == 3
    first.release()
    first.release()  # harmless
    await line.slot(2)
    assert line.metrics.awaiting_admission == 2


async def test_a_cancelled_stream_takes_no_slot() -> None:
    line = Line(1, 4)
    first = await line.slot(0)
    line.tasks[1].cancel()
    first.release()
    line.tasks[2].cancel()  # its turn has come just now
    await until(lambda: line.order == [0, 3])
    assert line.metrics.awaiting_admission == 0


async def test_silence_is_not_waited_for() -> None:
    line = Line(1, 3)  # nobody leaves
    await until(lambda: line.order == [0, 1, 2])


async def test_a_stream_that_sent_its_first_request_loses_its_slot_after_a_time_too() -> None:
    line = Line(1, 2)
    await line.slot(0)
    await until(lambda: line.order == [0, 1])


class Crowd:
    """Streams of several connections, and the order in which they got their slots. Each keeps its slot."""

    def __init__(self, slots: int, share: int, peers: Sequence[str]) -> None:
        limits = FlowLimits(admission_slots=slots, slots_per_connection=share, first_message_s=60.0)
        self.admission = Admission(Metrics(), limits)
        self.order: list[str] = []
        self.slots: list[AdmissionSlot] = []
        self.tasks = [asyncio.create_task(self._enter(peer)) for peer in peers]

    async def _enter(self, peer: str) -> None:
        self.slots.append(await self.admission.acquire(peer))
        self.order.append(peer)

    async def release(self, turn: int) -> None:
        """Release the slot of the stream that got one as number ``turn``, as soon as it has it."""
        await until(lambda: len(self.slots) > turn)
        self.slots[turn].release()

    async def entered(self, *peers: str) -> None:
        """Wait until these got slots, in this order, and nobody else."""
        await until(lambda: len(self.order) >= len(peers))
        await asyncio.sleep(0)
        assert self.order == [*peers]


async def test_connections_take_turns() -> None:
    crowd = Crowd(1, 1, ["a", "a", "a", "a", "b", "c", "c"])
    for turn in range(7):
        await crowd.release(turn)
    await crowd.entered("a", "a", "b", "c", "a", "c", "a")


async def test_a_connection_holds_no_more_than_its_share() -> None:
    crowd = Crowd(4, 2, ["a"] * 5)
    await crowd.entered("a", "a")
    crowd.tasks.append(asyncio.create_task(crowd._enter("b")))
    await crowd.entered("a", "a", "b")
    crowd.slots[0].release()
    await crowd.entered("a", "a", "b", "a")
    crowd.slots[2].release()  # the slot of the other connection is not for the first
    await crowd.entered("a", "a", "b", "a")
    crowd.slots[1].release()
    await crowd.entered("a", "a", "b", "a", "a")


async def test_streams_that_wait_beyond_a_share_and_give_up_leave_nothing() -> None:
    crowd = Crowd(4, 1, ["a"] * 20)
    await crowd.entered("a")
    for task in crowd.tasks[1:-1]:
        task.cancel()
    await asyncio.wait(crowd.tasks[1:-1])
    crowd.slots[0].release()
    await crowd.entered("a", "a")
    crowd.slots[1].release()
    assert not crowd.admission._waiting
    assert not crowd.admission._slots


@pytest.fixture
async def narrow(start: Start) -> Harness:
    """A server with two slots."""
    server = await start(flow=FlowLimits(admission_slots=2))
    server.push({"c1": "a"})
    return server


async def test_streams_that_say_nothing_block_nobody(narrow: Harness) -> None:
    silent = [await narrow.stream() for _ in range(10)]
    for stream in silent:
        await within(stream.call.wait_for_connection())
    await until(lambda: narrow.metrics.streams.total() or narrow.metrics.awaiting_admission)
    speaking = await narrow.stream()
    await speaking.request(node_id="speaks")
    assert (await speaking.receive()).version_info == "1"
    await until(lambda: not narrow.metrics.awaiting_admission)
    await silent[0].request(node_id="speaks late")
    assert (await silent[0].receive()).version_info == "1"


async def test_one_that_vanishes_while_it_waits_leaves_nothing(narrow: Harness) -> None:
    streams = [await narrow.stream() for _ in range(20)]
    for stream in streams:
        stream.call.cancel()
    speaking = await narrow.stream()
    await speaking.request()
    assert (await speaking.receive()).version_info == "1"
    await until(lambda: narrow.metrics.streams.total() == 1 and not narrow.metrics.awaiting_admission)


async def test_a_server_that_drains_turns_away_those_that_still_wait(narrow: Harness) -> None:
    holding = [await narrow.stream() for _ in range(2)]
    waiting = await narrow.stream()
    await until(lambda: narrow.metrics.awaiting_admission or narrow.metrics.streams.total() == len(holding) + 1)
    draining = asyncio.create_task(narrow.server.drain(0.5))
    assert (await waiting.ended())[0] in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.OK}
    await within(draining)


async def test_a_storm_of_newcomers_is_answered_and_the_others_get_their_pushes(server: Harness) -> None:
    established = await server.stream()
    await established.request(node_id="established")
    await established.ack(await established.receive())
    channels = [await server.channel() for _ in range(NEWCOMERS // ON_ONE_CONNECTION)]

    async def come(number: int) -> str:
        call = channels[number % len(channels)].stream_stream(
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
        )()
        await call.write(sotw(node_id=f"new-{number}"))
        assert await call.read() is not grpc.aio.EOF
        call.cancel()
        return "answered"

    storm = [asyncio.create_task(come(number)) for number in range(NEWCOMERS)]
    for edition in range(3):
        snapshot = server.push({"c1": f"edition-{edition}", "c2": "a"})
        response = await established.receive()
        while response.version_info != str(snapshot.revision):
            await established.ack(response)
            response = await established.receive()
        await established.ack(response)
    assert await asyncio.wait_for(asyncio.gather(*storm), 120) == ["answered"] * NEWCOMERS
    assert not +server.metrics.refused


class Newcomer:
    """One connection, and whether it may be read."""

    def __init__(self) -> None:
        self.is_read = True

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


async def test_connections_are_read_as_others_are_served_in_their_order() -> None:
    throttle, connections = ConnectionThrottle(FlowLimits(connection_slots=2)), [Newcomer() for _ in range(5)]
    for connection in connections:
        throttle.add(connection)
    assert [connection.is_read for connection in connections] == [True, True, False, False, False]
    throttle.release(connections[1])
    assert [connection.is_read for connection in connections] == [True, True, True, False, False]
    throttle.release(connections[1])
    assert not connections[3].is_read
    for connection in connections:
        throttle.release(connection)


async def test_a_stream_that_ends_while_it_waits_takes_no_slot() -> None:
    throttle, (first, gone, last) = ConnectionThrottle(FlowLimits(connection_slots=1)), [Newcomer() for _ in range(3)]
    for connection in (first, gone, last):
        throttle.add(connection)
    throttle.release(gone)
    throttle.release(first)
    assert last.is_read and not gone.is_read
    throttle.release(last)


async def test_a_silent_stream_loses_its_slot_soon() -> None:
    throttle, silent, other = ConnectionThrottle(FlowLimits(connection_slots=1)), Newcomer(), Newcomer()
    throttle.add(silent)
    throttle.add(other)
    assert not other.is_read
    await until(lambda: other.is_read)
    throttle.release(other)
    await asyncio.sleep(0)
