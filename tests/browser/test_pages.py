"""The pages in a real Chromium: start page, documentation of the API, nodes live.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.browser.devtools import BrowserPage
from tests.support import resources as r
from tests.support.grpc_stream import SOTW, GrpcStream, sotw, sotw_ack
from tests.support.server import ServerProcess
from xds.proto import wire_pb2

pytestmark = pytest.mark.browser

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "pages" / "nodes.png"
INJECTED = "<img src=x onerror=\"document.title='owned'\">"
SECRET, OF_A_PROXY = "a-long-secret", "the-secret-of-a-proxy"
SIGNED_IN = {"/": "on-call", "/ui/nodes": "0 connected", "/docs": "/api/v1/nodes"}  # what a page shows then
LEGIBLE = 3.0  # of WCAG 2 for large text and signs; the colors of Swagger UI have no more
ROWS = "[...document.querySelectorAll('#rows tr')].map(row => row.innerText.split('\\t'))"


@pytest.fixture
def server(tmp_path: Path, running: ExitStack) -> ServerProcess:
    return running.enter_context(ServerProcess(tmp_path, ["--store", "memory"]))


def opened(running: ExitStack, server: ServerProcess, path: str, directory: Path) -> BrowserPage:
    """The page of the server in a browser of its own."""
    return running.enter_context(BrowserPage(f"http://127.0.0.1:{server.http_port}{path}", directory / "browser"))


def node(running: ExitStack, server: ServerProcess, node_id: str, refuses: str = "") -> GrpcStream:
    """A node that takes clusters, and says why it refuses them if it does."""
    stream = running.enter_context(GrpcStream(server.grpc_port, SOTW))
    stream.send(sotw(r.CLUSTER_TYPE, node_id=node_id))
    response = stream.receive()
    stream.send(refusal(response, refuses) if refuses else sotw_ack(response))
    return stream


def refusal(response: Any, why: str) -> bytes:
    """The NACK of a response."""
    request = wire_pb2.DiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
    request.error_detail.code, request.error_detail.message = 3, why
    return request.SerializeToString()


def test_nodes_appear_change_and_go_live(tmp_path: Path, running: ExitStack, server: ServerProcess) -> None:
    server.push(server.group, [r.static_cluster("a")])
    page = opened(running, server, "/ui/nodes", tmp_path)
    page.wait_for("No node is connected.")
    page.wait_for("live", "#live")
    streams = [node(running, server, f"edge-{number}") for number in (1, 2, 10)]
    page.wait_for("3 connected")
    assert [row[0] for row in page.evaluate(ROWS)] == ["edge-1", "edge-2", "edge-10"]
    assert [row[3] for row in page.evaluate(ROWS)] == ["✓"] * 3

    server.push(server.group, [r.static_cluster("b")])
    why = "Error adding/updating cluster(s) b: hosts are not set"
    for stream in streams[:2]:
        stream.send(sotw_ack(stream.receive()))
    streams[2].send(refusal(streams[2].receive(), why))
    page.wait_for("✗ NACK")
    assert [row[3] for row in page.evaluate(ROWS)] == ["✓", "✓", "✗ NACK"]
    page.evaluate("[...document.querySelectorAll('#rows button')].find(each => each.innerText == 'edge-10').click()")
    assert why in page.text("#details")
    write_picture(page)
    page.evaluate("document.getElementById('details').close()")

    running_before = page.text("#count")
    streams[0].close()
    page.wait_for("2 connected")
    assert running_before.startswith("3 connected")
    assert page.messages == []


def write_picture(page: BrowserPage) -> None:
    """The picture in the docs is written anew where the environment asks for it."""
    picture = page.screenshot()
    assert picture.startswith(b"\x89PNG")
    if os.environ.get("XDS_WRITE_PICTURES"):
        PICTURE.parent.mkdir(exist_ok=True)
        PICTURE.write_bytes(picture)


def test_the_filters_are_part_of_the_address(tmp_path: Path, running: ExitStack, server: ServerProcess) -> None:
    server.push(server.group, [r.static_cluster("a")])
    for name in ("edge-1", "edge-2"):
        node(running, server, name)
    page = opened(running, server, "/ui/nodes?text=edge-2", tmp_path)
    page.wait_for("1 connected")
    assert [row[0] for row in page.evaluate(ROWS)] == ["edge-2"]
    page.evaluate("Object.assign(document.getElementById('text'), {value: 'none'}).oninput()")
    assert page.text("#empty") == "No node matches the filters."
    assert page.evaluate("location.search") == "?text=none"
    page.call("Page.navigate", url=f"http://127.0.0.1:{server.http_port}/ui/nodes?group=none")
    page.wait_for("0 connected, 0 in total")
    assert page.text("#empty") == "No node matches the filters."


def test_a_node_that_reconnects_is_not_shown_as_connected_since_its_first_stream(
    tmp_path: Path, running: ExitStack, server: ServerProcess
) -> None:
    server.push(server.group, [r.static_cluster("a")])
    node(running, server, "edge-1").close()
    node(running, server, "edge-1")
    page = opened(running, server, "/ui/nodes", tmp_path)
    page.wait_for("1 connected")
    page.evaluate("document.querySelector('#rows button').click()")
    first_seen = server.get("/nodes/edge-1")["first_seen"]
    assert f"yes first seen {first_seen}" in " ".join(page.text("#details-body").split())


def test_values_of_nodes_are_shown_as_text(tmp_path: Path, running: ExitStack, server: ServerProcess) -> None:
    server.push(server.group, [r.static_cluster("a")])
    node(running, server, INJECTED, refuses=INJECTED)
    page = opened(running, server, "/ui/nodes", tmp_path)
    page.wait_for(INJECTED, "#rows")
    page.evaluate("document.querySelector('#rows button').click()")
    assert INJECTED in page.text("#details-body")
    assert page.evaluate("document.querySelectorAll('main img, dialog img').length") == 0
    assert page.evaluate("document.title") == "xds-server: nodes"
    assert page.messages == []


def test_a_page_asks_for_the_token_and_keeps_it_for_the_tab(tmp_path: Path, running: ExitStack) -> None:
    page = opened(running, guarded(tmp_path, running), "/", tmp_path)
    page.wait_for("This server requires a token.")
    enter_token(page, "wrong")
    page.wait_for("a valid bearer token is required")
    enter_token(page, SECRET)
    page.wait_for("on-call")
    page.evaluate("document.querySelector('nav a').click()")
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


# Between an element's text and what is behind it (https://www.w3.org/TR/WCAG21/#dfn-contrast-ratio).
CONTRAST = """(selector) => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const isClear = (color) => channels(color)[3] === 0;
  const luminance = (color) => {
    const [r, g, b] = channels(color).map((c) => (c > 10 ? ((c / 255 + .055) / 1.055) ** 2.4 : c / 255 / 12.92));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const element = document.querySelector(selector);
  let behind = element;
  while (isClear(getComputedStyle(behind).backgroundColor) && behind.parentElement) behind = behind.parentElement;
  const back = getComputedStyle(behind).backgroundColor;
  const [dark, light] = [getComputedStyle(element).color, isClear(back) ? "rgb(255,255,255)" : back]
    .map(luminance).sort((a, b) => a - b);
  return (light + .05) / (dark + .05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_documentation_is_legible(tmp_path: Path, running: ExitStack, server: ServerProcess, scheme: str) -> None:
    page = opened(running, server, "/docs", tmp_path)
    page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    page.wait_for("/api/v1/nodes")
    for selector in ("pre.version", ".info .title", ".opblock-tag", ".opblock-summary-description", "header nav a"):
        assert page.evaluate(f"({CONTRAST})({json.dumps(selector)})") >= LEGIBLE, selector
