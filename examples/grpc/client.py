"""A gRPC client configured by xDS: ``GRPC_XDS_BOOTSTRAP=client.json python client.py xds:///greeter``."""

from __future__ import annotations

import sys

import grpc

METHOD = "/example.Greeter/Greet"
DEADLINE_S = 20.0


def main(target: str) -> int:
    """Make one call; the exit code."""
    with grpc.insecure_channel(target) as channel:
        try:
            answer = channel.unary_unary(METHOD)(b"world", timeout=DEADLINE_S, wait_for_ready=True)
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}", file=sys.stderr)
            return 1
    print(answer.decode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
