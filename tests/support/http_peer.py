"""An HTTP server that answers as a test says, for tests of clients."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.process import LOOPBACK

GZIP = b"\x1f\x8b"


class Handler(BaseHTTPRequestHandler):
    """Answers as its server's ``plan`` says, and remembers what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Any = self.server
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        server.asked.append((self.path, dict(self.headers)))
        server.peers.append(self.client_address)
        status, body, is_last = server.plan(self.path)
        if body is None:  # the connection ends without an answer
            self.close_connection = True
            return
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if data.startswith(GZIP):
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = is_last  # without saying so, as a server that gives an idle connection up

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def do_CONNECT(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *arguments: object) -> None:
        return


class Peer(ThreadingHTTPServer):
    """A server that answers by ``plan``: path to status, body, and whether it then closes the connection.

    Without a body (None) it closes the connection instead of an answer.
    """

    def __init__(self) -> None:
        super().__init__((LOOPBACK, 0), Handler)
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.peers: list[Any] = []  # the address that each request came from
        self.plan: Callable[[str], tuple[int, object, bool]] = lambda path: (200, {}, False)
        self.url = f"http://{LOOPBACK}:{self.server_address[1]}"

    def answers(self, status: int, body: object, is_last: bool = False) -> None:
        self.plan = lambda path: (status, body, is_last)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers as the server does, to calls within the program."""
        message = await receive()
        target = scope["raw_path"].decode() + (f"?{scope['query_string'].decode()}" if scope["query_string"] else "")
        self.asked.append((target, {name.decode().title(): value.decode() for name, value in scope["headers"]}))
        assert not message["more_body"]
        status, body, _ = self.plan(target)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": data})


@contextmanager
def serving() -> Iterator[Peer]:
    """A server that runs in the context."""
    peer = Peer()
    thread = threading.Thread(target=peer.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield peer
    finally:
        peer.shutdown()
        thread.join()
        peer.server_close()
