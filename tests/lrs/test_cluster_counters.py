"""Reports read for their counters; that both readings say the same is in `test_aggregates_model.py`."""

from __future__ import annotations

import pytest

from tests.lrs.reports import (
    HERE,
    T0,
    THERE,
    Books,
    row,
    stats,
)
from xds.lrs.cluster_counters import REMEMBERED_ROWS, ClusterCounters, CounterReader, names_of, target_of
from xds.lrs.load_stats import LoadStatsRequest
from xds.lrs.packed_counters import unpack_traffic
from xds.proto import wire_pb2

PLAIN = stats(
    "web", row(HERE, 7, 1, 9, 2), row(THERE, issued=1, priority=1), interval_s=10.003, service_name="web.prod"
)


def read(*clusters: bytes) -> list[ClusterCounters | None]:
    request = LoadStatsRequest(wire_pb2.LoadTally(cluster_stats=clusters).SerializeToString())
    return list(CounterReader().read(request.clusters))


def test_reports_of_counters_only_are_read_by_their_bytes() -> None:
    (found,) = read(PLAIN.SerializeToString())
    assert found is not None
    names, length, rows = found
    assert names_of(names) == ("web", "web.prod")
    assert length == 10
    assert [(*target_of(target), unpack_traffic(counters), busy) for target, counters, busy in rows] == [
        (HERE, 0, (7, 1, 9), 2),
        (THERE, 1, (0, 0, 1), 0),
    ]


def test_intervals_of_several_lengths_in_one_request() -> None:
    lengths = {10: 10, 10.003: 10, 10.0000005: 10, 0.5: 1, 300.0001: 300, 9.999: 10, 10.499: 10, 10.501: 11, 127.2: 127}
    clusters = [stats("web", row(issued=1), interval_s=interval_s) for interval_s in [*lengths, *lengths]]
    found = read(*(each.SerializeToString() for each in clusters))
    assert [each and each[1] for each in found] == 2 * list(lengths.values())


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_report_that_is_cut_off_is_not_taken(cut: int) -> None:
    """Nor where the reader knows its parts already."""
    whole = stats("web", row(HERE, 7, 1, 9, 2), interval_s=10.003).SerializeToString()
    first, second = read(whole, whole[:-cut])
    assert first is not None
    assert second is None


@pytest.mark.parametrize("nanos", [b"\xc0\x8d\x37\x01", b"\xc0\x8d\xb7\x81", b"\x40\x08\x63\x01", b"\x08\x63\x08\x63"])
def test_an_interval_with_more_than_seconds_and_nanoseconds_is_not_taken(nanos: bytes) -> None:
    """Its first bytes are known: more seconds may stand behind them."""
    usual = stats("web", interval_s=10.003).SerializeToString()
    assert usual[-4:] == b"\xc0\x8d\xb7\x01"
    first, second = read(usual, usual[:-4] + nanos)
    assert first is not None
    assert second is None


def test_more_rows_than_are_remembered_are_read_all_the_same() -> None:
    reader = CounterReader()
    clusters = [stats("web", row(HERE, issued=issued)).SerializeToString() for issued in (1, REMEMBERED_ROWS + 9)]
    for number in range(REMEMBERED_ROWS + 10):
        list(reader.read([stats("web", row(HERE, issued=number)).SerializeToString()]))
    found = [each for each in reader.read(clusters) if each is not None]
    assert [unpack_traffic(rows[0][1])[2] for _, _, rows in found] == [1, REMEMBERED_ROWS + 9]


def test_fields_that_look_like_an_interval_are_read_as_what_they_are() -> None:
    """A name may have the bytes by which an interval is found."""
    sly = stats('a"\x07b', row(issued=1), service_name='x"\x07yyyyyyyyyy', interval_s=10.003)
    book = Books()
    book.open(1)
    book.tell(1, 10, PLAIN, sly)
    found = book.cluster(sly.cluster_name, T0 + 10, 10)
    assert found is not None
    assert (found.service_name, found.figures.issued) == (sly.cluster_service_name, 1)


@pytest.mark.parametrize(
    "cluster",
    [
        PLAIN.SerializeToString() + wire_pb2.ClusterStats(cluster_name="other").SerializeToString(),
        wire_pb2.ClusterStats(cluster_name="other").SerializeToString() + PLAIN.SerializeToString(),
        PLAIN.SerializeToString() + b"\x0a\x00",
        b"\x0a\x00" + PLAIN.SerializeToString(),
        PLAIN.SerializeToString() + b"\x22\x02\x08\x05",
        b"\x98\x06\x05" + PLAIN.SerializeToString(),
        stats("n" * 200, row(issued=1)).SerializeToString(),
        stats("n" * 126 + "\x8c\x01", row(issued=1)).SerializeToString(),
    ],
    ids=["named twice", "twice in front", "unnamed", "unnamed first", "two intervals", "unknown", "long", "odd length"],
)
def test_unusual_encodings_are_read_as_protobuf_reads_them(cluster: bytes) -> None:
    book = Books()
    book.open(1)
    data = wire_pb2.LoadTally(cluster_stats=[PLAIN.SerializeToString(), cluster]).SerializeToString()
    request = LoadStatsRequest(data)
    book.add(1, request, T0 + 20)
    assert [load for load in request.loads if load.cluster == "web"]
    wanted: dict[tuple[str, str], int] = {}
    for load in request.loads:
        key = load.cluster, load.service_name
        wanted[key] = wanted.get(key, 0) + sum(each.traffic.issued for each in load.localities)
    counted = {(each.cluster, each.service_name): each.figures.issued for each in book.clusters(T0 + 20, 60)}
    assert counted == pytest.approx(wanted)
