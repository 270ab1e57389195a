"""The pages of groups: revisions, comparison, roll-back, and a rollout with its actions.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from typing import Any

import pytest

from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.browser.looks import LOOKS, check_keys, check_way_back, check_whole, focus
from tests.browser.pictures import take_picture
from tests.browser.simulated import FollowingNode
from tests.browser.world import INJECTED, KEY, SECRET, identity, select
from tests.support import resources as r
from tests.support.process import wait_until
from tests.support.server import ServerProcess

pytestmark = pytest.mark.browser

Json = dict[str, Any]
EDGE, SHOP = "edge", "shop"
WHY = f"Error adding/updating cluster(s) bad: {INJECTED} hosts are not set"
PRESSED = "[...document.querySelectorAll('main button')].find(each => each.innerText.trim() == {})"
SLOW_ANSWERS = """{
  const { fetch } = window;
  window.fetch = async (...asked) => {
    const answer = await fetch(...asked);
    await new Promise((done) => setTimeout(done, 200));
    return answer;
  };
}"""
# The first answers come late; what the page has said of its revisions since.
LATE_ANSWERS = """{
  const { fetch } = window, until = performance.now() + 100;
  window.said = [];
  const look = () => window.said.push(document.getElementById("content").innerText.includes("made meanwhile"));
  new MutationObserver(look).observe(document.getElementById("content"), { childList: true, subtree: true });
  window.fetch = async (...asked) => {
    const isFirst = performance.now() < until, answer = await fetch(...asked);
    if (isFirst) await new Promise((done) => setTimeout(done, 1500));
    return answer;
  };
  const live = document.getElementById("live");
  live.click();
  live.click();
}"""
OTHER_SECRET = {**SECRET, "generic_secret": {"secret": {"inline_string": f"{KEY} of later"}}}


@pytest.fixture(scope="module")
def server(running: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> ServerProcess:
    server = running.enter_context(ServerProcess(tmp_path_factory.mktemp("server"), ["--store", "memory"]))
    for group in (EDGE, SHOP):
        select(server, group)
        server.push(group, [r.static_cluster("a", 80), r.static_cluster("old", 80), SECRET], message="first")
        for number in range(4):
            node = identity(f"{group}-{number}", group)
            running.enter_context(FollowingNode(server.grpc_port, node, {"bad": WHY}))
    server.push(EDGE, [r.static_cluster("a", 81), r.static_cluster(INJECTED, 80), SECRET], message=INJECTED)
    server.push(EDGE, [r.static_cluster("a", 81, 82), r.static_cluster("new", 80), OTHER_SECRET], message="more of a")
    return server


@pytest.fixture(scope="module")
def window(running: ExitStack, server: ServerProcess, tmp_path_factory: pytest.TempPathFactory) -> BrowserPage:
    url = f"http://127.0.0.1:{server.http_port}/"
    return running.enter_context(BrowserPage(url, tmp_path_factory.mktemp("browser")))


@pytest.fixture
def page(window: BrowserPage) -> BrowserPage:
    window.messages.clear()
    window.failures.clear()
    window.look("light", 1280)
    return window


def press(page: BrowserPage, name: str) -> None:
    """Click the button with this name, once it is there and may be clicked."""
    found = PRESSED.format(json.dumps(name))
    wait_until(lambda: page.evaluate(f"{found}?.disabled === false"), f"the button {name}", detail=page.text)
    page.evaluate(f"{found}.click()")


def newest(server: ServerProcess, group: str) -> Json:
    found: Json = server.get(f"/groups/{group}/revisions")["items"][0]
    return found


# -- looks -------------------------------------------------------------------------------------------------------------

VIEWS = {
    "/ui/groups": "last change",
    f"/ui/groups/{EDGE}": "more of a",
    f"/ui/groups/{EDGE}?type=clusters": "Names of clusters",
    f"/ui/groups/{EDGE}?endpoints=false": "more of a",
    f"/ui/groups/{EDGE}/diff?from=2&to=3": "secrets/key: changed",
    f"/ui/groups/{EDGE}/diff?from=3&to=1": "Roll back to revision 1",
    f"/ui/groups/{EDGE}/diff?from=3&to=999": "cannot be compared",
    "/ui/groups/none": "There is no such group.",
    "/ui/groups/none/diff": "cannot be compared",
}


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("path", VIEWS)
def test_a_page_is_whole(page: BrowserPage, path: str, scheme: str, width: int) -> None:
    check_whole(page, path, VIEWS[path], scheme, width)


@pytest.mark.parametrize("path", VIEWS)
def test_keys_reach_every_control(page: BrowserPage, path: str) -> None:
    check_keys(page, path, VIEWS[path])


@pytest.mark.parametrize("path", VIEWS)
def test_the_way_back_and_a_reload_show_the_same(page: BrowserPage, path: str) -> None:
    check_way_back(page, path, VIEWS[path])


# -- comparing and rolling back ----------------------------------------------------------------------------------------


def test_a_comparison_stands_side_by_side_and_folds_what_is_equal(page: BrowserPage) -> None:
    page.go(f"/ui/groups/{EDGE}/diff?from=2&to=3")
    page.wait_for("clusters/a: changed", "main")
    sides = page.evaluate(
        "[...document.querySelectorAll('[data-lines=\"clusters/a\"] tr.changed')]"
        ".map(row => [row.cells[1].innerText, row.cells[3].innerText])"
    )
    assert sides
    assert all(before == "" and after.startswith("+") for before, after in sides)  # one endpoint more
    assert any("82" in after for _, after in sides)
    folded = page.text('[data-lines="clusters/a"]')
    assert "unchanged lines" in folded
    assert '"connect_timeout"' not in folded
    page.evaluate("document.querySelector('[data-lines=\"clusters/a\"] .fold button').click()")
    assert '"connect_timeout"' in page.text('[data-lines="clusters/a"]')


def test_secrets_are_redacted_in_a_comparison(page: BrowserPage) -> None:
    page.go(f"/ui/groups/{EDGE}/diff?from=2&to=3")
    assert "Only redacted values differ." in page.wait_for("secrets/key: changed", "main")
    page.go(f"/ui/groups/{EDGE}/diff?from=0&to=3")
    page.wait_for("[redacted]", "main")
    assert KEY not in page.evaluate("document.documentElement.outerHTML")


def test_a_roll_back_shows_first_what_it_changes(page: BrowserPage, server: ServerProcess) -> None:
    server.push(SHOP, [r.static_cluster("a", 81), SECRET], message="wrong port")
    page.go(f"/ui/groups/{SHOP}")
    page.wait_for("wrong port", "main")
    page.evaluate("[...document.querySelectorAll('main a')].find(each => each.innerText == 'roll back …').click()")
    page.wait_for("clusters/a: changed", "main")
    assert page.evaluate("location.pathname + location.search") == f"/ui/groups/{SHOP}/diff?from=2&to=1"
    assert newest(server, SHOP)["revision"] == 2
    take_picture(page, "difference")
    page.evaluate("document.getElementById('rollback-message').focus()")
    page.call("Input.insertText", text="the port was wrong")
    focus(page, "Roll back to revision 1")
    page.press("Enter")
    page.wait_for("roll-back to 1", "main")
    assert page.evaluate("location.pathname") == f"/ui/groups/{SHOP}"
    made = newest(server, SHOP)
    assert (made["revision"], made["content_of"], made["message"]) == (3, 1, "the port was wrong")
    page.wait_for("undone by 3", "main")
    page.wait_for("4/4 ACKed", "main")
    assert page.messages == []


def test_a_roll_back_is_refused_if_another_push_came_first(page: BrowserPage, server: ServerProcess) -> None:
    first = newest(server, SHOP)["revision"]
    page.go(f"/ui/groups/{SHOP}/diff?from={first}&to=2")
    page.wait_for("Roll back to revision 2", "main")
    page.wait_for("live", "#live")
    page.evaluate("document.getElementById('live').click()")  # the page does not see the push
    server.push(SHOP, [r.static_cluster("a", 80), r.static_cluster("urgent", 80), SECRET], message="urgent")
    press(page, "Roll back to revision 2")
    page.wait_for(f"Nothing was changed: the group is not at revision {first} any more", "#content [role=alert]")
    assert newest(server, SHOP)["message"] == "urgent"
    page.wait_for(f"The group is at revision {first + 1}.", "main")
    assert page.evaluate("document.getElementById('roll-back')") is None
    page.evaluate("[...document.querySelectorAll('main a')].find(each => each.innerText.startsWith('Compare')).click()")
    page.wait_for("clusters/urgent: removed", "main")
    assert page.evaluate("location.search") == f"?from={first + 1}&to=2"
    page.evaluate("document.getElementById('live').click()")


def test_a_deleted_group_is_brought_back(page: BrowserPage, server: ServerProcess) -> None:
    server.push("gone", [r.static_cluster("a", 80)])
    assert server.request("DELETE", "/api/v1/groups/gone").is_success
    page.go("/ui/groups/gone")
    page.wait_for("The group is deleted.", "main")
    page.evaluate("[...document.querySelectorAll('main a')].find(each => each.innerText == 'roll back …').click()")
    press(page, "Roll back to revision 1")
    page.wait_for("restored", "main")
    assert newest(server, "gone")["kind"] == "restore"


def test_a_comparison_of_ten_megabytes_is_shown_in_part(page: BrowserPage, server: ServerProcess) -> None:
    noted = {"filter_metadata": {"notes": {"text": "n" * 1_500}}}
    for port in (81, 82):
        many = [r.static_cluster(f"c{number}", 80, port, metadata=noted) for number in range(3_000)]
        server.push("large", [r.static_cluster("small", port), *many])
    whole = server.request("GET", "/api/v1/groups/large/revisions/2/diff?limit=10000")
    assert len(whole.content) > 10_000_000
    page.go("/ui/groups/large/diff?from=1&to=2")
    shown = page.wait_for("3,001 resources differ, 20 shown", "main")
    assert "clusters/c0: changed" in shown
    assert page.evaluate("document.querySelectorAll('*').length") < 10_000
    press(page, "Show 20 more resources")
    page.wait_for("3,001 resources differ, 40 shown", "main")
    more = PRESSED.format(json.dumps("Show 20 more resources"))
    page.evaluate(SLOW_ANSWERS)
    page.evaluate(f"[{more}, {more}].forEach(each => each.click())")
    page.wait_for("3,001 resources differ, 80 shown", "main")
    shown_once = "new Set([...document.querySelectorAll('[data-lines]')].map(each => each.dataset.lines)).size"
    assert page.evaluate(shown_once) == 80
    page.go("/ui/groups/large/diff?from=0&to=2")
    page.wait_for("xds diff -g large --from 0 --to 2", "main")
    assert audit(page) == []
    assert page.messages == []


def test_one_huge_resource_is_named_and_not_read(page: BrowserPage, server: ServerProcess) -> None:
    server.push("huge", [r.static_cluster("a", *range(10_000, 60_000, 1))])
    server.push("huge", [r.static_cluster("a", *range(10_001, 60_000, 1)), r.static_cluster("b", 80)])
    page.go("/ui/groups/huge/diff?from=1&to=2")
    shown = page.wait_for("too large for this page", "main")
    assert "clusters/a: changed" in shown
    assert "clusters/b: added" in shown
    assert "xds diff -g huge --from 1 --to 2" in shown
    assert page.messages == []


def test_an_answer_that_comes_late_does_not_replace_a_newer_one(page: BrowserPage, server: ServerProcess) -> None:
    server.push("late", [r.static_cluster("a", 80)])
    page.go("/ui/groups/late")
    page.wait_for("Revisions", "main")
    page.evaluate(LATE_ANSWERS)
    time.sleep(0.5)  # the server has answered
    server.push("late", [r.static_cluster("a", 81)], message="made meanwhile")
    page.evaluate("{ const live = document.getElementById('live'); live.click(); live.click(); }")
    page.wait_for("made meanwhile", "main")
    time.sleep(2)
    said = page.evaluate("window.said")
    assert all(said[said.index(True) :])
    assert page.messages == []


def test_a_comparison_with_the_newest_revision_names_the_one_that_is_shown(
    page: BrowserPage, server: ServerProcess
) -> None:
    for port in (80, 81):
        server.push("newest", [r.static_cluster("a", port)])
    page.go("/ui/groups/newest/diff?from=1")
    page.wait_for("xds diff -g newest --from 1 --to 2", "main")
    server.push("newest", [r.static_cluster("a", 82)])
    shown = page.wait_for("The group is at revision 3.", "main")
    assert "--from 1 --to 2" in shown
    assert "82" not in shown
