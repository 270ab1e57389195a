"""The bench of attacks: it measures what it says, and the page tells what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import attacks
from bench.suite.results import Results
from tests.attack.attacks import ATTACKS
from tests.support.process import REPOSITORY

PAGE = REPOSITORY / "docs" / "performance.md"


@pytest.mark.parametrize("name", ["rapid-reset", pytest.param("http-half-heads", marks=pytest.mark.soak)])
def test_an_attack_is_measured_beside_a_good_client(tmp_path: Path, name: str) -> None:
    cell = attacks.measure(name, 0.5, tmp_path)
    assert cell.values(attacks.ALONE, "answer_s") and cell.values(attacks.BESIDE, "answer_s")
    (cores,), (before,), (peak,) = (cell.values(attacks.SERVER, key) for key in ("cores", "before_mb", "peak_mb"))
    assert cores > 0 and peak >= before * 0.9 > 10
    told = attacks.row(cell)
    assert (told[0], len(told)) == (name, len(attacks.HEADER))


def test_the_page_has_the_figures_that_were_measured() -> None:
    measured = Results.load(PAGE.with_suffix("") / attacks.RESULTS)
    assert {f"attacks/{name}" for name in ATTACKS} == measured.cells.keys()
    told = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    for cell in measured.cells.values():
        name, *rest = attacks.row(cell)
        assert f"| `{name}` | {' | '.join(rest)} |" in told
