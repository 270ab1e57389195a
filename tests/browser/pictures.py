"""Pictures of the pages for docs/pages.md."""

from __future__ import annotations

import os
from pathlib import Path

from tests.browser.devtools import BrowserPage

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "pages"
WIDTH, HEIGHT_LIMIT = 1000, 900


def take_picture(page: BrowserPage, name: str, width: int = WIDTH) -> None:
    """Take a picture of the page as it is shown. `XDS_WRITE_PICTURES` has it written to `FOLDER`."""
    page.look("light", width, 1)  # so that the page is as high as what it shows
    height = min(int(page.evaluate("document.documentElement.scrollHeight")), HEIGHT_LIMIT)
    page.look("light", width, height)
    page.evaluate("new Promise(requestAnimationFrame)")
    picture = page.screenshot()
    assert picture.startswith(b"\x89PNG")
    if os.environ.get("XDS_WRITE_PICTURES"):
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.png").write_bytes(picture)
