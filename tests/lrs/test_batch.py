"""Clusters that are named in the same order again are counted all at once, and as if they had been one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lrs.reports import (
    HERE,
    T0,
    THERE,
    Books,
    row,
    stats,
)
from tests.support.examples import examples
from xds.lrs.batch import BATCH_MINIMUM, BATCHES_LIMIT, BatchSlices, ClusterBatch
from xds.lrs.ingest import BATCH_IDLE_S, ReportIngestion
from xds.lrs.packed_counters import CounterDecoder
from xds.lrs.series_index import IDLE_S

DECODER = CounterDecoder()
NAMES = ("c1", "c2", "c3", "c4")
Row = tuple[int, int, int, int]
Script = list[tuple[int, float, Sequence[str], list[list[Row]], float, int]]


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the reports that met a batch were counted by it."""
    seen: list[bool] = []
    count: Callable[[ReportIngestion, ClusterBatch, Sequence[bytes]], bool] = ReportIngestion._count_batch

    def spy(self: ReportIngestion, batch: ClusterBatch, reports: Sequence[bytes]) -> bool:
        seen.append(count(self, batch, reports))
        return seen[-1]

    monkeypatch.setattr(ReportIngestion, "_count_batch", spy)
    return seen


def tell(book: Books, stream: int, at: float, *in_progress: int, names: Sequence[str] = NAMES, **fields: Any) -> None:
    """One request issued to each cluster, and so many in progress."""
    rows = [
        stats(name, row(issued=1, in_progress=busy), **fields) for name, busy in zip(names, in_progress, strict=True)
    ]
    book.tell(stream, at, *rows)


def in_progress(book: Books, cluster: str, at: float) -> int:
    found = book.cluster(cluster, T0 + at, 10)
    assert found is not None
    return found.figures.in_progress


def issued(book: Books, cluster: str, at: float, window_s: float = 60) -> float:
    found = book.cluster(cluster, T0 + at, window_s)
    assert found is not None
    return found.figures.issued


def test_the_second_report_of_an_order_is_counted_at_once(at_once: list[bool]) -> None:
    book = Books()
    for stream in (1, 2):
        book.open(stream)
        tell(book, stream, 10, 1, 2, 3, 4)
    assert at_once == [True], "by another stream of the same source"
    assert [issued(book, name, 10) for name in NAMES] == [2] * 4
    assert [in_progress(book, name, 10) for name in NAMES] == [2, 4, 6, 8]


def test_what_is_in_progress_is_replaced_and_ends_with_the_stream(at_once: list[bool]) -> None:
    book = Books()
    book.open(1)
    book.open(2)
    for at, busy in ((10, 5), (20, 3), (30, 7)):
        tell(book, 1, at, busy, 0, 0, 1)
        tell(book, 2, at, 1, 0, 1, 0)
        assert [in_progress(book, name, at) for name in NAMES] == [busy + 1, 0, 1, 1]
    book.close(1, 31)
    assert [in_progress(book, name, 31) for name in NAMES] == [1, 0, 1, 0]
    assert all(at_once)


def test_a_cluster_in_another_order_counts_once(at_once: list[bool]) -> None:
    """The streams' gauges are those of the latest report, in whichever order that came."""
    book = Books()
    book.open(1)
    for at, names in enumerate((NAMES, NAMES, NAMES[::-1], NAMES[::-1], NAMES, NAMES[1:], NAMES[1:])):
        tell(book, 1, 10 + at, *[at + 1] * len(names), names=names)
        assert [in_progress(book, name, 10 + at) for name in names] == [at + 1] * len(names)
    assert in_progress(book, "c1", 16) == 5, "not named, and not yet overdue"
    tell(book, 1, 60, 1, 1, 1, names=NAMES[1:])
    assert in_progress(book, "c1", 60) == 0
    assert at_once.count(True) >= 3


