"""Reports read for their counters: `xds.lrs.packed_counters`; what both readings tell is in `test_book_model.py`."""

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
from xds.lrs.load_stats import LoadStatsRequest
from xds.lrs.packed_counters import (
    ClusterParts,
    CounterDecoder,
    interval_of,
    names_of,
    pack,
    unpack,
)
from xds.lrs.series import LAYOUTS_LIMIT
from xds.model.node import Locality
from xds.proto import wire_pb2

PLAIN = stats("web", row(HERE, 7, 1, 9, 2), row(THERE, issued=1), interval_s=10.003, service_name="web.prod", dropped=3)


def read(*clusters: bytes) -> list[ClusterParts | bytes]:
    return list(
        CounterDecoder().read(LoadStatsRequest(wire_pb2.LoadTally(cluster_stats=clusters).SerializeToString()).clusters)
    )


def test_what_has_only_counters_is_tallied() -> None:
    (found,) = read(PLAIN.SerializeToString())
    assert not isinstance(found, bytes)
    whole, names, interval, counters = found
    assert whole == PLAIN.SerializeToString()
    assert names_of(names) == ("web", "web.prod")
    assert interval_of(interval) == pytest.approx(10.003)
    assert unpack(counters.counters, 7) == (1, 7, 1, 9, 0, 0, 1)
    assert unpack(counters.in_progress, 2) == (2, 0)
    assert unpack(counters.sums, 4) == (7, 1, 10, 3)


def test_intervals_of_several_lengths_in_one_request() -> None:
    clusters = [stats("web", row(issued=1), interval_s=interval_s) for interval_s in (10, 10.003, 0.5, 300.0001, 10)]
    assert not any(isinstance(each, bytes) for each in read(*(each.SerializeToString() for each in clusters)))


def test_what_only_looks_like_an_interval_is_read_as_what_it_is() -> None:
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
def test_what_is_written_in_a_way_of_its_own_is_read_as_protobuf_has_it(cluster: bytes) -> None:
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


def test_more_layouts_than_are_known_are_counted_all_the_same() -> None:
    book = Books()
    book.open(1)
    places = [Locality("r", f"z{at}") for at in range(LAYOUTS_LIMIT + 20)]
    for turn, place in enumerate(places):
        told = stats("web", row(place, issued=1, in_progress=1), row(HERE, issued=2), interval_s=1)
        book.tell(1, 10 + turn / len(places), told)
    found = book.cluster("web", T0 + 12, 60)
    assert found is not None
    assert found.figures.issued == 3 * len(places)
    assert found.figures.in_progress == 1


def test_lanes_are_added_and_subtracted_side_by_side() -> None:
    most = (1 << 64) - 1
    one, other = pack((1, most, 0)), pack((2, most, 5))
    assert unpack(one + other, 3) == [3, 2 * most, 5]
    assert unpack(one + other - one, 3) == (2, most, 5)
    assert pack(()) == 0
