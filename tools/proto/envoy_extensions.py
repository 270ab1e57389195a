"""The extensions of a running Envoy, which lists them with their categories and types."""

from __future__ import annotations

import json
import socket
import subprocess
import time
from collections.abc import Mapping
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tools.proto.envoy_binary import binary_path

_START_TIMEOUT_S = 60.0
_POLL_S = 0.1
# Types that any Envoy knows, such as google.protobuf.Empty, configure nothing by themselves.
_OF_INTEREST = ("envoy.", "xds.")


class _UnixConnection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def types_by_category() -> Mapping[str, set[str]]:
    """The types of all extensions by category. Raises ``RuntimeError`` when Envoy does not start."""
    found: dict[str, set[str]] = {}
    for extension in _server_info()["node"]["extensions"]:
        types = {one for one in extension.get("type_urls", ()) if one.startswith(_OF_INTEREST)}
        if types:
            found.setdefault(extension["category"], set()).update(types)
    return found


def _server_info() -> Any:
    with TemporaryDirectory() as directory:
        admin = f"{directory}/admin"
        config = Path(directory) / "bootstrap.json"
        config.write_text(json.dumps({"admin": {"address": {"pipe": {"path": admin}}}}))
        argv = [str(binary_path()), "-c", str(config), "-l", "off", "--use-dynamic-base-id"]
        with subprocess.Popen(argv) as envoy:
            try:
                return _ask(admin, envoy)
            finally:
                envoy.kill()


def _ask(admin: str, envoy: subprocess.Popen[bytes]) -> Any:
    ends = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < ends and envoy.poll() is None:
        connection = _UnixConnection(admin)
        try:
            connection.request("GET", "/server_info")
            return json.loads(connection.getresponse().read())
        except OSError:
            time.sleep(_POLL_S)
        finally:
            connection.close()
    raise RuntimeError("Envoy does not start")
