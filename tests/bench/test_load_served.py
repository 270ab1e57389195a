"""The bench of load reports over gRPC counts what a real server has counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import load_served
from bench.load_reports import Fleet, extensions, locality_of, node_field, reports_of
from xds.lrs.load_stats import LoadStatsRequest
from xds.wire.node import decode_node


@pytest.mark.soak
async def test_every_report_that_is_sent_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_served, "INTERVAL_S", 0.5)
    fleet = Fleet(nodes=30, clusters=4, localities=2, node_rps=50.0)
    found = await load_served.measure(fleet, rounds=2)
    assert (found.sent, found.counted) == (90, 90)
    assert found.cpu_s > 0
    assert "90 of 90 reports counted" in load_served.told(fleet, found)


def test_the_page_tells_what_was_measured(tmp_path: Path) -> None:
    (tmp_path / "performance").mkdir()
    fleet, found = Fleet(10, 100, 3, 50.0), load_served.Measured(2.0, 2, 5_000, 30, 30, 3.0)
    for _ in range(2):
        load_served.keep(load_served.row_of(fleet, found), tmp_path)
    text = "\n".join(load_served.section(tmp_path / "performance"))
    assert text.count("| 10 | 100 | 1 of 3 | shuffled | 0.1 | 1000.0 | 0.1 | 5 | 30 of 30 |") == 1
    assert load_served.TITLE in (tmp_path / "performance.md").read_text()


@pytest.mark.parametrize("is_ordered", [False, True])
def test_reports_are_as_envoy_sends_them(is_ordered: bool) -> None:
    """Another order each time, no idle localities, each cluster's interval measured by itself, the node repeated."""
    fleet = Fleet(nodes=1, clusters=50, localities=3, node_rps=500.0, is_ordered=is_ordered)
    tail = extensions(fleet)
    sent = [LoadStatsRequest(node_field(fleet, node, tail) + data) for node, _, data in reports_of(fleet, 2)]
    assert all(60_000 < len(each.node) < 62_000 for each in sent)
    assert decode_node(sent[0].node, 1 << 20).locality == locality_of(0)
    first, second = ([load.cluster for load in each.loads] for each in sent)
    assert (first == second, sorted(first) == sorted(second)) == (is_ordered, True)
    assert len({load.interval_s for load in sent[0].loads}) == 50
    rows = [row for load in sent[0].loads for row in load.localities]
    assert 25 < len(rows) < 75
    assert all(row.traffic.issued for row in rows)
