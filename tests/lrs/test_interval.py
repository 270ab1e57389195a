"""The interval under load: `ReportInterval`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from xds.lrs.report_stream import RETURN_SHARE, STEP, WORK_SHARE, IntervalChange, ReportInterval

REPORTS = 100  # in an interval, over all clients


class Fleet:
    """Clients that follow the interval: each of their reports takes as long to read."""

    def __init__(self, interval: ReportInterval) -> None:
        self.interval = interval
        self.now = 0.0
        self.changes: list[tuple[float, IntervalChange]] = []

    def report(self, lasted_s: float, share: float) -> None:
        """Reports for so long; reading takes ``share`` of a core at the interval that was set."""
        ends_at = self.now + lasted_s
        while self.now < ends_at:
            self.now += self.interval.interval_s / REPORTS
            change = self.interval.add(share * self.interval.set_s / REPORTS, self.now)
            if change is not None:
                self.changes.append((self.now, change))


def lengths(fleet: Fleet) -> list[float]:
    return [change.interval_s for _, change in fleet.changes]


def test_the_interval_is_longer_under_load_and_returns() -> None:
    fleet = Fleet(ReportInterval(10.0, 40.0))
    fleet.report(300, 0.25)
    assert lengths(fleet) == []
    fleet.report(300, 0.5)
    assert lengths(fleet) == [20.0]
    assert fleet.changes[0][1].share == pytest.approx(0.5, abs=0.05)
    assert fleet.interval.share == pytest.approx(0.25, abs=0.01)
    fleet.report(300, 0.15)
    assert lengths(fleet) == [20.0, 10.0]


def test_the_interval_is_bounded() -> None:
    fleet = Fleet(ReportInterval(10.0, 35.0))
    fleet.report(600, 30.0)
    assert lengths(fleet) == [20.0, 35.0]


@pytest.mark.parametrize("longest_s", [0.0, 10.0])
def test_adaptation_of_the_interval_can_be_turned_off(longest_s: float) -> None:
    fleet = Fleet(ReportInterval(10.0, longest_s))
    fleet.report(600, 0.9)
    assert (lengths(fleet), fleet.interval.interval_s) == ([], 10.0)


def test_a_change_waits_until_clients_have_followed_the_one_before() -> None:
    fleet = Fleet(ReportInterval(10.0, 80.0))
    fleet.report(600, 3.0)
    (first, _), (second, _), (third, _) = fleet.changes
    assert first >= 20.0
    assert (second - first >= 40.0, third - second >= 80.0) == (True, True)


@given(st.floats(0.0, 2.0), st.sampled_from([1.0, 10.0, 60.0]), st.sampled_from([10.0, 40.0, 300.0]))
@examples(60)
def test_under_a_constant_load_it_comes_to_rest(share: float, set_s: float, longest_s: float) -> None:
    """It does not swing between two intervals, and reading takes no more than its share, if the bound allows."""
    fleet = Fleet(ReportInterval(set_s, longest_s))
    fleet.report(40 * max(set_s, longest_s, 20.0), share)
    assert all(change.interval_s > change.before_s for _, change in fleet.changes)
    interval_s = fleet.interval.interval_s
    assert share * set_s / interval_s <= WORK_SHARE + 0.01 or interval_s == fleet.interval.longest_s
    assert set_s <= interval_s <= max(set_s, longest_s)


def test_returning_leaves_room() -> None:
    """Else it would be lengthened again at once."""
    assert WORK_SHARE / STEP < RETURN_SHARE < WORK_SHARE
