"""What holds of every page in each of its looks. A view is an address, with words that stand on the page at last."""

from __future__ import annotations

import json
from typing import Any

from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.browser.world import KEY
from tests.support.process import wait_until

LOOKS = [("light", 1280), ("dark", 1280), ("light", 400), ("dark", 400), ("light", 800)]
# Every control that is shown, by what tells it from others.
CONTROLS = """[...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility() && !each.disabled).map((each) => each.outerHTML.slice(0, 200))"""
FOCUSED = """(() => {
  const element = document.activeElement, style = getComputedStyle(element);
  return [element.outerHTML.slice(0, 200), style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0];
})()"""
TABS_LIMIT = 40


def check_whole(page: BrowserPage, path: str, words: str, scheme: str, width: int) -> None:
    """Anybody finds on it what they must, no request has failed, and no text has become markup."""
    page.look(scheme, width)
    page.go(path)
    page.wait_for(words)
    assert audit(page) == []
    assert page.messages == [] and page.failures == []
    assert KEY not in page.evaluate("document.documentElement.outerHTML")
    assert page.evaluate("document.querySelectorAll('main img').length") == 0
    assert page.evaluate("document.title") != "owned"


def check_keys(page: BrowserPage, path: str, words: str) -> None:
    """Keys reach every control, and show where they are."""
    shown(page, path, words)
    page.evaluate("document.getElementById('live').click()")  # paused: ages would change what is compared
    wanted = set(page.evaluate(CONTROLS))
    reached: set[str] = set()
    for _ in range(len(wanted) + 5):
        page.press("Tab")
        control, is_outlined = page.evaluate(FOCUSED)
        reached.add(control)
        assert is_outlined or control.startswith("<body"), control
    assert wanted - reached == set()


def check_way_back(page: BrowserPage, path: str, words: str) -> None:
    """The way back and a reload show the same."""
    before = shown(page, path, words)
    page.evaluate("document.querySelector('header nav a[href=\"/ui/events\"]').click()")
    page.wait_for("Events", "h1")
    page.evaluate("history.back()")
    page.wait_for(words)
    wait_until(lambda: seen(page) == before, f"what stood on {path}", detail=lambda: f"{seen(page)}\nwas {before}")
    page.call("Page.reload")
    page.wait_for(words)
    wait_until(lambda: seen(page) == before, f"what stood on {path}", detail=lambda: f"{seen(page)}\nwas {before}")


def shown(page: BrowserPage, path: str, words: str) -> Any:
    """Show a view in a wide window; what stands on it."""
    page.look("light", 1280)
    page.go(path)
    page.wait_for(words)
    return seen(page)


def seen(page: BrowserPage) -> Any:
    """The address, the title, and the captions, headers and links of the page that are unfolded."""
    parts = "h1, h2, tbody th:not(:has(time)), main a, main label"
    found = f"[...document.querySelectorAll({json.dumps(parts)})].filter((each) => each.checkVisibility())"
    texts = f"{found}.map((each) => each.innerText)"
    return page.evaluate(f"[location.pathname + location.search, document.title, {texts}]")


def focus(page: BrowserPage, text: str) -> None:
    """Press Tab until the control with this text has the focus."""
    for _ in range(TABS_LIMIT):
        if page.evaluate("document.activeElement.innerText") == text:
            return
        page.press("Tab")
    raise AssertionError(f"no key reaches {text}")
