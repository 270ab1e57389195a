"""An attacker's site: a page that attacks a target, and ears for what became of it.

Under the path of the target's API it passes requests on to the target: for the browser that is DNS rebinding, the same
origin with another server behind it.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from tests.support.process import LOOPBACK

Json = dict[str, Any]
PAGE = (Path(__file__).parent / "page.html").read_text()
REBOUND = ("/api/", "/v3/", "/metrics")


class EvilSite:
    """Serves on a free port of the loopback address. ``stolen`` is what came for it as pushes would."""

    def __init__(self, target_port: int, pushed: Json, rebind: bool) -> None:
        self.target_port = target_port
        self.pushed = pushed
        self.rebind = rebind
        self.stolen: list[tuple[str, str, bytes]] = []  # method, path, body
        self.report: Json = {}
        self.reported = Event()
        site = self

        class Handler(_Handler):
            owner = site

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()

    def page(self) -> bytes:
        values = {"target": f"http://{LOOPBACK}:{self.target_port}", "pushed": self.pushed, "rebind": self.rebind}
        return PAGE.replace("/*VALUES*/", f"const values = {json.dumps(values)};").encode()

    def relay(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """The target's answer to a request as the browser made it."""
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        with socket.create_connection((LOOPBACK, self.target_port), 10) as target:
            head = "\r\n".join(line for line in lines if not line.lower().startswith("connection:"))
            target.sendall(head.encode("latin-1") + b"\r\nConnection: close\r\n\r\n" + body)
            return b"".join(iter(lambda: target.recv(65536), b""))


class _Handler(BaseHTTPRequestHandler):
    owner: EvilSite

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path == "/report":
            self.owner.report = json.loads(body)
            self.owner.reported.set()
        elif self.path.startswith(REBOUND):
            with suppress(OSError):
                self.wfile.write(self.owner.relay(self.command, self.path, dict(self.headers.items()), body))
            self.close_connection = True
            return
        elif self.command == "POST":
            self.owner.stolen.append((self.command, self.path, body))
        page = self.owner.page() if self.path == "/" else b""
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing."""


for _method in ("GET", "POST", "PUT", "DELETE", "OPTIONS"):
    setattr(_Handler, f"do_{_method}", _Handler._handle)
