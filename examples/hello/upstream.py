"""A small web server as an upstream: ``python upstream.py PORT [NAME] [--host ADDRESS]``."""

from __future__ import annotations

import argparse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hello(BaseHTTPRequestHandler):
    """Answers every request with a greeting that contains the name of the server."""

    protocol_version = "HTTP/1.1"
    name = "the upstream"

    def do_GET(self) -> None:
        body = f"Hello from {self.name}! You asked for {self.path}\n".encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {len(body)}\r\n\r\n"
        # sent together; apart, the second would wait for the TCP ACK of the first
        self.wfile.write(head.encode() + body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(description="Answers every GET with a greeting.")
    parser.add_argument("port", type=int)
    parser.add_argument("name", nargs="?", default=Hello.name, help="who greets")
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on")
    arguments = parser.parse_args()
    Hello.name = arguments.name
    try:
        server = ThreadingHTTPServer((arguments.host, arguments.port), Hello)
    except OSError as error:
        parser.exit(1, f"cannot listen on {arguments.host}:{arguments.port}: {error.strerror}\n")
    server.serve_forever()


if __name__ == "__main__":
    main()
