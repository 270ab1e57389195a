"""Every command of the documentation runs. Its links are checked by ``tools.house``.

The walks, which say how each command of a page is tried, are in `walks.py`; a command without a row fails.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bench.test_bench import BENCHES
from tests.docs.walks import WALKS
from tests.support.clone import Clone, commands, try_page
from tests.support.process import REPOSITORY

README = REPOSITORY / "README.md"
CONTRIBUTING = REPOSITORY / "CONTRIBUTING.md"
PAGES = [README, CONTRIBUTING, *sorted((REPOSITORY / "docs").rglob("*.md"))]
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


def test_contributors_are_shown_every_bench() -> None:
    assert {f"python -m {module}" for module in BENCHES} <= set(commands(CONTRIBUTING))
