"""The audit of a page finds what it looks for.

Not part of ``make test``: it needs Chromium, which ``make browser`` installs.
"""

from __future__ import annotations

import json

import pytest

from tests.browser.audit import audit
from tests.browser.devtools import BrowserPage
from tests.browser.looks import shown
from tests.browser.world import VIEWS

pytestmark = pytest.mark.browser

FLAWS = {
    "<button></button>": "no name",
    "<input>": "no label",
    "<svg></svg>": "no text",
    "<table><caption>t</caption><tr><th>a</th></tr></table>": "no scope",
    "<table><tr><th scope='row'>a</th></tr></table>": "no caption",
    "<p class='faint'>faint</p>": "contrast",
    "<p class='veiled'>veiled</p>": "contrast",
    "<p class='wide'>wide</p>": "scrolls sideways",
    "<h4>deep</h4>": "headings skip a level",
    "<i id='title'></i>": "an id occurs twice",
}
FLAWED = """{
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(".faint { color: #999 } .veiled { background: #000c; color: #333 } .wide { width: 3000px }");
  document.adoptedStyleSheets = [sheet];
  document.getElementById("content").innerHTML = %s;
}"""


@pytest.mark.parametrize("flaw", FLAWS)
def test_each_flaw_is_found(browser: BrowserPage, flaw: str) -> None:
    shown(browser, "/ui/nodes/gone", VIEWS["/ui/nodes/gone"])
    browser.evaluate("document.getElementById('live').click()")
    browser.evaluate(FLAWED % json.dumps(flaw))
    found = audit(browser)
    assert any(each.startswith(FLAWS[flaw]) for each in found), found
