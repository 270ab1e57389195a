"""gRPC's wake-up calls do not pile up."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
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


# In a process of its own: it leaves a server whose loop is closed.
LEFT_BEHIND = """
import asyncio, os, threading, time
import grpc
from xds.server.grpcio import Loop

CALLS = 20
begun = threading.Semaphore(0)

async def wait(requests, context):
    begun.release()
    await asyncio.sleep(600)

class Waiting(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(wait)

async def start(handlers=()):
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(handlers)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port

async def leave_calls():
    server, port = await start((Waiting(),))
    method = grpc.insecure_channel(f"127.0.0.1:{port}").stream_stream("/a/b")
    calls = [method(iter(threading.Event().wait, True)) for _ in range(CALLS)]
    for _ in calls:
        assert await asyncio.to_thread(begun.acquire, timeout=20)
    return server, calls

async def start_and_stop():
    server, _ = await start()
    await asyncio.wait_for(server.stop(None), 20)

loop = Loop()  # a runner would end its calls
server, calls = loop.run_until_complete(leave_calls())
loop.close()
for call in calls:
    call.cancel()
time.sleep(0.5)  # their ends wait for the next loop
with asyncio.Runner(loop_factory=Loop) as runner:
    runner.run(start_and_stop())
print("ended", flush=True)
os._exit(0)
"""


def test_a_server_ends_behind_calls_of_a_loop_that_is_closed() -> None:
    """With the real grpcio: it raised at the end of each of these calls, and the end of the server came after them."""
    done = subprocess.run([sys.executable, "-c", LEFT_BEHIND], capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout == "ended\n", done.stderr[-2000:]


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
