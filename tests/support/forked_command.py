"""A command ``xds`` that runs in a fork of `tests.support.commands`: this program hands over its streams and waits.

It imports little, and nothing of the project, so that it starts within some 20 ms.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET_VARIABLE = "COMMANDS_SOCKET"  # no name of a setting


def main() -> int:
    """The exit code of the command."""
    environment = dict(os.environ)
    request = {"arguments": sys.argv[1:], "directory": os.getcwd()}  # noqa: PTH109 - pathlib is imported slowly
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(environment.pop(SOCKET_VARIABLE))
        socket.send_fds(connection, [b"\n"], [0, 1, 2])
        connection.sendall(json.dumps({**request, "environment": environment}).encode() + b"\n")
        with connection.makefile("r") as answers:
            return int(answers.readline())


if __name__ == "__main__":
    sys.exit(main())
