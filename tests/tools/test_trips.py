"""`make trips` counts the four trips, and docs/internals/architecture.md has its figures."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.process import REPOSITORY, child_environment

PAGE = (REPOSITORY / "docs" / "internals" / "architecture.md").read_text()
COLUMNS = ("calls", "functions", "files", "changes of room")
WORSE = 1.15  # a trip may be this much longer than the page says
TIMEOUT_S = 100.0

Figures = dict[str, dict[str, int]]


def figures(text: str, row: str) -> Figures:
    """The figures of each trip: those of the rows that fit the pattern."""
    found = re.findall(row, text, re.MULTILINE)
    return {trip: dict(zip(COLUMNS, map(int, values), strict=True)) for trip, *values in found}


PUBLISHED = figures(PAGE, r"^\| (\w[^|]+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$")


@pytest.fixture(scope="module")
def counted() -> Figures:
    done = subprocess.run(
        [sys.executable, "-m", "tools.trips"],
        cwd=REPOSITORY, env=child_environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return figures(done.stdout, r"^(\w.+?) +(\d+) +(\d+) +(\d+) +(\d+)$")


@pytest.mark.parametrize("trip", PUBLISHED)
def test_a_trip_is_not_longer_than_the_page_says(counted: Figures, trip: str) -> None:
    for column in ("functions", "files"):
        assert 0 < counted[trip][column] <= PUBLISHED[trip][column] * WORSE, column


def test_the_page_has_all_trips(counted: Figures) -> None:
    assert list(PUBLISHED) == list(counted)
    assert len(counted) == 4
