"""What a flood meets: bounds that count what they keep out, and leave the others' figures right."""

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
from xds.lrs.figures import UNCATEGORISED
from xds.model.node import Locality
from xds.proto import wire_pb2


def left_out(book: Books) -> dict[str, int]:
    return dict(book.size().left_out)


def test_clusters_beyond_the_bound_are_left_out_and_counted() -> None:
    book = Books(services=2)
    book.open(1)
    taken = book.tell(1, 10, *(stats(f"c{at}", row(issued=1)) for at in range(5)))
    assert (taken.clusters, taken.left_out) == (2, 3)
    assert left_out(book)["services"] == 3
    assert book.size().services == 2


def test_a_flood_of_names_makes_room_for_others_when_it_stops() -> None:
    book = Books(services=10)
    book.open(1)
    book.open(2)
    book.tell(1, 10, *(stats(f"junk{at}", row(issued=1)) for at in range(20)))
    assert book.tell(2, 10, stats("web", row(issued=1))).left_out == 1
    book.close(1, 11)
    assert book.tell(2, 400, stats("web", row(issued=1))).left_out == 0
    assert book.size().services <= 10


def test_one_stream_cannot_use_up_the_memory_of_all() -> None:
    book = Books(made_by_stream=4)
    book.open(1)
    book.open(2)
    assert book.tell(1, 10, *(stats(f"junk{at}", row(issued=1)) for at in range(9))).clusters == 2
    assert book.tell(2, 10, stats("web", row(issued=1))).clusters == 1
    assert left_out(book)["made_by_stream"] == 7
    assert book.tell(1, 4_000, *(stats(f"late{at}", row(issued=1)) for at in range(9))).clusters == 2


@pytest.mark.parametrize("bound", ["targets", "windows"])
def test_localities_beyond_the_bound_are_left_out(bound: str) -> None:
    book = Books(**{bound: 2})
    book.open(1)
    taken = book.tell(1, 10, stats("web", *(row(Locality(zone=str(at)), issued=1, in_progress=1) for at in range(5))))
    assert taken.left_out == 3
    assert left_out(book)[bound] == 3
    figures = book.cluster("web", T0 + 10, 10)
    assert figures is not None
    assert (figures.figures.issued, figures.figures.in_progress) == (2, 2)
    assert book.size().windows == 2


def test_endpoints_and_metrics_beyond_the_bound_are_left_out() -> None:
    book = Books(endpoints=1, metrics=1)
    book.open(1)
    addresses = [wire_pb2.Address(pipe=wire_pb2.Pipe(path=path)) for path in ("/a", "/b", "/c")]
    endpoints = [wire_pb2.UpstreamEndpointStats(address=address, total_issued_requests=1) for address in addresses]
    metrics = [wire_pb2.EndpointLoadMetricStats(metric_name=name, total_metric_value=1) for name in "xyz"]
    told = row(issued=3, upstream_endpoint_stats=endpoints, load_metric_stats=metrics)
    assert book.tell(1, 10, stats("web", told)).left_out == 4
    figures = book.cluster("web", T0 + 10, 10, "endpoint")
    assert figures is not None
    assert [each.endpoint for each in figures.rows] == ["/a"]


def test_metrics_that_would_spoil_sums_are_left_out() -> None:
    book = Books()
    book.open(1)
    metric = wire_pb2.EndpointLoadMetricStats(metric_name="x", total_metric_value=1e308)
    assert book.tell(1, 10, stats("web", row(issued=3, load_metric_stats=[metric]))).left_out == 1
    assert left_out(book) == {"metric_value": 1}


def test_categories_beyond_the_bound_have_none() -> None:
    """No drop is lost by it."""
    book = Books(categories=2)
    book.open(1)
    book.tell(1, 10, stats("web", dropped=10, drops={"a": 1, "b": 2, "c": 3, "d": 4}))
    figures = book.cluster("web", T0 + 10, 10)
    assert figures is not None
    assert figures.drops == {"a": 1, "b": 2, UNCATEGORISED: 7}


def test_clusters_of_one_report_are_bounded() -> None:
    book = Books(clusters=3)
    book.open(1)
    taken = book.tell(1, 10, *(stats(f"c{at}", row(issued=1)) for at in range(5)))
    assert (taken.clusters, taken.left_out) == (3, 2)


def test_source_localities_are_bounded() -> None:
    """Nodes of one too many are counted with those that do not say where they are."""
    book = Books(sources=1)
    book.open(1, locality=HERE)
    book.open(2, locality=THERE)
    book.tell(1, 10, stats("web", row(issued=1)))
    book.tell(2, 10, stats("web", row(issued=2)))
    assert [each.source for each in book.demand("", "web", T0 + 10, 10).sources] == [Locality(), HERE]


def test_latest_reports_are_kept_as_far_as_there_is_room() -> None:
    """Totals are there all the same."""
    book = Books(latest_bytes=60)
    for stream in range(4):
        book.open(stream)
        book.tell(stream, 10, stats("web", row(issued=1)))
    figures = book.cluster("web", T0 + 10, 10, "node")
    assert figures is not None
    assert sorted(each.figures.issued for each in figures.rows) == [0, 0, 1, 1]
    assert all(each.totals and each.totals.issued == 1 for each in figures.rows)
    for stream in range(4):
        book.close(stream, 11)
    book.open(9)
    book.tell(9, 20, stats("web", row(issued=5)))
    figures = book.cluster("web", T0 + 20, 10, "node")
    assert figures is not None
    assert [each.figures.issued for each in figures.rows] == [5]


def test_nodes_that_left_are_forgotten_beyond_the_bound() -> None:
    book = Books(nodes_gone=2)
    for stream in range(5):
        book.open(stream)
        book.close(stream, stream)
    assert book.size().nodes == 2


def test_when_nodes_left_is_forgotten_beyond_the_bound() -> None:
    book = Books(nodes_left=2)
    for stream in range(5):
        book.open(stream)
        book.close(stream, stream)
    assert book.departed_nodes() == {"node-3": T0 + 3, "node-4": T0 + 4}


def test_a_flood_of_intervals_and_localities_is_bounded() -> None:
    """Many reports in one second, of all lengths: nothing grows, nothing is lost."""
    book = Books()
    book.open(1)
    for length in range(1, 300):
        book.tell(1, 10, stats("web", row(issued=1), interval_s=length * 250.0))
    (totals,) = book.target_totals()
    assert totals.issued == 299
    figures = book.cluster("web", T0 + 10, 3_600)
    assert figures is not None
    assert 0 < figures.figures.issued <= 299
    assert book.size().windows == 1


def test_series_without_reports_are_forgotten_after_an_hour() -> None:
    book = Books()
    book.open(1)
    book.tell(1, 10, stats("old", row(issued=1)), stats("web", row(HERE, issued=1), row(THERE, issued=1)))
    for at in range(20, 9_000, 500):
        book.tell(1, at, stats("web", row(HERE, issued=1)))
    assert [each.cluster for each in book.clusters(T0 + 9_000, 60)] == ["web"]
    assert book.cluster("old", T0 + 9_000, 60) is None
    assert (book.size().services, book.size().windows) == (1, 1)
