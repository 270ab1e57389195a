"""A gRPC server that knows nothing of xDS: ``python greeter.py HOST:PORT NAME``."""

from __future__ import annotations

import sys
from concurrent import futures

import grpc

SERVICE = "example.Greeter"
THREADS = 4


def main(address: str, name: str) -> None:
    """Serve until the process is ended."""

    def greet(request: bytes, context: grpc.ServicerContext) -> bytes:
        return b"Hello, " + request + b", from " + name.encode() + b"!"

    server = grpc.server(futures.ThreadPoolExecutor(THREADS))
    handler = grpc.method_handlers_generic_handler(SERVICE, {"Greet": grpc.unary_unary_rpc_method_handler(greet)})
    server.add_generic_rpc_handlers((handler,))
    server.add_insecure_port(address)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
