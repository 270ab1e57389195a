"""gRPC's wake-up calls do not pile up."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import grpc
import uvloop

from tests.server.conftest import until
from xds.server.grpcio import SKIPPED, Loop

CALLS = 100


class Events:
    """As gRPC's queue of events: a byte for each, of which its handler reads one."""

    def __init__(self) -> None:
        self.read_socket, self.write_socket = socket.socketpair()
        self.handled = 0

    def has_handled(self, times: int) -> bool:
        return self.handled >= times

    def _handle_events(self, loop: object) -> None:
        assert self.read_socket.recv(1)
        self.handled += 1


async def handle_calls() -> int:
    """How often the handler is called for many bytes."""
    loop, events = asyncio.get_running_loop(), Events()
    loop.add_reader(events.read_socket, partial(events._handle_events, loop))
    with events.read_socket, events.write_socket:
        for _ in range(2):
            for _ in range(CALLS):
                events.write_socket.send(b"1")
            await until(partial(events.has_handled, 1))
            for _ in range(2 * CALLS):
                await asyncio.sleep(0)
        loop.remove_reader(events.read_socket)
    return events.handled


def test_calls_that_pile_up_are_taken_at_once() -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(handle_calls()) <= SKIPPED + 2
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(handle_calls()) == 2 * CALLS, "what it is like without"


class ClosedLoops(Events):
    """As gRPC's queue with events of loops that are closed: its handler raises at each, and leaves those behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.queue: list[bool] = []  # whether the loop is closed
        self.raised = 0

    def put(self, is_closed: bool) -> None:
        self.queue.append(is_closed)
        self.write_socket.send(b"1")

    def _handle_events(self, loop: object) -> None:
        assert self.read_socket.recv(1)
        while self.queue:
            if self.queue.pop(0):
                self.raised += 1
                raise RuntimeError("Event loop is closed")
            self.handled += 1


async def handle_behind_closed_loops() -> ClosedLoops:
    loop, events = asyncio.get_running_loop(), ClosedLoops()
    loop.set_exception_handler(lambda *_: None)
    loop.add_reader(events.read_socket, partial(events._handle_events, loop))
    with events.read_socket, events.write_socket:
        for is_closed in (False, True, True, False):
            events.put(is_closed)
        await until(partial(events.has_handled, 2))
        loop.remove_reader(events.read_socket)
    return events


def test_events_behind_those_of_closed_loops_are_handled() -> None:
    """An event that waited for the next one could wait for ever: the end of a server, for instance."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        events = runner.run(handle_behind_closed_loops())
    assert (events.handled, events.raised) == (2, 2)


async def read_plainly() -> bytes:
    reading, writing = socket.socketpair()
    with reading, writing:
        found: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(reading, lambda: found.set_result(reading.recv(10)))
        writing.send(b"all of it")
        data = await asyncio.wait_for(found, 20)
        asyncio.get_running_loop().remove_reader(reading)
        return data


def test_other_readers_are_left_alone() -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(read_plainly()) == b"all of it"


def test_the_queue_of_grpc_is_recognised() -> None:
    """It is known by the name of a method that gRPC does not promise: this tells when it changes."""
    seen: list[object] = []

    class Watching(Loop):
        def _add_waking_reader(self, *arguments: object) -> None:
            seen.append(arguments)
            super()._add_waking_reader(*arguments)

    async def start_and_stop() -> None:
        server = grpc.aio.server()
        server.add_insecure_port("127.0.0.1:0")
        await server.start()
        await server.stop(None)

    with asyncio.Runner(loop_factory=Watching) as runner:
        runner.run(start_and_stop())
    assert seen


async def hear_while_streams_arrive() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, Loop)
    loop.drain_always()
    return await handle_calls()


def test_while_streams_arrive_all_calls_are_taken() -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        assert runner.run(hear_while_streams_arrive()) <= 4
