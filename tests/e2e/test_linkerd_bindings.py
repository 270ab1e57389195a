"""A client that was not written here, with Linkerd's own Go bindings, reads every stream as we mean it.

`make soak` builds and runs it. What it has read is recorded (``linkerd_recorded.json``), and `make test` compares what
the server says with that. ``XDS_TEST_RECORD=1`` with the soak test writes the record anew.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from bench.peers.go_program import GoProgram, build
from tests.support.linkerd_client import LinkerdClient, LinkerdStream
from tests.support.linkerd_site import HOST, LinkerdSite, instance
from tests.support.process import LOOPBACK
from xds.linkerd.settings import DestinationSettings

GO_CLIENT = GoProgram("linkerd-client", Path(__file__).with_name("linkerd_client"))
RECORDED = Path(__file__).with_name("linkerd_recorded.json")
DEADLINE_S = 60
VIRTUAL, PORT = "10.96.0.10", 80

MESHED = {"linkerd-identity": "web.shop.identity", "pod": "web-1", "namespace": "shop", "linkerd-opaque-ports": "3306"}
GATEWAY = {"linkerd-identity": "gateway.corp", "linkerd-authority": "web.remote:80"}
SPIFFE = {"linkerd-identity": "spiffe://corp/web", "linkerd-server-name": "web.corp"}
FIRST = (
    instance("10.0.0.1", zone="z1", node="n1", meta=MESHED, virtual_addresses=(VIRTUAL,)),
    instance("2001:db8::1", meta=SPIFFE),
    instance("10.0.0.2", 3306, meta=MESHED, weight=3),
    instance("10.0.0.3", meta=GATEWAY),
    instance("10.0.0.4", health="warning"),
)
ROUTE = {
    "Match": {"HTTP": {"PathPrefix": "/a", "Methods": ["GET", "PURGE"]}},
    "Destination": {"RequestTimeout": "1500ms", "RetryOn": ["5xx"], "RetryOnStatusCodes": [409]},
}
ENTRIES: list[dict[str, Any]] = [
    {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}},
    {"Kind": "service-router", "Name": "web", "Routes": [ROUTE]},
    {
        "Kind": "service-splitter",
        "Name": "web",
        "Splits": [{"Weight": 90, "Service": "web-1"}, {"Weight": 10, "Service": "web-2"}],
    },
]
CALLS: list[dict[str, Any]] = [
    {"method": "get", "path": f"{HOST}:80", "token": '{"ns":"shop","zone":"z1"}'},
    {"method": "get", "path": "nosuch.default.svc.cluster.local:80"},
    {"method": "get", "path": "linkerd.io:80"},
    {"method": "profile", "path": f"{HOST}:80"},
    {"method": "profile", "path": "10.0.0.1:8080"},
    {"method": "profile", "path": "10.9.9.9:3306"},
    {"method": "outbound", "ipv4": int(ip_address(VIRTUAL)), "port": PORT},
    {"method": "outbound", "ipv4": int(ip_address("10.9.9.9")), "port": PORT},
    {"method": "inbound", "port": 8080},
]
# Of each call: messages before the edits, and in the end.
COUNTS = [(1, 4), (1, 1), (0, 0), (1, 2), (1, 2), (1, 1), (1, 2), (0, 0), (1, 1)]
CODES = {2: "InvalidArgument", 7: "NotFound"}


@pytest.fixture
def site() -> Iterator[LinkerdSite]:
    made = LinkerdSite(DestinationSettings(keep_alive_s=10, keep_alive_timeout_s=3))
    made.put("web", *FIRST)
    yield made
    made.close()


def edit(site: LinkerdSite) -> None:
    """What every stream that follows something is told of."""
    site.put("web", *FIRST[1:], instance("10.0.0.5"))
    site.put("web")
    site.write(*ENTRIES)


class GoClient:
    """The Go program; one line for each message."""

    def __init__(self, port: int) -> None:
        argv = [str(build(GO_CLIENT)), f"{LOOPBACK}:{port}"]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.messages: list[list[str]] = [[] for _ in CALLS]
        self.codes: dict[int, str] = {}
        self.unknown = 0
        self._ask()

    def _ask(self) -> None:
        assert self._process.stdin is not None
        for number, call in enumerate(CALLS):
            self._process.stdin.write(json.dumps({"id": number, **call}) + "\n")
        self._process.stdin.flush()

    def read(self, counts: list[int]) -> None:
        """Read until every call has so many messages, and those that are refused have their codes."""
        assert self._process.stdout is not None
        while any(len(held) < count for held, count in zip(self.messages, counts, strict=True)) or self.codes != CODES:
            found = json.loads(self._process.stdout.readline())
            if "code" in found:
                self.codes[found["id"]] = found["code"]
            else:
                self.messages[found["id"]].append(found.get("bytes", ""))
            self.unknown += found["unknown"]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait(DEADLINE_S)


def _opened(client: LinkerdClient, call: dict[str, Any]) -> LinkerdStream:
    match call["method"]:
        case "get":
            return client.get(call["path"], call.get("token", ""))
        case "profile":
            return client.profile(call["path"])
        case "outbound":
            return client.watch(str(ip_address(call["ipv4"])), call["port"])
    return client.watch_port(call["port"])


def test_every_stream_has_the_fields_that_the_bindings_of_linkerd_read(site: LinkerdSite) -> None:
    recorded = json.loads(RECORDED.read_text())
    streams = [_opened(site.client(), call) for call in CALLS]
    found = [[stream.next() for _ in range(first)] for stream, (first, _) in zip(streams, COUNTS, strict=True)]
    edit(site)
    for stream, held, (first, last) in zip(streams, found, COUNTS, strict=True):
        held += [stream.next() for _ in range(last - first)]
    read = [
        [stream.kind.FromString(bytes.fromhex(body)) for body in bodies]
        for stream, bodies in zip(streams, recorded, strict=True)
    ]
    assert found == read
    for number, code in CODES.items():
        assert streams[number].status().name.replace("_", "") == code.upper()


@pytest.mark.soak
@pytest.mark.timeout(900)  # the first run builds it
def test_the_bindings_of_linkerd_read_every_stream(site: LinkerdSite) -> None:
    client = GoClient(site.options.port)
    try:
        client.read([first for first, _ in COUNTS])
        edit(site)
        client.read([last for _, last in COUNTS])
    finally:
        client.close()
    assert client.unknown == 0, "every field is one of theirs"
    if os.environ.get("XDS_TEST_RECORD"):
        RECORDED.write_text(json.dumps(client.messages, indent=1) + "\n")
    assert client.messages == json.loads(RECORDED.read_text())
