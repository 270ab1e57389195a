"""The bench of load reports over gRPC counts what a real server has counted."""

from __future__ import annotations

import pytest

from bench import load_served
from bench.load_reports import Fleet


async def test_every_report_that_is_sent_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_served, "INTERVAL_S", 0.5)
    fleet = Fleet(nodes=30, clusters=4, localities=2, node_rps=50.0)
    found = await load_served.measure(fleet, rounds=2)
    assert (found.sent, found.counted) == (90, 90)
    assert found.cpu_s > 0
    assert "90 of 90 reports counted" in load_served.told(fleet, found)