def test_other_localities_than_usual_are_counted_by_themselves(at_once: list[bool]) -> None:
    book = Books()
    book.open(1)
    for at in (10, 20):
        book.tell(1, at, *(stats(name, row(HERE, issued=1, in_progress=2)) for name in NAMES))
    both = (row(HERE, issued=1, in_progress=1), row(THERE, issued=4, in_progress=3))
    book.tell(1, 30, stats("c1", row(HERE, issued=1, in_progress=2)), *(stats(name, *both) for name in NAMES[1:]))
    assert [issued(book, name, 30) for name in NAMES] == [3, 7, 7, 7]
    assert [in_progress(book, name, 30) for name in NAMES] == [2, 4, 4, 4]
    book.tell(1, 40, *(stats(name, row(HERE, issued=1, in_progress=2)) for name in NAMES))
    assert [in_progress(book, name, 40) for name in NAMES] == [2] * 4
    assert at_once == [True] * 3


def test_drops_are_counted(at_once: list[bool]) -> None:
    book = Books()
    book.open(1)
    for at in (10, 20):
        book.tell(1, at, *(stats(name, row(issued=1), dropped=number) for number, name in enumerate(NAMES)))
    found = [book.cluster(name, T0 + 20, 60) for name in NAMES]
    assert [one.dropped for one in found if one is not None] == [0, 2, 4, 6]
    assert at_once == [True]


def test_services_are_told_apart_by_what_stands_behind_the_interval(at_once: list[bool]) -> None:
    book = Books()
    book.open(1)
    for at in (10, 20):
        tell(book, 1, at, 0, 0, 0, 0, service_name="one")
    tell(book, 1, 30, 0, 0, 0, 0, service_name="two")
    found = {(one.cluster, one.service_name): one.figures.issued for one in book.clusters(T0 + 30, 60)}
    assert found == {(name, "one"): 2 for name in NAMES} | {(name, "two"): 1 for name in NAMES}
    assert at_once == [True, False]


def test_few_clusters_are_counted_one_by_one(at_once: list[bool]) -> None:
    book = Books()
    book.open(1)
    few = NAMES[: BATCH_MINIMUM - 1]
    for at in (10, 20):
        tell(book, 1, at, *[1] * len(few), names=few)
    assert [issued(book, name, 20) for name in few] == [2] * len(few)
    assert at_once == []


def test_intervals_that_end_in_different_seconds_are_counted_one_by_one(at_once: list[bool]) -> None:
    book = Books()
    book.open(1)
    tell(book, 1, 10, 0, 0, 0, 0)
    lengths = (10.0, 10.1, 9.9, 4.0)
    book.tell(1, 20, *(stats(name, row(issued=1), interval_s=s) for name, s in zip(NAMES, lengths, strict=True)))
    book.tell(1, 30, *(stats(name, row(issued=1), interval_s=10.001) for name in NAMES))
    assert [issued(book, name, 30, 12) for name in NAMES] == pytest.approx([1.2, 1.2, 1.2, 1.5])
    assert at_once == [False, True]


def test_what_was_counted_at_once_is_not_lost_when_a_service_is_told_of_by_itself() -> None:
    book = Books()
    book.open(1)
    book.open(2)
    for at in (10, 10.2):
        tell(book, 1, at, 1, 1, 1, 1)
    book.tell(2, 10.4, stats("c2", row(issued=5), interval_s=3))
    book.tell(2, 11.9, stats("c2", row(issued=5), interval_s=3))
    tell(book, 1, 12, 1, 1, 1, 1)
    assert [issued(book, name, 12) for name in NAMES] == [3, 13, 3, 3]


def test_orders_beyond_the_bound_are_counted_one_by_one(at_once: list[bool]) -> None:
    book = Books()
    book.open(1)
    orders = [[f"first{number}", *NAMES] for number in range(BATCHES_LIMIT + 3)]
    for at in (10, 20):
        for names in orders:
            tell(book, 1, at, *[1] * 5, names=names)
    assert at_once == [True] * BATCHES_LIMIT
    assert [issued(book, name, 20) for name in NAMES] == [2 * len(orders)] * 4
    assert [in_progress(book, name, 20) for name in NAMES] == [1] * 4


