"""A rollout on the page of its group: followed from the canary to its end, its four actions, and who may use them.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.browser.looks import LOOKS
from tests.browser.pictures import take_picture
from tests.browser.simulated import FollowingNode
from tests.browser.test_groups import press
from tests.browser.test_pages import enter_token
from tests.browser.world import INJECTED, identity, select
from tests.support import resources as r
from tests.support.process import wait_until
from tests.support.server import ServerProcess

pytestmark = pytest.mark.browser

Json = dict[str, Any]
GROUP, ADDRESS = "edge", "/ui/groups/edge"
ADMIN, READER, WRITER = "the-admin", "the-reader", "the-writer"
WHY = f"Error adding/updating cluster(s) bad: {INJECTED} hosts are not set"
CAREFULLY = {"waves": ["1", "50%"], "hold_s": 250}
ENABLED = (
    "[...document.querySelectorAll('main .actions button')].filter(each => !each.disabled).map(each => each.innerText)"
)


@pytest.fixture(scope="module")
def server(running: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    directory = tmp_path_factory.mktemp("server")
    scopes = {ADMIN: ["admin"], READER: ["read"], WRITER: ["read", "write:group/ed*"]}
    write_scopes(directory / "xds.yaml", scopes)
    flags = ["--store", "memory", "--config", str(directory / "xds.yaml")]
    server = running.enter_context(ServerProcess(directory, flags, token=ADMIN))
    select(server, GROUP)
    server.push(GROUP, [r.static_cluster("a", 80)])
    credential = [("authorization", f"Bearer {ADMIN}")]
    for number in range(4):
        node = identity(f"edge-{number}", GROUP)
        running.enter_context(FollowingNode(server.grpc_port, node, {"bad": WHY}, credential))
    return server


def write_scopes(file: Path, scopes: dict[str, list[str]]) -> None:
    """Settings with these tokens, each named as its secret."""
    tokens = [
        {"name": secret, "sha256": sha256(secret.encode()).hexdigest(), "scopes": granted}
        for secret, granted in scopes.items()
    ]
    file.write_text(json.dumps({"auth": {"tokens": tokens}}))


@pytest.fixture(scope="module")
def window(running: ExitStack, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> BrowserPage:
    url = f"http://127.0.0.1:{server.http_port}/"
    return running.enter_context(BrowserPage(url, tmp_path_factory.mktemp("browser")))


@pytest.fixture
def page(window: BrowserPage, server: ServerProcess) -> BrowserPage:
    """The page of the group, of which no rollout goes on, for somebody who may push to it."""
    if server.get(f"/groups/{GROUP}/rollout").get("state") in ("running", "paused", "held"):
        act(server, "abort")
    wait_until(lambda: server.get(f"/groups/{GROUP}/rollout")["synced"] == 4, "all nodes in step")
    window.look("light", 1280)
    show_to(window, WRITER)
    window.wait_for("live", "#live")
    window.messages.clear()
    return window


def show_to(page: BrowserPage, token: str, path: str = ADDRESS) -> None:
    """Open an address in a tab that has a token."""
    page.evaluate(f"sessionStorage.setItem('xds-token', {json.dumps(token)})")
    page.go(path)
    page.wait_for("Group edge" if path == ADDRESS else GROUP, "h1")
    page.wait_for("revision", "#content")


def act(server: ServerProcess, action: str) -> None:
    assert server.request("POST", f"/api/v1/groups/{GROUP}/rollout", json={"action": action}).is_success


def roll_out(server: ServerProcess, *clusters: str, others: Iterable[Json] = (), **plan: Any) -> int:
    """Begin a rollout of clusters, and of resources of other types; its revision."""
    resources = [*(r.static_cluster(name, 80) for name in clusters), *others]
    body = {"resources": resources, "rollout": {**CAREFULLY, **plan}, "retry": True}
    answer = server.request("PUT", f"/api/v1/groups/{GROUP}/snapshot", json=body)
    assert answer.is_success, answer.text
    revision: int = answer.json()["revision"]
    return revision


def rollout(server: ServerProcess) -> Json:
    found: Json = server.get(f"/groups/{GROUP}/rollout")
    return found


def test_a_rollout_is_followed_from_the_canary_to_its_roll_back(page: BrowserPage, server: ServerProcess) -> None:
    page.evaluate("window.loaded = 'once'")
    revision = roll_out(server, "a", "b")
    page.wait_for("1 node (now): ✓ 1/1 ACKed, 3 outside of the wave", ".waves")
    assert page.evaluate(ENABLED) == ["Pause", "Promote", "Abort"]
    assert "50 % of the nodes" in page.text(".waves")
    assert f"4/4 ACKed, 3 of them the version of revision {revision - 1}" in page.text("main")
    for scheme, width in LOOKS:
        page.look(scheme, width)
        assert audit(page) == [], (scheme, width)
    take_picture(page, "group")
    bad = roll_out(server, "a", "bad")
    page.wait_for("rolled back", "main")
    shown = page.wait_for(f"{bad}, in place of {revision - 1}", "main")
    ended = rollout(server)
    assert ended["reason"] in " ".join(shown.split())
    assert "hosts are not set" in ended["reason"]
    page.wait_for(f"undone by {bad + 1}", "main")
    page.wait_for("4/4 ACKed", "main")
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    assert page.evaluate("window.loaded") == "once"
    assert page.evaluate("document.title") == "Group edge · xds-server"
    assert page.messages == []


def test_the_list_of_groups_tells_of_rollouts_and_nacks(page: BrowserPage, server: ServerProcess) -> None:
    server.push("other", [r.static_cluster("a", 80)], message="a second group")
    roll_out(server, "a", "bad", on_failure="hold")
    page.go("/ui/groups")
    page.wait_for("held, wave 1 of 3", "main")
    rows = page.evaluate(
        "[...document.querySelectorAll('tbody tr')].map(row => [...row.cells].map(cell => cell.innerText))"
    )
    revision = str(rollout(server)["revision"])
    assert rows[0][:5] == ["edge", "4 nodes", revision, "! held, wave 1 of 3", "✗ 1 node"]
    assert rows[1][:5] == ["other", "0 nodes", "1", "\u2013", "\u2013"]
    assert rows[1][5].endswith(f"by {ADMIN}: a second group")
    take_picture(page, "groups")
    act(server, "abort")
    wait_until(lambda: "NACK" not in page.text("tbody"), "the NACK is resolved", detail=page.text)
    assert page.messages == []


def test_a_wave_that_cannot_see_the_change_says_so(page: BrowserPage, server: ServerProcess) -> None:
    """The nodes subscribe to clusters alone."""
    roll_out(server, "a", others=[r.route_config("web", r.route("a"))])
    why = "the nodes of the wave subscribe to nothing that it changes"
    shown = " ".join(page.wait_for("cannot be judged yet", "main").split())
    assert f"cannot be judged yet {why}" in shown
    page.go("/")
    page.wait_for(why, "#content")
    assert page.messages == []


def test_a_wave_of_nobody_is_not_shown_as_done(page: BrowserPage, server: ServerProcess) -> None:
    roll_out(server, "for-nobody", nodes=["none"])
    page.wait_for("… 0/0 ACKed", "main .waves")
    page.wait_for("no node of the wave is connected", "#content")


def test_a_rollout_is_paused_resumed_and_promoted(page: BrowserPage, server: ServerProcess) -> None:
    roll_out(server, "a", "c")
    page.wait_for("running", "main")
    page.evaluate("document.getElementById('rollout-message').focus()")
    page.call("Input.insertText", text="looking at latencies")
    press(page, "Pause")
    page.wait_for("Done: pause. The rollout is paused.", "main")
    assert (rollout(server)["state"], rollout(server)["why"]) == ("paused", "looking at latencies")
    assert rollout(server)["by"] == WRITER
    assert page.evaluate(ENABLED) == ["Resume", "Promote", "Abort"]
    page.wait_for(f"{WRITER}: looking at latencies", "main")
    press(page, "Resume")
    page.wait_for("Done: resume. The rollout is running.", "main")
    assert rollout(server)["state"] == "running"
    press(page, "Promote")
    page.wait_for("to all nodes now?", "main")
    assert rollout(server)["state"] == "running"
    press(page, "No")
    wait_until(lambda: "to all nodes now?" not in page.text("main"), "the question is gone")
    press(page, "Promote")
    press(page, "Yes, promote")
    page.wait_for("✓ promoted", "main")
    assert rollout(server)["state"] == "promoted"
    assert page.messages == []


def test_a_question_is_about_the_rollout_that_was_shown(page: BrowserPage, server: ServerProcess) -> None:
    revision = roll_out(server, "a", "e")
    page.wait_for("running", "main")
    press(page, "Promote")
    page.wait_for(f"Give revision {revision} to all nodes now?", "main")
    page.evaluate("document.getElementById('live').click()")  # paused: the page does not learn of the next push
    roll_out(server, "a", "f")
    press(page, "Yes, promote")
    page.wait_for(f"no rollout of revision {revision} is going on", "main")
    page.wait_for(f"{revision + 1}, in place of", "main")
    assert rollout(server)["state"] == "running"
    page.evaluate("document.getElementById('live').click()")
    press(page, "Promote")
    page.wait_for(f"Give revision {revision + 1} to all nodes now?", "main")
    roll_out(server, "a", "g")
    wait_until(lambda: "to all nodes now?" not in page.text("main"), "the question is gone")


def test_a_rollout_is_aborted_by_the_keyboard_alone(page: BrowserPage, server: ServerProcess) -> None:
    revision = roll_out(server, "a", "d")
    page.wait_for(f"{revision}, in place of", "main")
    page.evaluate("document.getElementById('rollout-message').focus()")
    page.call("Input.insertText", text="wrong certificate")
    focused = "document.activeElement.innerText"
    for name in ("Pause", "Promote", "Abort"):
        page.press("Tab")
        assert page.evaluate(focused) == name
    page.press("Enter")
    wait_until(lambda: page.evaluate(focused) == "Yes, abort", "the question has the focus")
    page.press("Enter")
    page.wait_for("rolled back", "main")
    ended = rollout(server)
    assert (ended["state"], ended["why"]) == ("rolled_back", "wrong certificate")


def test_an_action_that_is_refused_says_so(page: BrowserPage, server: ServerProcess) -> None:
    roll_out(server, "a", "e")
    page.wait_for("running", "main")
    page.evaluate("document.getElementById('live').click()")  # the page does not see that it ends
    act(server, "abort")
    press(page, "Pause")
    page.wait_for("rolled back", "main")
    page.wait_for("Nothing was changed: ", "#content [role=alert]")
    page.evaluate("document.getElementById('live').click()")


def test_a_reader_sees_which_scope_is_missing(page: BrowserPage, server: ServerProcess) -> None:
    revision = roll_out(server, "a", "f")
    show_to(page, READER)
    page.wait_for("These actions need the scope write:group/edge.", "main")
    assert page.evaluate(ENABLED) == []
    assert page.evaluate("document.getElementById('rollout-message').disabled")
    assert audit(page) == []
    show_to(page, READER, f"{ADDRESS}/diff?from={revision}&to=1")
    page.wait_for("A roll-back needs the scope write:group/edge.", "main")
    assert page.evaluate(ENABLED) == []
    page.wait_for("clusters/f: removed", "main")
    assert audit(page) == []
    show_to(page, WRITER, f"{ADDRESS}/diff?from={revision}&to=1")
    page.wait_for("clusters/f: removed", "main")
    assert page.evaluate(ENABLED) == ["Roll back to revision 1"]
    assert page.messages == []


def test_a_token_that_is_revoked_is_asked_for_again(
    page: BrowserPage, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    show_to(page, READER)
    settings = Path(server.data).parent / "xds.yaml"
    kept = settings.read_text()
    write_scopes(settings, {ADMIN: ["admin"], WRITER: ["read", "write:group/ed*"]})
    page.wait_for("This server requires a token.", "main")
    page.wait_for("a valid bearer token is required", "#problem")
    assert page.text("#content") == ""
    enter_token(page, WRITER)
    page.wait_for("Revisions", "#content")
    assert "requires a token" not in page.text("main")
    settings.write_text(kept)
