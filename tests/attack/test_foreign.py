"""The requests that a browser makes for a foreign page, byte by byte over real sockets."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attack.bystander import GROUP
from tests.attack.conftest import Beside
from tests.attack.raw_http import ask
from tests.support import resources as r
from tests.support.process import LOOPBACK, free_port
from tests.support.server import ServerProcess
from tests.support.server_forks import ForkedServer

PUSH = json.dumps({"changes": [{"group": GROUP, "snapshot": {"resources": [r.static_cluster("evil")]}}]}).encode()
POLL = json.dumps({"node": {"id": "x"}}).encode()
EVIL = "Origin: http://evil.example"
CROSS = "Sec-Fetch-Site: cross-site"
JSON = "Content-Type: application/json"
Serve = Callable[..., ServerProcess]


def request(method: str, path: str, host: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


ATTACKS: dict[str, tuple[str, str, list[str], bytes, int]] = {
    "a push without a type": ("POST", "/api/v1/transactions", [EVIL, CROSS], PUSH, 403),
    "a push without a type by an old browser": ("POST", "/api/v1/transactions", [EVIL], PUSH, 403),
    "a push without a type or an origin": ("POST", "/api/v1/transactions", [], PUSH, 415),
    "a push as text": ("POST", "/api/v1/transactions", ["Content-Type: text/plain"], PUSH, 415),
    "a push of a form": ("POST", "/api/v1/transactions", ["Content-Type: multipart/form-data; boundary=x"], PUSH, 415),
    "a push of a sandboxed page": ("POST", "/api/v1/transactions", ["Origin: null", JSON], PUSH, 403),
    "a push of a page on another port": (
        "POST",
        "/api/v1/transactions",
        ["Origin: http://127.0.0.1:3000", JSON],
        PUSH,
        403,
    ),
    "a rollback": ("POST", f"/api/v1/groups/{GROUP}/rollback", [EVIL], b'{"to": 1}', 403),
    "a rollback without origin or type": ("POST", f"/api/v1/groups/{GROUP}/rollback", [], b'{"to": 1}', 415),
    "a release": ("POST", f"/api/v1/groups/{GROUP}/release", [EVIL], b"", 403),
    "a deletion": ("DELETE", f"/api/v1/groups/{GROUP}?allow_empty=true", [EVIL], b"", 403),
    "a question before it": (
        "OPTIONS",
        "/api/v1/transactions",
        [EVIL, "Access-Control-Request-Method: POST"],
        b"",
        403,
    ),
    "a poll without a type": ("POST", "/v3/discovery:secrets", [EVIL], POLL, 403),
    "a poll without a type or an origin": ("POST", "/v3/discovery:secrets", [], POLL, 415),
    "a poll of the v2 API": ("POST", "/v2/discovery:secrets", [EVIL, JSON], POLL, 403),
    "a poll of the same origin": ("POST", "/v3/discovery:secrets", ["Origin: http://HOST", JSON], POLL, 403),
    "a poll by no Origin of a browser": (
        "POST",
        "/v3/discovery:secrets",
        ["Sec-Fetch-Site: same-origin", JSON],
        POLL,
        403,
    ),
}
REBOUND: dict[str, tuple[str, str, list[str], bytes]] = {
    "keys": ("GET", f"/api/v1/groups/{GROUP}/snapshot?show_secrets=true", [], b""),
    "a push": (
        "POST",
        "/api/v1/transactions",
        ["Origin: http://evil.example:1", "Sec-Fetch-Site: same-origin", JSON],
        PUSH,
    ),
    "a push by PUT": (
        "PUT",
        f"/api/v1/groups/{GROUP}/snapshot",
        ["Origin: http://evil.example:1", JSON],
        b'{"resources":[]}',
    ),
    "metrics": ("GET", "/metrics", [], b""),
    "events": ("GET", "/api/v1/events", [], b""),
    "the configuration": ("GET", "/api/v1/config", [], b""),
}


def untouched(server: ServerProcess) -> bool:
    names = [each["name"] for each in server.get(f"/groups/{GROUP}/snapshot")["resources"]]
    return "evil" not in names and bool(names)


@pytest.mark.parametrize(("method", "path", "headers", "body", "status"), ATTACKS.values(), ids=ATTACKS)
def test_a_page_of_another_origin(
    victim: ServerProcess, method: str, path: str, headers: list[str], body: bytes, status: int
) -> None:
    host = f"{LOOPBACK}:{victim.http_port}"
    sent = [header.replace("HOST", host) for header in headers]
    assert ask(victim.http_port, request(method, path, host, *sent, body=body)) == status
    assert untouched(victim)


@pytest.mark.parametrize(("method", "path", "headers", "body"), REBOUND.values(), ids=REBOUND)
@pytest.mark.parametrize("host", ["evil.example:1", "127.0.0.1.evil.example", "evil.localhost.example"])
def test_a_name_that_was_made_to_lead_here(
    victim: ServerProcess, host: str, method: str, path: str, headers: list[str], body: bytes
) -> None:
    assert ask(victim.http_port, request(method, path, host, *headers, body=body)) == 403
    assert untouched(victim)


def test_refused_requests_are_counted_and_writes_audited(serve: Serve) -> None:
    """Each reason has its counter: a page that is open in some browser, or a name that is missing in the settings."""
    server = serve()
    counted = server.metrics()
    before = {name: n for name, n in counted.items() if name.startswith("xds_server_http_foreign_refused_total{")}
    assert set(before.values()) == {0}
    for host, path, header in (
        ("localhost", "/api/v1/transactions", EVIL),
        ("evil.example", "/api/v1/transactions", JSON),
        ("localhost", "/v3/discovery:secrets", EVIL),
        ("localhost", "/v3/discovery:secrets", CROSS),
    ):
        assert ask(server.http_port, request("POST", path, host, header, body=PUSH)) == 403
    counted = server.metrics()
    for reason, times in (("origin", 1), ("host", 1), ("rest_xds", 2)):
        assert counted[f'xds_server_http_foreign_refused_total{{reason="{reason}"}}'] == times
    refused = server.get("/audit", refused="true")["items"]
    assert sum(item["count"] for item in refused) == 2
    assert all("403" in item["reason"] and item["subject"] == "POST /transactions" for item in refused)
    assert server.metrics()['xds_server_audit_refusals_total{told="apart"}'] == 2


def test_hosts_as_they_must_be(victim: ServerProcess, beside: Beside) -> None:
    with beside(victim):
        for head, status in (
            (b"GET /api/v1/groups HTTP/1.1\r\n\r\n", 400),
            (b"GET /api/v1/groups HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400),
            (b"GET /api/v1/groups HTTP/1.0\r\n\r\n", 200),
            (b"GET /api/v1/groups HTTP/1.1\r\nHost: localhost\r\n\r\n", 200),
            (b"GET /api/v1/groups HTTP/1.1\r\nHost: [::1]:18080\r\n\r\n", 200),
            (b"GET /readyz HTTP/1.1\r\nHost: pod.example\r\n\r\n", 200),
        ):
            assert ask(victim.http_port, head) == status, head


def test_requests_of_proxies_and_programs_pass(victim: ServerProcess) -> None:
    envoy = request("POST", "/v3/discovery:clusters", "xds_cluster", JSON, body=POLL)
    assert ask(victim.http_port, envoy) == 200
    own = request("POST", "/api/v1/validate", "localhost", JSON, body=b'{"resources": []}')
    assert ask(victim.http_port, own) == 200


class TestSettings:
    def test_names_that_are_set_may_be_used(self, serve: Serve) -> None:
        server = serve(environment={"XDS_SERVER__HTTP__HOSTS": '["xds.corp.example", "*.pods.example"]'})
        for host, status in (("xds.corp.example", 200), ("a.pods.example:80", 200), ("corp.example", 403)):
            assert ask(server.http_port, request("GET", "/api/v1/groups", host)) == status

    def test_on_another_address_host_names_are_not_checked_and_a_warning_says_so(
        self, tmp_path: Path, running: ExitStack
    ) -> None:
        port = free_port()
        command = ["serve", "--store", "memory", "--insecure", "--http", f"0.0.0.0:{port}", "--grpc", "127.0.0.1:0"]
        server = running.enter_context(ForkedServer("xds", command, tmp_path))
        server.wait_until(lambda: ask(port, request("GET", "/readyz", "xds")) == 200, "ready")
        assert ask(port, request("GET", "/api/v1/groups", "xds")) == 200
        assert ask(port, request("POST", "/api/v1/transactions", "xds", EVIL, JSON, body=PUSH)) == 403
        assert "http.names_unchecked" in server.log() and "server.http.hosts" in server.log()

    def test_a_name_with_a_scheme_is_refused_at_start(self, tmp_path: Path, running: ExitStack) -> None:
        server = ServerProcess(tmp_path, environment={"XDS_SERVER__HTTP__HOSTS": '["http://xds"]'})
        with pytest.raises(AssertionError, match=r"server\.http\.hosts"):
            running.enter_context(server)
