"""A headless Chromium on one page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.support.process import ChildProcess

NAMES = ("chromium", "chromium-browser", "google-chrome")
EVIL = "evil.example"


def chromium_binary() -> str:
    """The browser: that of ``XDS_TEST_CHROMIUM``, or one of the path. ``make browser`` installs it."""
    found = os.environ.get("XDS_TEST_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    assert found, "no Chromium: apt install chromium, or run make browser"
    return found


def open_page(url: str, directory: Path, flags: Sequence[str] = ()) -> ChildProcess:
    """A browser that shows a page, and that resolves `EVIL` as its owner likes: to this machine."""
    profile = directory / "profile"
    return ChildProcess(
        "chromium",
        [
            chromium_binary(),
            "--headless=new",
            "--no-sandbox",  # tests may run as root
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-proxy-server",
            f"--user-data-dir={profile}",
            f"--host-resolver-rules=MAP {EVIL} 127.0.0.1",
            *flags,
            url,
        ],
        directory,
    )
