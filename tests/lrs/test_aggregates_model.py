"""Random reports of random streams, against a list of all that was ever told."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.lrs.reports import (
    T0,
    Books,
    encode,
    row,
    stats,
)
from tests.support.examples import examples
from xds.lrs.cluster_counters import (
    COUNTER_LIMIT,
    ClusterCounters,
    CounterReader,
    NotOnlyCountersError,
    names_of,
    target_of,
)
from xds.lrs.load_stats import LoadStatsRequest, decode_cluster_stats
from xds.lrs.packed_counters import unpack_traffic
from xds.lrs.windows import MINUTES, SECONDS, CountHistory, edge_of, length_of
from xds.model.load_report import ClusterLoad
from xds.model.node import Locality
from xds.proto import wire_pb2

ZONES = [Locality("r", zone) for zone in "ab"]
CLUSTERS = ["c1", "c2", "c3", "c4", "c5"]
LATE_S = 20.0
COUNTED = ("successes", "errors", "issued")

counts = st.integers(0, 40)
rows = st.dictionaries(st.sampled_from(ZONES), st.tuples(counts, counts, counts, st.integers(0, 3)), max_size=2)
details = st.tuples(rows, st.integers(0, 5))
reports = st.one_of(
    st.dictionaries(st.sampled_from(CLUSTERS), details, max_size=3),
    st.lists(details, min_size=len(CLUSTERS), max_size=len(CLUSTERS)).map(
        lambda each: dict(zip(CLUSTERS, each, strict=True))
    ),
)
told = st.tuples(st.just("tell"), st.integers(1, 3), reports)
waited = st.tuples(st.just("wait"), st.sampled_from([0.4, 1.0, 4.6, 10.0, 47.0]), st.none())
step = st.one_of(
    st.tuples(st.just("open"), st.integers(1, 3), st.sampled_from(ZONES)),
    st.tuples(st.just("close"), st.integers(1, 3), st.none()),
    told,
    waited,
)
# With three streams from the start.
BEGUN = [("open", 1, ZONES[0]), ("open", 2, ZONES[0]), ("open", 3, ZONES[1])]
lively = st.lists(st.one_of(told, told, told, waited, step), min_size=8, max_size=40)
steps = st.one_of(st.lists(step, max_size=40), lively.map(lambda script: [*BEGUN, *script]))


@dataclass
class Model:
    """All reports, and what open streams said last."""

    told: list[tuple[str, Locality, Locality, int, float, tuple[int, int, int]]] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    localities: dict[int, Locality] = field(default_factory=dict)
    reached: dict[int, float] = field(default_factory=dict)
    gauges: dict[int, dict[str, tuple[float, int]]] = field(default_factory=dict)

    def counted(self, cluster: str, begin: float, end: float) -> list[float]:
        """Reports are of whole seconds here as there; each is spread over its own interval."""
        found = [0.0, 0.0, 0.0]
        for name, _, _, ended, length, told in self.told:
            part = max(0.0, min(end, ended) - max(begin, ended - length)) / length
            if name == cluster:
                found = [sum(pair) for pair in zip(found, (part * count for count in told), strict=True)]
        return found

    def in_progress(self, cluster: str) -> int:
        return sum(gauges[cluster][1] for gauges in self.gauges.values() if cluster in gauges)


def play(book: Books, model: Model, script: list[tuple[str, float, object]]) -> float:
    """Returns the time at the end."""
    now = 0.0
    for verb, subject, detail in script:
        stream = int(subject)
        if verb == "wait":
            now += subject
        elif verb == "open" and stream not in model.localities:
            assert isinstance(detail, Locality)
            book.open(stream, now, detail, node=f"node-{stream % 2}")
            model.localities[stream], model.reached[stream], model.gauges[stream] = detail, now, {}
        elif verb == "close":
            book.close(stream, now)
            for known in (model.localities, model.reached, model.gauges):
                known.pop(stream, None)
        elif verb == "tell" and stream in model.localities:
            assert isinstance(detail, dict)
            tell(book, model, stream, now, detail)
    return now


def tell(
    book: Books,
    model: Model,
    stream: int,
    now: float,
    report: dict[str, tuple[dict[Locality, tuple[int, int, int, int]], int]],
) -> None:
    interval_s = max(0.5, now - model.reached[stream])
    made = [
        stats(name, *(row(zone, *told) for zone, told in zones.items()), interval_s=interval_s, dropped=dropped)
        for name, (zones, dropped) in report.items()
    ]
    taken = book.tell(stream, now, *made)
    assert (taken.clusters, taken.refused, taken.left_out) == (len(report), 0, 0)
    model.reached[stream] = now
    gauges = model.gauges[stream]
    for name, (zones, dropped) in report.items():
        model.dropped[name] += dropped
        gauges[name] = now, sum(told[3] for told in zones.values())
        for zone, told in zones.items():
            length = max(1, round(interval_s))
            model.told.append((name, model.localities[stream], zone, edge_of(T0 + now), length, told[:3]))
    for name in [name for name, (said, _) in gauges.items() if T0 + said < T0 + now - LATE_S]:
        del gauges[name]


@given(steps, st.sampled_from([1, 7, 30, 100]))
@examples(150)
def test_windows_gauges_and_totals_are_those_of_the_model(
    script: list[tuple[str, float, object]], window_s: int
) -> None:
    book, model = Books(), Model()
    now = play(book, model, script)
    for cluster in CLUSTERS:
        figures = book.cluster(cluster, T0 + now, window_s)
        if figures is None:
            continue
        told = figures.figures
        assert told.in_progress == model.in_progress(cluster) == sum(each.figures.in_progress for each in figures.rows)
        # As rounded as the book has it: of large numbers.
        waited = [at for at in model.reached.values() if (T0 + now) - (T0 + at) <= LATE_S]
        end = edge_of(T0 + min(waited, default=now))
        assert figures.until == end
        # What is older than two minutes is known by the minute only.
        if end - told.window_s > T0 + now - SECONDS + 1:
            want = model.counted(cluster, end - told.window_s, end)
            assert [told.successes, told.errors, told.issued] == pytest.approx(want, abs=1e-4)
        for name in ("successes", "errors", "issued"):
            assert getattr(told, name) == pytest.approx(
                sum(getattr(each.figures, name) for each in figures.rows), abs=1e-4
            )


@given(steps)
@examples(100)
def test_no_count_is_lost_or_made(script: list[tuple[str, float, object]]) -> None:
    """All ways to look at it come to the same: totals by pair, by node, and the windows of an hour."""
    book, model = Books(), Model()
    now = play(book, model, script)
    for stream in (1, 2, 3):
        book.close(stream, now)
    for cluster in CLUSTERS:
        want = [sum(told[5][at] for told in model.told if told[0] == cluster) for at in range(3)]
        pairs = [each for each in book.target_totals() if each.cluster == cluster]
        assert [sum(getattr(pair, name) for pair in pairs) for name in ("successes", "errors", "issued")] == want
        assert sum(each.dropped for each in book.drop_totals() if each.cluster == cluster) == model.dropped[cluster]
        assert issued_by_nodes(book, cluster, now) == want[2]
        figures = book.cluster(cluster, T0 + now + 60, 3_600)
        if figures is not None:
            issued = sum(told[5][2] for told in model.told if told[0] == cluster)
            assert figures.figures.issued == pytest.approx(issued, abs=1e-3)


def issued_by_nodes(book: Books, cluster: str, now: float) -> int:
    """The totals of the nodes, who are back for it."""
    for node in (0, 1):
        book.open(10 + node, now, node=f"node-{node}")
    figures = book.cluster(cluster, T0 + now, 60, "node")
    for node in (0, 1):
        book.close(10 + node, now)
    return sum(each.totals.issued for each in figures.rows if each.totals) if figures else 0


Row = tuple[Locality, int, tuple[int, int, int]]  # target, priority, successes and errors and issued
placed = st.tuples(st.sampled_from(ZONES), st.integers(0, 2), st.tuples(counts, counts, counts))
told_parts = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 3), st.sampled_from(CLUSTERS), st.lists(placed, max_size=4)),
    max_size=25,
)


@given(told_parts, st.booleans(), st.randoms(use_true_random=False))
@examples(150)
def test_any_order_and_any_split_of_a_report_counts_the_same(
    parts: list[tuple[int, int, str, list[Row]]], has_pieces: bool, shuffler: Random
) -> None:
    """Over messages and streams, or over the pieces of one message; clusters and rows in any order."""
    book = Books()
    want: dict[tuple[str, Locality, Locality, int], list[int]] = defaultdict(lambda: [0, 0, 0])
    by_message: dict[tuple[int, int], list[wire_pb2.ClusterStats]] = defaultdict(list)
    for stream, message, cluster, rows in parts:
        for target, priority, counted in rows:
            key = cluster, ZONES[stream % 2], target, priority
            want[key] = list(map(sum, zip(want[key], counted, strict=True)))
        made = [row(target, *counted, priority=priority) for target, priority, counted in rows]
        by_message[stream, message].append(stats(cluster, *made))
    for stream in (1, 2, 3):
        book.open(stream, 0, ZONES[stream % 2])
    for stream in (1, 2, 3):
        book.tell(stream, 10)  # windows wait for those that have not reported
    for (stream, message), clusters in by_message.items():
        shuffler.shuffle(clusters)
        book.add(stream, LoadStatsRequest(encode(*clusters), has_pieces and message > 0), T0 + 10)
    got = {
        (cluster, each.source, each.target, each.priority): [getattr(each.figures, name) for name in COUNTED]
        for cluster in CLUSTERS
        if (figures := book.cluster(cluster, T0 + 10, 10)) is not None
        for each in figures.rows
    }
    assert got == want
    for cluster in CLUSTERS:
        named = {stream for stream, _, name, _ in parts if name == cluster}
        figures = book.cluster(cluster, T0 + 10, 10)
        assert (figures.nodes if figures is not None else 0) == len(named)


@given(
    st.lists(
        st.tuples(st.integers(0, 90), st.sampled_from([1, 5, 10, 10, 10, 30, 200]), st.integers(1, 50)), max_size=60
    )
)
@examples(150)
def test_a_history_is_the_sum_of_its_parts(told: list[tuple[int, int, int]]) -> None:
    history, now = CountHistory(1), 10_000
    for wait, length, count in told:
        now += wait
        history.add(now, length, (count,))
    whole = history.sum(now - SECONDS, now)[0]
    assert sum(history.sum(at, at + 1)[0] for at in range(now - SECONDS, now)) == pytest.approx(whole, abs=1e-6)
    if sum(wait for wait, _, _ in told) + 200 < 60 * (MINUTES - 2):
        assert history.sum(now - 60 * (MINUTES - 2), now)[0] == pytest.approx(sum(count for *_, count in told))


values = st.sampled_from([0, 1, 7, 300, COUNTER_LIMIT, COUNTER_LIMIT + 1, (1 << 64) - 3])


@st.composite
def cluster_stats(draw: st.DrawFn) -> wire_pb2.ClusterStats:
    """Good ones and such as cannot be."""
    zones = [
        row(
            zone,
            *(draw(values) if draw(st.booleans()) else 1 for _ in range(4)),
            priority=draw(st.sampled_from([0, 1, 128, 129])),
        )
        for zone in draw(st.lists(st.sampled_from(ZONES), max_size=2))
    ]
    made = stats(
        draw(st.sampled_from(["", "a", "b"])), *zones, dropped=draw(st.sampled_from([0, 3, COUNTER_LIMIT + 1]))
    )
    made.load_report_interval.FromNanoseconds(draw(st.sampled_from([0, -5, 10**10, 10**15])))
    if draw(st.booleans()):
        made.dropped_requests.add(category="c", dropped_count=draw(values))
    return made


@given(st.lists(cluster_stats(), max_size=5))
@examples(200)
def test_counting_and_decoding_agree_on_a_report(clusters: list[wire_pb2.ClusterStats]) -> None:
    """The fast reading refuses what the other refuses, and has the same counters."""
    request: LoadStatsRequest = LoadStatsRequest(encode(*clusters))
    loads = []
    for serialized, found in zip(request.clusters, CounterReader().read(request.clusters), strict=True):
        load = decode_cluster_stats(serialized)
        loads.append(load)
        if found is not None:
            check_counters(found, load)
    assert tuple(load for load in loads if load is not None) == request.loads
    assert loads.count(None) == request.refused


def check_counters(found: ClusterCounters, load: ClusterLoad | None) -> None:
    """The counters are those of the report as values."""
    names, length, rows = found
    try:
        known = names_of(names)
    except NotOnlyCountersError:
        return
    assert load is not None
    assert (known, length) == ((load.cluster, load.service_name), length_of(load.interval_s))
    assert (load.dropped, load.drops) == (0, {})
    assert [(*target_of(target), *unpack_traffic(counters), in_progress) for target, counters, in_progress in rows] == [
        (each.locality, each.priority, *each.traffic) for each in load.localities
    ]
