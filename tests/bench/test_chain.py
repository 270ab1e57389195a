"""The bench of discovery chains: what it measures is sound, and the page tells what was measured."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from bench import chain
from tests.support.process import REPOSITORY
from xds.mesh.core.chain.index import ChainIndex
from xds.mesh.core.entries.entry import entry_json, entry_key, key_of, read_entry
from xds.mesh.core.entries.entry_set import ConfigEntries


def index_of(services: int) -> ChainIndex:
    return ChainIndex(chain.CONTEXT, ConfigEntries.of(read_entry(one).entries[0] for one in chain.made(services)))


def test_services_have_three_entries_each_and_all_chains_compile() -> None:
    index = index_of(40)
    assert len(index.entries) == 40 * 3 + 1
    assert len(list(index.services)) == 40
    assert index.broken() == ()


def test_a_change_touches_as_many_chains_among_many_services_as_among_few() -> None:
    few, many = index_of(50), index_of(500)
    key = entry_key("service-resolver", "service-00014")
    assert few.depending_on([key]) == many.depending_on([key])
    assert 1 < len(few.depending_on([key])) <= chain.FAMILY


def test_figures_are_measured() -> None:
    found = chain.measure(30, 1)
    assert (found.services, found.entries) == (30, 91)
    assert min(found.compile_us, found.load_s, found.read_s, found.change_ms, found.start_s, found.write_ms) > 0


def test_a_change_that_is_measured_changes_its_chains() -> None:
    index = index_of(30)
    changes = chain._changes(30)
    before = entry_json(index.entries.get(key_of(changes[3])) or changes[3])
    chain._change(index, changes[3:4])
    assert entry_json(index.entries.get(key_of(changes[3])) or changes[3]) != before


def test_the_section_has_the_stored_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "performance").mkdir()
    figures = [chain.Figures(10, 31, 100.0, 0.5, 0.25, 1.5, 3.0, 0.75, 4.5, 6.0)]
    chain.keep(figures, tmp_path)
    assert (
        "| 10 | 31 | 100 us | 0.50 s | 0.25 s | 1.50 ms | 3.0 | 0.75 s | 4.5 ms | 6.0 ms |"
        in (tmp_path / "performance.md").read_text()
    )
    assert json.loads((tmp_path / "performance" / chain.RESULTS).read_text())["figures"] == [asdict(figures[0])]


def test_the_page_has_the_figures_that_were_measured_and_they_meet_their_goals() -> None:
    folder = REPOSITORY / "docs" / "performance"
    page = (REPOSITORY / "docs" / "performance.md").read_text()
    figures = [chain.Figures(**one) for one in json.loads((folder / chain.RESULTS).read_text())["figures"]]
    assert [one.services for one in figures] == list(chain.SIZES)
    for one in figures:
        assert f"| {' | '.join(one.row())} |" in page
        assert one.compile_us < 500
        assert max(one.change_ms, one.write_ms) < 10
    assert max(figures[-1].load_s, figures[-1].start_s) < 5
