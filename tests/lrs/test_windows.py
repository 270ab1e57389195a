"""Histories by themselves; what books make of them is in `test_book.py`."""

from __future__ import annotations

from xds.lrs.windows import CountHistory

NOW = 1_800_000_000


def test_one_that_was_never_added_to_is_summed_at_once() -> None:
    """Not second by second since the epoch: such are the windows of clusters that were only ever idle."""
    assert CountHistory(2).sum(NOW - 60, NOW) == [0.0, 0.0]


def test_one_whose_last_report_is_long_ago_is_as_quick() -> None:
    history = CountHistory(1)
    history.add(60, 10, [5.0])
    assert history.sum(NOW - 60, NOW) == [0.0]
    assert history.sum(0, 60) == [5.0]


def test_the_first_minute_is_spread_over_the_part_of_it_that_was_measured() -> None:
    """A window that begins with the first report has all of it, whatever was before in that minute."""
    history = CountHistory(1)
    history.add(NOW, 1, [7.0])
    history.add(NOW + 300, 1, [0.0])
    assert history.sum(NOW - 1, NOW + 300) == [7.0]
    assert history.sum(NOW - 600, NOW + 300) == [7.0]