def test_an_order_that_nobody_keeps_makes_way_for_the_next(at_once: list[bool]) -> None:
    book = Books()
    book.open(1)
    longer = (*NAMES, "c5")
    tell(book, 1, 10, 1, 1, 1, 1)
    for at in (20.0, 30.0):
        tell(book, 1, at, *[1] * 5, names=longer)
    assert at_once == [False, False], "others may still name the clusters as before"
    for at in (BATCH_IDLE_S + 31, BATCH_IDLE_S + 41):
        tell(book, 1, at, *[1] * 5, names=longer)
    assert at_once == [False, False, False, True]


def test_when_idle_windows_are_forgotten_others_stay_as_they_are(at_once: list[bool]) -> None:
    book = Books()
    book.open(1)
    times = [10.0, 20.0, IDLE_S / 2, IDLE_S + 700, IDLE_S + 710, IDLE_S + 720]
    for at in times:
        tell(book, 1, at, 1, 2, 3, 4)
    assert [in_progress(book, name, times[-1]) for name in NAMES] == [1, 2, 3, 4]
    assert [issued(book, name, times[-1], 30) for name in NAMES] == [3] * 4
    totals = {pair.cluster: pair.issued for pair in book.target_totals()}
    assert totals == dict.fromkeys(NAMES, len(times))
    assert False not in at_once


rows = st.tuples(*[st.integers(0, 300)] * 4)
reports = st.lists(
    st.tuples(
        st.integers(1, 2),
        st.sampled_from([0.0, 0.3, 1.0, 10.0]),
        st.sampled_from([NAMES, NAMES[1:], NAMES[::-1], (*NAMES, "c1")]),
        st.lists(st.lists(rows, max_size=2), min_size=5, max_size=5),
        st.sampled_from([10.0, 10.000123, 2.0]),
        st.integers(0, 2),
    ),
    max_size=25,
)


@examples(150)
@given(reports)
def test_all_at_once_is_as_one_by_one(script: Script) -> None:
    figures = []
    for is_at_once in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_at_once:
                patch.setattr(ReportIngestion, "_count_batch", lambda self, batch, reports: False)
            figures.append(_figures(script))
    assert figures[0] == figures[1]


def _figures(script: Script) -> list[object]:
    book, now, found = Books(), 10.0, list[object]()
    book.open(1)
    book.open(2)
    for stream, wait_s, names, counts, interval_s, dropped in script:
        now += wait_s
        told = [
            stats(
                name,
                *(row(where, *each) for where, each in zip((HERE, THERE), own, strict=False)),
                interval_s=interval_s,
                dropped=dropped,
            )
            for name, own in zip(names, counts, strict=False)
        ]
        found.append(book.tell(stream, now, *told))
        found.append(book.clusters(T0 + now, 15))
    book.close(1, now)
    found += [book.cluster(name, T0 + now, 3_600, by) for name in NAMES for by in ("locality", "node")]
    found += [list(book.target_totals()), list(book.drop_totals()), book.size()]
    return found


# BatchSlices


def test_a_report_that_is_too_short_for_its_cuts_is_not_cut() -> None:
    """Its name ends as an interval does, and so its head and its interval overlap."""
    usual = stats("web", interval_s=10).SerializeToString()
    (known,) = DECODER.read([usual])
    assert not isinstance(known, bytes)
    cuts = BatchSlices([known], DECODER)
    assert cuts.read([usual]) is not None
    interval = known[2]
    name = b"w" + interval
    mimic = b"\x0a" + bytes([len(name)]) + name
    longer = mimic + interval
    (own,) = DECODER.read([longer])
    assert not isinstance(own, bytes)
    assert BatchSlices([own], DECODER).read([longer]) is not None
    assert BatchSlices([own], DECODER).read([mimic]) is None
