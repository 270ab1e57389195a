"""A small web server for the proxy to send requests to: ``python upstream.py PORT``."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Hello(BaseHTTPRequestHandler):
    """Greets whoever asks."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = f"Hello from the upstream! You asked for {self.path}\n".encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain; charset=utf-8")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Hello).serve_forever()
