"""The documentation is true: every command in it runs, every link leads somewhere, every file that it names exists.

The walks, which say how each command of a page is tried, are in `walks.py`; a command without a row fails.
"""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bench.test_bench import BENCHES
from tests.docs.walks import WALKS
from tests.support.clone import Clone, commands, try_page
from tests.support.process import REPOSITORY

README = REPOSITORY / "README.md"
PAGES = [README, *sorted((REPOSITORY / "docs").glob("*.md"))]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*/README.md"))  # their commands: tests/e2e/test_examples.py
NAMED = re.compile(r"`((?:examples|tests|docs|bench|deploy|xds|api)/[\w./-]+)`")
with_commands = [page for page in PAGES if any(commands(page))]


def test_every_page_with_commands_has_a_walk() -> None:
    assert {page.name for page in with_commands} == set(WALKS)


@pytest.mark.timeout(300)  # a page has up to fifty commands
@pytest.mark.parametrize("page", with_commands, ids=lambda page: page.name)
def test_every_command_runs(page: Path, tmp_path: Path, running: ExitStack) -> None:
    prepare, walk = WALKS[page.name]
    clone = Clone(tmp_path, running)
    prepare(clone)
    try_page(page, walk, clone)


def test_every_bench_is_on_the_first_page() -> None:
    assert {f"python -m {module}" for module in BENCHES} <= set(commands(README))


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: f"{page.parent.name}/{page.name}")
def test_links_lead_to_files_that_exist(page: Path) -> None:
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()) if "://" not in target]
    missing = [target for target in targets if not (page.parent / target.partition("#")[0]).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_headings_that_exist(page: Path) -> None:
    targets = [target.split("#") for target in re.findall(r"\]\(([^)\s]*#[^)\s]+)\)", page.read_text())]
    missing = [
        (name, anchor) for name, anchor in targets if anchor not in _anchors(page.parent / name if name else page)
    ]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    assert not [name for name in NAMED.findall(page.read_text()) if not (REPOSITORY / name).exists()]


def _anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may say behind its ``#``."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
