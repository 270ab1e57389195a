"""The bench of the catalog through real sockets: each change reaches each stream as one response."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import catalog_served
from bench.catalog_served import Row


@pytest.mark.soak
async def test_each_change_reaches_each_stream_as_one_response() -> None:
    row = await catalog_served.measure(services=12, streams=5, rounds=4, rate=100, seconds=0.5)
    assert (row.services, row.streams, row.sent, row.revisions) == (12, 5, 1.0, 0)
    assert 0 < row.wall_ms <= row.worst_ms
    assert row.stream_us > 0 and row.bytes > 200 and row.start_s > 0
    assert 0 < row.busy < 2 and row.late_ms > 0 and row.flood_responses > 0


def test_the_page_has_the_figures_and_their_growth(tmp_path: Path) -> None:
    (tmp_path / "performance").mkdir()
    few = Row(100, 1_000, 200.0, 300.0, 50.0, 1.0, 534.0, 0.2, 90.0, 15.0, 140.0, 2.0, 0)
    many = few._replace(services=10_000, wall_ms=250.0, stream_us=60.0)
    for _ in range(2):
        catalog_served.keep([few, many], tmp_path)
    text = "\n".join(catalog_served.section(tmp_path / "performance"))
    assert text.count("| 10,000 | 1,000 | 250 | 300 | 60 | 1 | 534 | 0.2 | 90 | 15 | 140 | 2 | 0 |") == 1
    assert "100 to 10,000 services: wall time times 1.25 (goal 1.5), CPU times 1.20 (goal 1.5)" in text
    assert catalog_served.TITLE in (tmp_path / "performance.md").read_text()
