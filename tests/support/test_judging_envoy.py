"""Envoys that judge side by side, as those of two runs of the tests do, do not disturb each other."""

from __future__ import annotations

from pathlib import Path

from tests.support.judging_envoy import JudgingEnvoy
from tests.support.resources import static_cluster


def test_two_judges_in_directories_of_one_name_both_answer(tmp_path: Path) -> None:
    directories = [tmp_path / run / "envoy0" for run in ("first", "second")]
    for directory in directories:
        directory.mkdir(parents=True)
    with JudgingEnvoy(directories[0]) as first, JudgingEnvoy(directories[1]) as second:
        assert [judge.verdict("clusters", static_cluster("c", 80)) for judge in (first, second)] == ["", ""]
