"""An xDS-enabled gRPC server: ``GRPC_XDS_BOOTSTRAP=server.json python server.py HOST:PORT``.

The port refuses connections until the management server has sent the listener named after it.
"""

from __future__ import annotations

import sys
from concurrent import futures

import grpc

SERVICE = "example.Greeter"
THREADS = 4


def greet(request: bytes, context: grpc.ServicerContext) -> bytes:
    """The answer to a call. Requests and answers are plain text, so that no generated code is needed."""
    return b"Hello, " + request + b"!"


def main(address: str) -> None:
    """Serve until the process is ended."""
    server = grpc.server(futures.ThreadPoolExecutor(THREADS), xds=True)
    handler = grpc.method_handlers_generic_handler(SERVICE, {"Greet": grpc.unary_unary_rpc_method_handler(greet)})
    server.add_generic_rpc_handlers((handler,))
    server.add_secure_port(address, grpc.xds_server_credentials(grpc.insecure_server_credentials()))
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1])
