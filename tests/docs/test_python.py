"""The Python code of the documentation runs, block after block, against a real server."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from tests.support.process import LOOPBACK, REPOSITORY, free_port
from tests.support.server import ServerProcess

PAGES = ("python.md", "from-go-control-plane.md")


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def test_no_page_with_python_is_left_out() -> None:
    assert {page.name for page in (REPOSITORY / "docs").rglob("*.md") if blocks(page)} <= {*PAGES, "services.md"}


@pytest.mark.parametrize("page", PAGES)
def test_the_code_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServerProcess(tmp_path, ["--store", "memory"]) as server:
        monkeypatch.setenv("XDS_ADDR", f"http://{LOOPBACK}:{server.http_port}")
        namespace: dict[str, object] = {"asyncio": asyncio}
        for number, block in enumerate(blocks(REPOSITORY / "docs" / page), 1):
            code = re.sub(r"127\.0\.0\.1:(18000|18080)", lambda _: f"{LOOPBACK}:{free_port()}", block)
            exec(compile(code, f"{page}, block {number}", "exec"), namespace)
    output = capsys.readouterr().out
    if page == "python.md":
        assert "clusters/web" in output and "lb_policy" in output  # the finding of the first block
        assert "revision 1" in output
