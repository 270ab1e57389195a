"""Every page in each of its looks: what anybody must find on it, and that a text of a node never becomes markup.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import pytest

from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.browser.world import GONE, KEY, VIEWS

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [1280, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
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
