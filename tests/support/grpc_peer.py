"""A gRPC client or server in a process of its own; JSON lines in and out. Needs grpc and the standard library only.

``client``: ``{"op": "call", "target", "deadline_s", "fresh"}`` -> ``{"status", "body", "details"}``.
``xds-server NAME PORT``: first ``{"port"}``; then ``{"op": "calls"}`` -> ``{"calls"}``.
The method served and called is `METHOD`; its answer is the server's name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc

SERVICE = "test.Name"
METHOD = f"/{SERVICE}/Get"
LOOPBACK = "127.0.0.1"
SERVER_THREADS = 4


class Caller:
    """Calls targets, over one channel per target unless asked for a fresh one."""

    def __init__(self) -> None:
        self._channels: dict[str, Any] = {}

    def call(self, target: str, deadline_s: float = 5.0, fresh: bool = False) -> dict[str, Any]:
        """One call; its status name, body and the status details."""
        if fresh:
            self.close(target)
        # Another channel's connection would be shared, and its back-off with it.
        options = [("grpc.use_local_subchannel_pool", 1)]
        channel = self._channels.setdefault(target, None) or grpc.insecure_channel(target, options)
        self._channels[target] = channel
        try:
            body = channel.unary_unary(METHOD)(b"", timeout=deadline_s)
        except grpc.RpcError as error:
            return {"status": error.code().name, "body": "", "details": error.details()}
        return {"status": "OK", "body": body.decode(), "details": ""}

    def close(self, target: str) -> dict[str, Any]:
        """Close the channel of a target."""
        channel = self._channels.pop(target, None)
        if channel is not None:
            channel.close()
        return {}


class Server:
    """Answers each call with its own name. With ``xds`` it listens when its listener resource has arrived."""

    def __init__(self, name: str, port: int = 0, xds: bool = False) -> None:
        self._name = name.encode()
        self._calls = 0
        arguments = {"xds": True} if xds else {}
        self._server = grpc.server(futures.ThreadPoolExecutor(SERVER_THREADS), **arguments)
        handler = grpc.unary_unary_rpc_method_handler(self._answer)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Get": handler}),))
        self.port = port
        if xds:
            credentials = grpc.xds_server_credentials(grpc.insecure_server_credentials())
            self._server.add_secure_port(f"{LOOPBACK}:{port}", credentials)
        else:
            self.port = self._server.add_insecure_port(f"{LOOPBACK}:{port}")
        self._server.start()

    def _answer(self, request: bytes, context: object) -> bytes:
        self._calls += 1
        return self._name

    def calls(self) -> int:
        """The number of calls received."""
        return self._calls

    def kill(self) -> None:
        """End all calls and connections."""
        self._server.stop(None).wait()


Operations = dict[str, Callable[..., dict[str, Any]]]


def operations(role: str, arguments: list[str]) -> Operations:
    """The operations of a role. A server writes its port first."""
    if role == "client":
        caller = Caller()
        return {"call": caller.call, "close": caller.close}
    server = Server(arguments[0], int(arguments[1]), xds=True)
    say({"port": server.port})
    return {"calls": lambda: {"calls": server.calls()}}


def commands() -> Iterator[dict[str, Any]]:
    """The commands until standard input closes."""
    for line in sys.stdin:
        yield json.loads(line)


def say(answer: dict[str, Any]) -> None:
    """Write one answer."""
    print(json.dumps(answer), flush=True)


def main() -> None:
    """Serve the commands of the role that the arguments name."""
    known = operations(sys.argv[1], sys.argv[2:])
    for command in commands():
        say(known[command.pop("op")](**command))


if __name__ == "__main__":
    main()
