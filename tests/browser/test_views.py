"""Every page in each of its looks: what anybody must find on it, that keys reach all of it, and that the way back and a
reload show it again. A text of a node never becomes markup.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.browser.world import GONE, KEY, VIEWS

pytestmark = pytest.mark.browser


LOOKS = [("light", 1280), ("dark", 1280), ("light", 400), ("dark", 400), ("light", 800)]


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
@pytest.mark.parametrize("path", VIEWS)
def test_a_page_is_whole(browser: BrowserPage, path: str, scheme: str, width: int) -> None:
    browser.look(scheme, width)
    browser.go(path)
    browser.wait_for(VIEWS[path])
    assert audit(browser) == []
    assert browser.messages == []
    assert bool(browser.failures) is (path in GONE), browser.failures
    assert KEY not in browser.evaluate("document.documentElement.outerHTML")
    assert browser.evaluate("document.querySelectorAll('main img').length") == 0
    assert browser.evaluate("document.title") != "owned"


# Every control that is shown, by what tells it from others.
CONTROLS = """[...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility() && !each.disabled).map((each) => each.outerHTML.slice(0, 200))"""
FOCUSED = """(() => {
  const element = document.activeElement, style = getComputedStyle(element);
  return [element.outerHTML.slice(0, 200), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0];
})()"""


@pytest.mark.parametrize("path", VIEWS)
def test_keys_reach_every_control_and_show_where_they_are(browser: BrowserPage, path: str) -> None:
    shown(browser, path)
    browser.evaluate("document.getElementById('live').click()")  # paused: ages would change what is compared
    wanted = set(browser.evaluate(CONTROLS))
    reached: set[str] = set()
    for _ in range(len(wanted) + 5):
        browser.press("Tab")
        control, is_outlined = browser.evaluate(FOCUSED)
        reached.add(control)
        assert is_outlined or control.startswith("<body"), control
    assert wanted - reached == set()


@pytest.mark.parametrize("path", VIEWS)
def test_the_way_back_and_a_reload_show_the_same(browser: BrowserPage, path: str) -> None:
    before = shown(browser, path)
    browser.evaluate("document.querySelector('header nav a[href=\"/ui/events\"]').click()")
    browser.wait_for("Events", "h1")
    browser.evaluate("history.back()")
    browser.wait_for(VIEWS[path])
    assert seen(browser) == before
    browser.call("Page.reload")
    browser.wait_for(VIEWS[path])
    assert seen(browser) == before


def shown(browser: BrowserPage, path: str) -> Any:
    """Show the page in a wide window; what stands on it."""
    browser.look("light", 1280)
    browser.go(path)
    browser.wait_for(VIEWS[path])
    return seen(browser)


def seen(browser: BrowserPage) -> Any:
    """The address, the title, and the captions, headers and links of the page."""
    parts = "h1, h2, tbody th:not(:has(time)), main a, main label"
    texts = f"[...document.querySelectorAll({json.dumps(parts)})].map((each) => each.innerText)"
    return browser.evaluate(f"[location.pathname + location.search, document.title, {texts}]")


def test_a_node_is_found_opened_and_left_by_keys_alone(browser: BrowserPage) -> None:
    shown(browser, "/ui/nodes")
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


def focus(browser: BrowserPage, text: str) -> None:
    """Press Tab until the link with this text has the focus."""
    for _ in range(40):
        if browser.evaluate("document.activeElement.innerText") == text:
            return
        browser.press("Tab")
    raise AssertionError(f"no key reaches {text}")


def test_what_is_typed_stays_while_the_page_is_read_again(browser: BrowserPage) -> None:
    shown(browser, "/ui/nodes")
    browser.evaluate("document.querySelector('#filters input').focus()")
    for character in "edge":
        browser.press(character)
    browser.evaluate("new Promise((done) => setTimeout(done, 1500))")
    for character in "-1":
        browser.press(character)
    browser.wait_for("1 node,")
    assert browser.evaluate("document.querySelector('#filters input').value") == "edge-1"


@pytest.mark.parametrize("text", [".*", "[", "(edge|lost)", "<b>edge</b>", "\\", "%00", "&state=nacked", "#"])
def test_a_text_is_no_pattern_and_no_markup(browser: BrowserPage, text: str) -> None:
    shown(browser, "/ui/nodes")
    script = f"(field) => {{ field.value = {json.dumps(text)}; field.oninput({{ target: field }}); }}"
    browser.evaluate(f"({script})(document.querySelector('#filters input'))")
    browser.wait_for("No node matches the filters.")
    browser.call("Page.reload")
    browser.wait_for("No node matches the filters.")
    assert browser.evaluate("document.querySelector('#filters input').value") == text
    assert browser.evaluate("document.querySelectorAll('main b').length") == 0
    assert browser.messages == []
