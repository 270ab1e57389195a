"""The pages in a real Chromium: what they show as it changes, their addresses, the token, the documentation of the API.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import httpx
import pytest

from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.browser.world import connect, first_request, identity, refusal
from tests.support import resources as r
from tests.support.grpc_stream import SOTW, GrpcStream, sotw_ack
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from xds.admin.routes.events import READERS_LIMIT

pytestmark = pytest.mark.browser

SECRET, OF_A_PROXY = "a-long-secret", "the-secret-of-a-proxy"
SIGNED_IN = {
    "/": "certificates",
    "/ui/nodes": "No node is connected",
    "/docs": "/api/v1/nodes",
}  # what a page shows then
LEGIBLE_HERE = 3.0  # of WCAG 2 for large text and signs; the colors of Swagger UI have no more, of its badges less
MUST_BE_READ = ('class="title"', "opblock-tag", "opblock-summary-description", "opblock-summary-path", "<a href=")
ROWS = "[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"


@pytest.fixture
def server(tmp_path: Path, running: ExitStack) -> ServerProcess:
    return running.enter_context(ServerProcess(tmp_path, ["--store", "memory"]))


def opened(running: ExitStack, server: ServerProcess, path: str, directory: Path) -> BrowserPage:
    """The page of the server in a browser of its own."""
    return running.enter_context(BrowserPage(f"http://127.0.0.1:{server.http_port}{path}", directory / "browser"))


def test_nodes_appear_change_and_go_live(tmp_path: Path, running: ExitStack, server: ServerProcess) -> None:
    server.push(server.group, [r.static_cluster("a")])
    page = opened(running, server, "/ui/nodes", tmp_path)
    page.wait_for("No node is connected.")
    page.wait_for("live", "#live")
    streams = [connect(running, server, identity(f"edge-{number}", server.group)) for number in (1, 2, 3)]
    page.wait_for("edge-3", "table")
    assert [row[:2] for row in page.evaluate(ROWS)] == [[f"edge-{number}", "✓ synced"] for number in (1, 2, 3)]

    edge_3 = "[...document.querySelectorAll('table a')].find(each => each.innerText == 'edge-3')"
    page.evaluate(f"{edge_3}.focus()")
    server.push(server.group, [r.static_cluster("b")])
    why = "Error adding/updating cluster(s) b: hosts are not set"
    for stream in streams[:2]:
        stream.send(sotw_ack(stream.receive()))
    streams[2].send(refusal(streams[2].receive(), why))
    page.wait_for("NACKed", "table")
    assert page.evaluate(ROWS)[0][0] == "edge-3"
    assert page.evaluate("document.activeElement.innerText") == "edge-3", "the focus goes with the row"
    page.evaluate(f"{edge_3}.click()")
    page.wait_for(why, "#content")
    assert page.evaluate("location.pathname") == "/ui/nodes/edge-3"
    streams[2].close()
    page.wait_for("disconnected", "#content")
    assert page.messages == []


def test_a_page_asks_for_the_token_and_keeps_it_for_the_tab(tmp_path: Path, running: ExitStack) -> None:
    page = opened(running, guarded(tmp_path, running), "/", tmp_path)
    page.wait_for("This server requires a token.")
    enter_token(page, "wrong")
    page.wait_for("a valid bearer token is required")
    enter_token(page, SECRET)
    page.wait_for(SIGNED_IN["/"])
    page.evaluate("document.querySelector('nav a[href=\"/ui/nodes\"]').click()")
    page.wait_for("No node is connected.")
    assert page.evaluate("localStorage.length") == 0
    assert page.messages == []


@pytest.mark.parametrize("path", ["/", "/ui/nodes"])
def test_a_page_asks_again_for_a_token_with_more_rights(tmp_path: Path, running: ExitStack, path: str) -> None:
    page = opened(running, guarded(tmp_path, running), path, tmp_path)
    page.wait_for("This server requires a token.")
    enter_token(page, OF_A_PROXY)
    page.wait_for("lacks the scope read")
    page.wait_for("This server requires a token.")
    enter_token(page, SECRET)
    page.wait_for(SIGNED_IN[path])
    assert "requires a token" not in page.text()
    assert page.messages == []


@pytest.mark.parametrize("path", SIGNED_IN)
def test_a_page_forgets_the_token(tmp_path: Path, running: ExitStack, path: str) -> None:
    page = opened(running, guarded(tmp_path, running), path, tmp_path)
    page.wait_for("This server requires a token.")
    assert "Sign out" not in page.text()
    enter_token(page, SECRET)
    page.wait_for(SIGNED_IN[path])
    page.evaluate("document.getElementById('sign-out').click()")
    page.wait_for("This server requires a token.")
    assert page.evaluate("sessionStorage.length") == 0
    assert SIGNED_IN[path] not in page.text()
    assert "Sign out" not in page.text()
    assert page.messages == []


def test_a_page_that_gets_no_events_is_read_all_the_same(
    tmp_path: Path, running: ExitStack, server: ServerProcess
) -> None:
    """The server serves a bounded number of readers."""
    client = running.enter_context(httpx.Client(trust_env=False, limits=httpx.Limits(max_connections=None)))
    for _ in range(READERS_LIMIT):
        url = f"http://127.0.0.1:{server.http_port}/api/v1/events"
        assert running.enter_context(client.stream("GET", url, timeout=60)).status_code == 200
    page = opened(running, server, "/ui/groups", tmp_path)
    page.wait_for("not live", "#live")
    server.push("late", [r.static_cluster("a")])
    page.wait_for("late", "table")
    assert page.messages == []


def test_a_server_that_went_away_is_told_and_found_again(
    tmp_path: Path, running: ExitStack, server: ServerProcess
) -> None:
    page = opened(running, server, "/ui/groups", tmp_path)
    page.wait_for("live", "#live")
    server.kill()
    page.wait_for("no connection", "#live")
    page.wait_for("The server does not answer.", "#problem")
    server.start()
    server.push("back", [r.static_cluster("a")])
    page.wait_for("back", "table")
    page.wait_for("live", "#live")
    assert page.evaluate("document.getElementById('problem').hidden")
    assert page.messages == []


def test_a_token_that_is_revoked_takes_what_the_page_has_read(tmp_path: Path, running: ExitStack) -> None:
    server = guarded(tmp_path, running)
    connect_with_token(running, server)
    page = opened(running, server, "/ui/nodes", tmp_path)
    page.wait_for("This server requires a token.")
    enter_token(page, SECRET)
    page.wait_for("edge-1", "table")
    page.wait_for("live", "#live")
    write_tokens(tmp_path / "tokens.yaml", {"proxy": (OF_A_PROXY, "xds"), "other": ("another-secret", "read")})
    page.wait_for("a valid bearer token is required")
    page.wait_for("This server requires a token.")
    assert "edge-1" not in page.text()
    enter_token(page, "another-secret")
    page.wait_for("edge-1", "table")
    assert "requires a token" not in page.text()
    wait_until(lambda: page.evaluate("document.getElementById('live').dataset.state") == "live", "events follow again")
    assert page.messages == []


def test_the_overview_tells_who_is_signed_in_now(tmp_path: Path, running: ExitStack) -> None:
    page = opened(running, guarded(tmp_path, running), "/", tmp_path)
    page.wait_for("This server requires a token.")
    enter_token(page, SECRET)
    page.wait_for("on-call", "dl")
    write_tokens(tmp_path / "tokens.yaml", {"other": ("another-secret", "read")})
    page.wait_for("a valid bearer token is required")
    enter_token(page, "another-secret")
    page.wait_for("other", "dl")


def connect_with_token(running: ExitStack, server: ServerProcess) -> None:
    """A node of the token that may be one."""
    metadata = [("authorization", f"Bearer {OF_A_PROXY}")]
    stream = running.enter_context(GrpcStream(server.grpc_port, SOTW, metadata=metadata))
    stream.send(first_request(identity("edge-1", "none")))


def guarded(directory: Path, running: ExitStack) -> ServerProcess:
    """A server with a token that may read, and one that may not."""
    tokens = directory / "tokens.yaml"
    write_tokens(tokens, {"proxy": (OF_A_PROXY, "xds"), "on-call": (SECRET, "read")})
    flags = ["--store", "memory", "--config", str(tokens)]
    return running.enter_context(ServerProcess(directory, flags, token=SECRET))


def write_tokens(file: Path, tokens: dict[str, tuple[str, str]]) -> None:
    """Settings with tokens by name, each with its one scope."""
    found = [
        {"name": name, "sha256": sha256(secret.encode()).hexdigest(), "scopes": [scope]}
        for name, (secret, scope) in tokens.items()
    ]
    file.write_text(json.dumps({"auth": {"tokens": found}}))


def enter_token(page: BrowserPage, token: str) -> None:
    """Fill in the form."""
    page.evaluate(f"document.getElementById('token').value = {json.dumps(token)}")
    page.evaluate("document.querySelector('#sign-in button').click()")


def test_the_documentation_shows_every_operation(tmp_path: Path, running: ExitStack, server: ServerProcess) -> None:
    page = opened(running, server, "/docs", tmp_path)
    page.wait_for("/api/v1/nodes")
    shown = page.evaluate("document.querySelectorAll('.opblock').length")
    paths = server.get("/openapi.json")["paths"]
    assert shown == sum(len(operations) for operations in paths.values())
    assert page.messages == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_documentation_is_legible(tmp_path: Path, running: ExitStack, server: ServerProcess, scheme: str) -> None:
    page = opened(running, server, "/docs", tmp_path)
    page.look(scheme, 1280)
    page.wait_for("/api/v1/nodes")
    told = [each for each in audit(page, LEGIBLE_HERE) if each.startswith("contrast")]
    assert [each for each in told if any(part in each for part in MUST_BE_READ)] == []
