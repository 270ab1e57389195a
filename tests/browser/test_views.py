"""Every page in each of its looks: what anybody must find on it, that keys reach all of it, and that the way back and a
reload show it again. A text of a node never becomes markup.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json
import shlex
from time import monotonic, sleep
from urllib.parse import quote

import pytest

from tests.browser.devtools import BrowserPage
from tests.browser.looks import LOOKS, check_keys, check_way_back, check_whole, focus, shown
from tests.browser.world import ODD, VIEWS
from tests.support import resources as r
from tests.support.process import wait_until
from tests.support.server import ServerProcess

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("path", VIEWS)
def test_a_page_is_whole(browser: BrowserPage, path: str, scheme: str, width: int) -> None:
    check_whole(browser, path, VIEWS[path], scheme, width)


@pytest.mark.parametrize("path", VIEWS)
def test_keys_reach_every_control_and_show_where_they_are(browser: BrowserPage, path: str) -> None:
    check_keys(browser, path, VIEWS[path])


@pytest.mark.parametrize("path", VIEWS)
def test_the_way_back_and_a_reload_show_the_same(browser: BrowserPage, path: str) -> None:
    check_way_back(browser, path, VIEWS[path])


ROW_HEIGHT = 220  # pixels: nine lines
HOSTILE = "a b; $(id) 'c'"
LINK = "[...document.querySelectorAll('main a')].find((each) => each.innerText == {})"


def test_a_node_is_found_opened_and_left_by_keys_alone(browser: BrowserPage) -> None:
    shown(browser, "/ui/nodes", VIEWS["/ui/nodes"])
    browser.press("/")
    for character in "edge-bad":
        browser.press(character)
    browser.wait_for("1 node,")
    assert browser.evaluate("location.search") == "?text=edge-bad"
    browser.press("Tab")  # the group
    focus(browser, "edge-bad")
    browser.press("Enter")
    browser.wait_for("hosts are not set", "pre")
    assert browser.evaluate("[location.pathname, document.activeElement.id]") == ["/ui/nodes/edge-bad", "title"]
    browser.press("Escape")
    browser.wait_for("1 node,")
    assert browser.evaluate("location.pathname + location.search") == "/ui/nodes?text=edge-bad"
    browser.press("Escape")
    browser.wait_for("Overview", "h1")


def test_what_is_typed_stays_while_the_page_is_read_again(browser: BrowserPage) -> None:
    shown(browser, "/ui/nodes", VIEWS["/ui/nodes"])
    browser.evaluate("document.querySelector('#filters input').focus()")
    for character in "edge":
        browser.press(character)
    browser.evaluate("new Promise((done) => setTimeout(done, 1500))")
    for character in "-1":
        browser.press(character)
    browser.wait_for("1 node,")
    assert browser.evaluate("document.querySelector('#filters input').value") == "edge-1"


def test_a_node_of_any_id_has_an_address(browser: BrowserPage) -> None:
    shown(browser, "/ui/nodes", VIEWS["/ui/nodes"])
    browser.evaluate(f"{LINK.format(json.dumps(ODD))}.click()")
    browser.wait_for("On the command line")
    for _ in range(2):
        assert browser.text("h1") == ODD
        browser.call("Page.reload")
        browser.wait_for("On the command line")
    assert f"xds describe node '{ODD}'" in browser.text("#content")
    browser.evaluate(f"{LINK.format(json.dumps('Its events'))}.click()")
    browser.wait_for("events", ".counts")
    assert browser.evaluate("document.querySelector('#filters input').value") == ODD
    assert browser.messages == [] and browser.failures == []


@pytest.mark.parametrize("path", ["/ui/nodes?state=none", "/ui/load/c?window=9y", "/ui/events?since=yesterday"])
def test_an_address_that_the_server_refuses_says_why(browser: BrowserPage, path: str) -> None:
    browser.go(path)
    wait_until(lambda: browser.text("#problem"), "why it is refused", detail=browser.text)
    assert browser.text("#content") == ""  # not "Reading …" for ever
    assert browser.messages == []


def test_a_long_name_takes_a_few_lines_of_a_list(browser: BrowserPage) -> None:
    for path in ("/ui/nodes", "/ui/groups/edge"):
        shown(browser, path, VIEWS[path])
        heights = browser.evaluate("[...document.querySelectorAll('tbody tr')].map((each) => each.offsetHeight)")
        assert max(heights) < ROW_HEIGHT, (path, heights)


def test_a_command_has_names_as_a_shell_takes_them(browser: BrowserPage) -> None:
    browser.go(f"/ui/services/{quote(HOSTILE, safe='')}")
    told = browser.wait_for("xds chain", "#content").splitlines()
    (command,) = (line for line in told if line.startswith("xds chain"))
    assert shlex.split(command) == ["xds", "chain", HOSTILE]


def test_a_page_whose_events_alone_are_refused_is_read_all_the_same(
    browser: BrowserPage, furnished: ServerProcess
) -> None:
    """As by a proxy in front of the server, or while a token is revoked."""
    shown(browser, "/ui/groups", VIEWS["/ui/groups"])
    browser.evaluate("document.getElementById('live').click()")
    browser.evaluate("""(() => {
      const [given, problem] = [fetch, { detail: "the token lacks the scope read" }];
      const refusal = { status: 403, headers: { "WWW-Authenticate": "Bearer" } };
      const refused = () => Promise.resolve(new Response(JSON.stringify(problem), refusal));
      window.fetch = (path, ...more) => (path.endsWith("/events") ? refused() : given(path, ...more));
    })()""")
    browser.evaluate("document.getElementById('live').click()")
    browser.wait_for("not live", "#live")
    assert "lacks the scope read" in browser.evaluate("document.getElementById('live').title")
    assert "lacks the scope" not in browser.text() and browser.evaluate("document.getElementById('sign-in').hidden")
    furnished.push("late", [r.static_cluster("a")])
    browser.wait_for("late", "table")
    assert browser.messages == []


def test_events_are_read_once_when_two_reads_meet(browser: BrowserPage) -> None:
    shown(browser, "/ui/events", VIEWS["/ui/events"])
    read = """(async () => {
      const { events } = await import("/ui/assets/pages/events.js");
      const view = { query: { kinds: "", group: "", node: "", since: "" }, kept: {} };
      await Promise.all([events.read(view), events.read(view)]);
      const { items } = view.kept;
      return [items.length, new Set(items.map((each) => each.id)).size];
    })()"""
    rows, ids = browser.evaluate(read)
    assert 0 < rows == ids


# Words for what a node waits for and keeps, as the API tells it.
STORY = {
    "held": [
        {"resources": [{"type": "routes", "name": "r"}], "count": 3, "waits_for": ["a", "b"], "any_cluster": False,
         "waits_for_others": [{"type": "listeners", "name": "web"}]},
        {"resources": [{"type": "listeners", "name": "l"}], "count": 1, "waits_for": [], "any_cluster": True,
         "waits_for_others": []},
    ],
    "lingering": [
        {"type": "clusters", "revision": 7, "count": 4, "names": ["old", "older"], "until": None},
        {"type": "endpoints", "revision": 8, "count": 1, "names": ["old"], "until": "2000-01-01T00:00:00Z"},
    ],
    "lingering_total": 9,
}  # fmt: skip
TOLD = (
    "routes/r and 2 more: not sent yet, waits for cluster a, cluster b, listeners/web.",
    "listeners/l: not sent yet, waits for all new clusters.",
    "clusters/old, clusters/older and 2 more: removed by revision 7, kept for connections that may use it, "
    "goes once the node has ACKed all that may refer to it.",
    "endpoints/old: removed by revision 8, kept for connections that may use it, goes",
    "And 4 resources more.",
)


def test_what_a_node_waits_for_and_keeps_is_told_in_words(browser: BrowserPage) -> None:
    shown(browser, "/ui/nodes/edge-1", VIEWS["/ui/nodes/edge-1"])
    browser.evaluate("document.getElementById('live').click()")
    draw = f"""(async () => {{
      const [page, dom] = [await import("/ui/assets/pages/node.js"), await import("/ui/assets/dom.js")];
      const found = await (await fetch("/api/v1/nodes/edge-1")).json();
      const data = {{ found: {{ ...found, ...{json.dumps(STORY)} }}, timeline: {{ items: [] }} }};
      dom.show(document.getElementById("content"), page.node.draw({{ params: {{ id: "edge-1" }} }}, data));
    }})()"""
    browser.evaluate(draw)
    text = browser.text("#content")
    assert [each for each in TOLD if each not in text] == [], text


# The reads of a list by the page, and events in a row that concern it.
READS = "performance.getEntriesByType('resource').filter((each) => each.name.includes('/api/v1/groups?')).length"


def test_a_page_is_read_once_a_second_at_most_and_never_in_a_hidden_tab(
    browser: BrowserPage, furnished: ServerProcess
) -> None:
    shown(browser, "/ui/groups", VIEWS["/ui/groups"])
    browser.wait_for("live", "#live")

    def happens(times: int) -> int:
        """The reads while events happen for three seconds."""
        before = browser.evaluate(READS)
        for number in range(times):
            priority = {"selector": 'node.cluster == "shop"', "priority": number}
            assert furnished.request("PUT", "/api/v1/groups/shop", json=priority).is_success
            sleep(3 / times)
        return int(browser.evaluate(READS) - before)

    began_s = monotonic()
    reads = happens(30)
    assert 1 <= reads <= monotonic() - began_s + 1  # on a slow machine it takes longer than three seconds
    set_hidden(browser, True)
    assert happens(10) == 0
    set_hidden(browser, False)
    assert happens(10) >= 2
    browser.evaluate("document.getElementById('live').click()")
    browser.wait_for("paused", "#live")
    set_hidden(browser, True)
    set_hidden(browser, False)
    assert happens(10) == 0
    browser.evaluate("document.getElementById('live').click()")
    browser.wait_for("live", "#live")


def set_hidden(browser: BrowserPage, hidden: bool) -> None:
    """As if the tab was in the background, or came back."""
    browser.evaluate(f"Object.defineProperty(document, 'hidden', {{value: {json.dumps(hidden)}, configurable: true}})")
    browser.evaluate("document.dispatchEvent(new Event('visibilitychange')) && null")


@pytest.mark.parametrize("text", [".*", "[", "(edge|lost)", "<b>edge</b>", "\\", "%00", "&state=nacked", "#none"])
def test_a_text_is_no_pattern_and_no_markup(browser: BrowserPage, text: str) -> None:
    shown(browser, "/ui/nodes", VIEWS["/ui/nodes"])
    script = f"(field) => {{ field.value = {json.dumps(text)}; field.oninput({{ target: field }}); }}"
    browser.evaluate(f"({script})(document.querySelector('#filters input'))")
    browser.wait_for("No node matches the filters.")
    browser.call("Page.reload")
    browser.wait_for("No node matches the filters.")
    assert browser.evaluate("document.querySelector('#filters input').value") == text
    assert browser.evaluate("document.querySelectorAll('main b').length") == 0
    assert browser.messages == []
