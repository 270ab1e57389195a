"""Load reports added up, by the LRS rules of docs/protocol.md#load-reports: 1, 6, 7, 11, 12, 13, 18, 19, 20."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from tests.lrs.reports import (
    HERE,
    T0,
    THERE,
    Books,
    encode,
    row,
    stats,
)
from xds.lrs.aggregates import LoadAggregates
from xds.lrs.figures import UNCATEGORISED, ClusterFigures, Totals
from xds.lrs.load_stats import LoadStatsRequest
from xds.model.load_report import CPU, Metric
from xds.model.node import Locality, Node
from xds.proto import wire_pb2


@pytest.fixture
def book() -> Books:
    """With a node in HERE that connected at 0."""
    made = Books()
    made.open(1)
    return made


def found(book: LoadAggregates, at: float, window_s: float = 60.0, **arguments: Any) -> ClusterFigures:
    figures = book.cluster("web", T0 + at, window_s, **arguments)
    assert figures is not None
    return figures


def test_a_report_is_counted(book: Books) -> None:
    taken = book.tell(1, 10, stats("web", row(successes=7, errors=2, issued=10, in_progress=1)))
    assert (taken.clusters, taken.localities, taken.refused, taken.left_out) == (1, 1, 0, 0)
    figures = found(book, 10).figures
    assert (figures.successes, figures.errors, figures.issued, figures.in_progress) == (7, 2, 10, 1)
    assert figures.rps == pytest.approx(1.0)
    assert figures.error_ratio == pytest.approx(2 / 9)


def test_the_requests_of_a_node_are_those_of_the_clusters_that_are_asked_for(book: Books) -> None:
    book.tell(1, 10, stats("web", row(successes=7, errors=2)), stats("api", row(successes=1)))
    book.tell(1, 20, stats("xds_cluster", row(errors=9)))  # the way to this server, before a restart
    node = "node-1"
    assert book.requests_of(node, {"web", "api"}) == Totals(8, 2)
    assert book.requests_of(node, {"web"}) == Totals(7, 2)
    assert book.requests_of(node, {"other"}) is None
    book.close(1, 30)
    assert book.requests_of(node, {"web"}) is None


def test_the_recent_requests_of_a_group_are_those_of_the_window(book: Books) -> None:
    """Of all localities, and of the nodes of this group alone."""
    book.open(2, locality=THERE)
    book.open_stream(3, Node("node-3"), T0, "other")
    for at, errors in ((100, 50), (110, 2)):
        for stream in (1, 2, 3):
            book.tell(stream, at, stats("web", row(successes=8, errors=errors)), stats("api", row(errors=1)))
    assert book.recent_requests("", {"web"}, T0 + 110, 10) == Totals(16, 4)
    assert book.recent_requests("", {"web"}, T0 + 110, 300) == Totals(32, 104)
    assert book.recent_requests("", {"web", "api"}, T0 + 110, 10) == Totals(16, 6)
    assert book.recent_requests("", {"other"}, T0 + 110, 10) == Totals()


@pytest.mark.parametrize("window_s", [1, 3, 10, 20, 60, 300, 3_600])
def test_rates_are_right_for_windows_shorter_and_longer_than_the_interval(book: Books, window_s: float) -> None:
    for at in range(10, 4_000, 10):
        book.tell(1, at, stats("web", row(successes=50, issued=50)))
    figures = found(book, 3_990, window_s).figures
    assert figures.rps == pytest.approx(5.0)
    assert figures.window_s == window_s


def test_rates_do_not_sink_between_reports(book: Books) -> None:
    """A window ends where the reports reach, not now."""
    for at in range(10, 200, 10):
        book.tell(1, at, stats("web", row(issued=50)))
    for later in (190.0, 193.0, 199.4):
        assert found(book, later, 10).figures.rps == pytest.approx(5.0)
        assert found(book, later, 10).until == T0 + 190


def test_a_window_ends_where_all_streams_have_reported(book: Books) -> None:
    book.open(2)
    book.tell(1, 10, stats("web", row(issued=50)))
    book.tell(2, 14, stats("web", row(issued=50)))
    book.tell(2, 24, stats("web", row(issued=50)))
    assert found(book, 24, 5).until == T0 + 10
    book.tell(1, 25, stats("web", row(issued=50)))
    assert found(book, 25, 5).until == T0 + 24


def test_a_late_stream_is_not_waited_for(book: Books) -> None:
    book.open(2)
    book.tell(1, 10, stats("web", row(issued=50)))
    for at in (10, 20, 30, 40):
        book.tell(2, at, stats("web", row(issued=50)))
    assert found(book, 40).until == T0 + 40


def test_the_reported_interval_counts(book: Books) -> None:
    """LRS rule 7: rates are per second of the interval that the report names."""
    book.tell(1, 4, stats("web", row(issued=40), interval_s=4.0))
    assert found(book, 4).figures.rps == pytest.approx(10.0)


def test_a_long_interval_after_a_reconnect_is_counted_once_and_spread(book: Books) -> None:
    """LRS rule 1: the first report after a reconnect has everything that the client counted meanwhile."""
    for at in range(10, 310, 10):
        book.tell(1, at, stats("web", row(issued=10)))
    book.close(1, 300)
    book.open(3, 395, node="node-1")
    book.tell(3, 395, stats("web", row(issued=95), interval_s=95.0))
    assert found(book, 395, 3_600).figures.issued == 300 + 95
    assert found(book, 395, 20).figures.issued == pytest.approx(20)
    assert found(book, 395, 95).figures.rps == pytest.approx(1.0)


def test_an_hour_later_it_is_forgotten(book: Books) -> None:
    book.tell(1, 10, stats("web", row(issued=10)))
    book.close(1, 11)
    assert found(book, 3_000, 3_600).figures.issued == 10
    assert found(book, 4_000, 3_600).figures.issued == 0


def test_lrs_rule_20_a_gauge_is_the_sum_of_the_latest_reports_of_streams(book: Books) -> None:
    """LRS rule 20: the latest value of each open stream is added up; values of different times are not."""
    book.open(2)
    book.tell(1, 10, stats("web", row(in_progress=3)))
    book.tell(2, 10, stats("web", row(in_progress=4)))
    assert found(book, 10).figures.in_progress == 7
    book.tell(1, 20, stats("web", row(in_progress=1)))
    assert found(book, 20).figures.in_progress == 5
    book.close(2, 21)
    assert found(book, 21).figures.in_progress == 1
    book.close(1, 22)
    assert found(book, 22).figures.in_progress == 0


def test_lrs_rule_11_a_locality_that_is_absent_has_nothing_in_progress(book: Books) -> None:
    book.tell(1, 10, stats("web", row(HERE, in_progress=3), row(THERE, in_progress=2)))
    book.tell(1, 20, stats("web", row(THERE, in_progress=2, issued=1)))
    assert found(book, 20).figures.in_progress == 2


def test_a_cluster_that_is_named_no_longer_has_nothing_in_progress(book: Books) -> None:
    book.tell(1, 10, stats("web", row(in_progress=3)))
    for at in (20, 30, 40):
        book.tell(1, at, stats("other"))
    assert found(book, 40).figures.in_progress == 0


def test_lrs_rule_19_streams_of_one_node_are_added(book: Books) -> None:
    """LRS rule 19: "Several streams of one node are added up"."""
    book.open(2, node="node-1")
    book.tell(1, 10, stats("web", row(issued=5)))
    book.tell(2, 10, stats("web", row(issued=6)))
    (told,) = found(book, 10, by="node").rows
    assert told.node == "node-1"
    assert told.figures.issued == 11
    assert told.totals == Totals(issued=11)


def test_the_latest_report_of_a_node_counts_once_where_others_report_too(book: Books) -> None:
    """From another zone, and of another group, the same cluster is another series."""
    book.open(2, node="node-2", locality=THERE)
    book.open_stream(3, Node("node-3", locality=HERE), T0, "edge")
    for stream, issued in ((1, 5), (2, 6), (3, 7)):
        book.tell(stream, 10, stats("web", row(issued=issued)))
    told = {each.node: each for each in found(book, 10, by="node").rows}
    assert {name: each.figures.issued for name, each in told.items()} == {"node-1": 5, "node-2": 6, "node-3": 7}
    assert {each.node: each.totals for each in told.values()} == {
        name: Totals(issued=issued) for name, issued in (("node-1", 5), ("node-2", 6), ("node-3", 7))
    }


def test_a_node_continues_where_its_last_stream_ended(book: Books) -> None:
    book.tell(1, 10, stats("web", row(issued=5)), stats("other"))
    book.close(1, 11)
    assert found(book, 12, by="node").rows == ()
    book.open(2, 15, node="node-1")
    book.tell(2, 20, stats("other"), stats("web", row(issued=6, successes=1), dropped=2))
    (told,) = found(book, 20, by="node").rows
    assert told.totals == Totals(successes=1, issued=11, dropped=2)
    assert told.figures.issued == 6


def test_lrs_rule_6_service_names_are_kept_apart(book: Books) -> None:
    book.tell(1, 10, stats("web", row(issued=1), service_name="a"), stats("web", row(issued=2), service_name="b"))
    assert [(each.service_name, each.figures.issued) for each in book.clusters(T0 + 10, 10)] == [("a", 1), ("b", 2)]
    assert found(book, 10).figures.issued == 3
    assert found(book, 10, service_name="b").figures.issued == 2
    assert book.cluster("web", T0 + 10, 10, service_name="c") is None
    assert book.cluster("nothing", T0 + 10, 10) is None


def test_rows_by_locality_with_their_shares(book: Books) -> None:
    book.open(2, locality=THERE)
    book.tell(1, 10, stats("web", row(HERE, issued=60), row(THERE, issued=20)))
    book.tell(2, 10, stats("web", row(THERE, issued=20, errors=1)))
    rows = found(book, 10).rows
    assert [(told.source, told.target, told.figures.issued, told.share) for told in rows] == [
        (HERE, HERE, 60, 0.6),
        (HERE, THERE, 20, 0.2),
        (THERE, THERE, 20, 0.2),
    ]


def test_priorities_of_one_locality_are_kept_apart(book: Books) -> None:
    """They show what failed over. The cluster, the demand and the chart have all of them."""
    book.tell(1, 10, stats("web", row(issued=10, in_progress=1), row(issued=20, in_progress=1, priority=1)))
    figures = found(book, 10)
    assert [(told.target, told.priority, told.figures.issued, told.figures.in_progress) for told in figures.rows] == [
        (HERE, 0, 10, 1),
        (HERE, 1, 20, 1),
    ]
    assert (figures.figures.issued, figures.figures.in_progress) == (30, 2)
    demand = book.demand("", "web", T0 + 10, 10)
    assert [(flow.source, flow.target, flow.rps, flow.in_progress) for flow in demand.flows] == [(HERE, HERE, 3.0, 2)]
    (line,) = book.series("web", T0 + 10, 10, 10, "locality")
    assert sum(point.issued for point in line.points) == 30


def test_a_metric_of_a_locality_is_not_counted_again_by_endpoint(book: Books) -> None:
    """Envoy reports it both ways. One that only endpoints have counts, too."""

    def queue(requests: int, name: str = "queue") -> list[wire_pb2.EndpointLoadMetricStats]:
        made = wire_pb2.EndpointLoadMetricStats(
            metric_name=name, num_requests_finished_with_metric=requests, total_metric_value=2.0 * requests
        )
        return [made]

    endpoints = [
        endpoint("10.0.0.1", total_issued_requests=3, load_metric_stats=queue(3)),
        endpoint("10.0.0.2", total_issued_requests=1, load_metric_stats=[*queue(1), *queue(1, "own")]),
    ]
    book.tell(1, 10, stats("web", row(issued=4, load_metric_stats=queue(4), upstream_endpoint_stats=endpoints)))
    assert found(book, 10).figures.metrics == {"queue": Metric(4, 8.0), "own": Metric(1, 2.0)}
    rows = found(book, 10, by="endpoint").rows
    assert [each.figures.metrics["queue"] for each in rows] == [Metric(3, 6.0), Metric(1, 2.0)]


def endpoint(host: str, **fields: Any) -> wire_pb2.UpstreamEndpointStats:
    address = wire_pb2.Address(socket_address=wire_pb2.SocketAddress(address=host, port_value=80))
    return wire_pb2.UpstreamEndpointStats(address=address, **fields)


def test_endpoints_have_rows_of_their_own(book: Books) -> None:
    """They are told besides their locality, not added to it."""
    told = [
        endpoint("10.0.0.1", total_issued_requests=3, total_requests_in_progress=2),
        endpoint("10.0.0.2", total_issued_requests=1, total_error_requests=1),
    ]
    book.tell(1, 10, stats("web", row(issued=4, in_progress=2, upstream_endpoint_stats=told)))
    assert (found(book, 10).figures.issued, found(book, 10).figures.in_progress) == (4, 2)
    rows = found(book, 10, by="endpoint").rows
    assert [(each.endpoint, each.figures.issued, each.figures.errors, each.share) for each in rows] == [
        ("10.0.0.1:80", 3, 0, 0.75),
        ("10.0.0.2:80", 1, 1, 0.25),
    ]


def test_lrs_rule_12_drops_by_category_and_without(book: Books) -> None:
    book.tell(1, 10, stats("web", dropped=9, drops={"throttle": 4, "lb": 2}))
    book.tell(1, 20, stats("web", dropped=5))
    figures = found(book, 20)
    assert figures.drops == {"throttle": 4, "lb": 2, UNCATEGORISED: 8}
    assert figures.dropped == 14
    assert {(each.cluster, each.category): each.dropped for each in book.drop_totals()} == {
        ("web", "throttle"): 4,
        ("web", "lb"): 2,
        ("web", UNCATEGORISED): 8,
    }


def test_lrs_rule_13_metrics_have_averages(book: Books) -> None:
    def queue(requests: int, total: float) -> list[wire_pb2.EndpointLoadMetricStats]:
        return [
            wire_pb2.EndpointLoadMetricStats(
                metric_name="named_metrics.queue", num_requests_finished_with_metric=requests, total_metric_value=total
            )
        ]

    cpu = wire_pb2.UnnamedEndpointLoadMetricStats(num_requests_finished_with_metric=4, total_metric_value=2.0)
    book.tell(1, 10, stats("web", row(issued=4, load_metric_stats=queue(4, 10.0), cpu_utilization=cpu)))
    book.tell(1, 20, stats("web", row(issued=4, load_metric_stats=queue(1, 15.0)), row(THERE, issued=1)))
    figures = found(book, 20)
    assert figures.figures.metrics["named_metrics.queue"] == Metric(5, 25.0)
    assert figures.figures.metrics["named_metrics.queue"].average == 5.0
    assert figures.rows[0].figures.metrics[CPU].average == 0.5
    assert figures.rows[1].figures.metrics == {}


def test_lrs_rule_18_an_empty_report_says_that_the_node_lives(book: Books) -> None:
    assert book.tell(1, 10).clusters == 0
    (life,) = book.streams()
    assert (life.reported, life.reports, life.node) == (T0 + 10, 1, "node-1")


def test_a_stream_says_when_it_reported_and_over_how_long(book: Books) -> None:
    book.tell(1, 10, stats("web", interval_s=9.5), stats("other", interval_s=10.75), stats("bad", interval_s=0))
    (life,) = book.streams()
    assert (life.opened, life.reported, life.interval_s, life.refused) == (T0, T0 + 10, 11, 1)


def test_reports_of_streams_that_are_not_open_are_ignored(book: Books) -> None:
    book.close(1, 5)
    assert book.tell(1, 10, stats("web", row(issued=1))).ignored == 1
    assert book.clusters(T0 + 10, 10) == []


def test_a_bad_cluster_is_refused_as_a_whole_and_affects_no_other(book: Books) -> None:
    negative = (1 << 64) - 3
    taken = book.tell(
        1,
        10,
        stats("bad", row(HERE, issued=5, in_progress=5), row(THERE, successes=negative)),
        stats("web", row(issued=1)),
    )
    assert (taken.clusters, taken.refused) == (1, 1)
    assert [each.cluster for each in book.clusters(T0 + 10, 10)] == ["web"]
    assert book.size().refused == 1


def test_nothing_is_invented_at_the_start() -> None:
    """Before the first report nothing is known: a rate is over what was measured, not over the whole window."""
    book = Books()
    assert book.clusters(T0, 60) == []
    book.open(1)
    book.tell(1, 10, stats("web", row(issued=100)))
    figures = found(book, 10, 600).figures
    assert (figures.window_s, figures.rps) == (10, 10.0)


def test_a_window_begins_where_the_longest_of_the_first_reports_does(book: Books) -> None:
    """Who connected first may report later than others: what it measured before them is in the window."""
    book.open(2, 40)
    book.tell(2, 47, stats("web", row(issued=1), interval_s=1))
    book.tell(1, 47, stats("web", row(issued=47), interval_s=47))
    assert found(book, 47).figures.issued == 48


def test_series_sum_up_to_the_window(book: Books) -> None:
    for at in range(10, 700, 10):
        book.tell(1, at, stats("web", row(issued=at, successes=1), row(THERE, issued=3)))
    (line,) = book.series("web", T0 + 690, 120, 5)
    assert (len(line.points), line.step_s, line.points[0].at) == (24, 5.0, T0 + 690 - 120)
    assert sum(point.issued for point in line.points) == pytest.approx(found(book, 690, 120).figures.issued)
    lines = book.series("web", T0 + 690, 600, 1, "locality")
    assert [(each.source, each.target, each.step_s) for each in lines] == [(HERE, HERE, 60.0), (HERE, THERE, 60.0)]
    assert sum(point.successes for point in lines[0].points) == pytest.approx(60)
    assert book.series("nothing", T0 + 690, 60, 1) == []


def test_demand_is_by_source_locality(book: Books) -> None:
    book.open(2, locality=THERE)
    book.tell(1, 10, stats("web", row(HERE, issued=60, in_progress=2), row(THERE, issued=20), dropped=10))
    book.tell(2, 10, stats("web", row(THERE, issued=20, errors=5)))
    demand = book.demand("", "web", T0 + 10, 10)
    assert [
        (each.source, each.rps, each.errors_ps, each.dropped_ps, each.in_progress, each.nodes)
        for each in demand.sources
    ] == [
        (HERE, 8.0, 0.0, 1.0, 2, 1),
        (THERE, 2.0, 0.5, 0.0, 0, 1),
    ]
    assert {(each.source, each.target): each.rps for each in demand.flows} == {
        (HERE, HERE): 6.0,
        (HERE, THERE): 2.0,
        (THERE, THERE): 2.0,
    }
    book.close(2, 11)
    gone = book.demand("", "web", T0 + 12, 10).sources[1]
    assert (gone.nodes, gone.reported) == (0, 0.0)
    assert book.demand("", "nothing", T0 + 12, 10).sources == ()


def test_demand_is_of_a_group_and_totals_are_of_all_groups(book: Books) -> None:
    book.open_stream(2, Node("node-2", locality=HERE), T0, "edge")
    book.tell(1, 10, stats("web", row(HERE, issued=60)))
    book.tell(2, 10, stats("web", row(HERE, issued=20)))
    assert [each.rps for each in book.demand("edge", "web", T0 + 10, 10).sources] == [2.0]
    assert [each.rps for each in book.demand("", "web", T0 + 10, 10).sources] == [6.0]
    assert found(book, 10, 10).figures.rps == 8.0
    assert [each.figures.rps for each in found(book, 10, 10).rows] == [8.0]


def test_a_node_that_moves_to_another_group_counts_there(book: Books) -> None:
    book.tell(1, 10, stats("web", row(HERE, issued=60, in_progress=3)))
    book.move_stream(1, "edge", T0 + 15)
    assert found(book, 15).figures.in_progress == 0
    book.tell(1, 20, stats("web", row(HERE, issued=20, in_progress=2)))
    assert found(book, 20).figures.in_progress == 2
    (before,), (now,) = (book.demand(group, "web", T0 + 20, 10).sources for group in ("", "edge"))
    assert (before.rps, before.nodes) == (0.0, 0)
    assert (now.rps, now.nodes) == (2.0, 1)
    (row_of_node,) = found(book, 20, by="node").rows
    assert row_of_node.totals == Totals(issued=80)


def test_totals_for_metrics_only_grow(book: Books) -> None:
    for at in range(10, 8_000, 400):
        book.tell(1, at, stats("web", row(successes=3, errors=1, issued=4, in_progress=2)))
    (totals,) = book.target_totals()
    assert (totals.cluster, totals.target) == ("web", HERE)
    assert (totals.successes, totals.errors, totals.issued, totals.in_progress) == (60, 20, 80, 2)


def test_a_long_report_may_be_counted_with_pauses_and_in_parts(book: Books) -> None:
    clusters = [stats(f"c{at:04}", row(issued=1, in_progress=1)) for at in range(1_000)]
    for turn in (10, 20):
        adding = book.add_in_steps(1, LoadStatsRequest(encode(*clusters[:600])), T0 + turn)
        assert sum(1 for _ in adding) >= 2
        book.add(1, LoadStatsRequest(encode(*clusters[600:]), continues=True), T0 + turn)
    assert next(book.streams()).reports == 2
    assert all(each.figures.issued == 2 for each in book.clusters(T0 + 20, 60))
    assert sum(each.figures.in_progress for each in book.clusters(T0 + 20, 60)) == 1_000
    for name in ("c0000", "c0599", "c0600", "c0999"):
        figures = book.cluster(name, T0 + 20, 60, "node")
        assert figures is not None
        assert figures.rows[0].totals == Totals(issued=2)
        assert figures.rows[0].figures.issued == 1


def test_a_stream_may_end_in_the_midst_of_its_report(book: Books) -> None:
    adding = book.add_in_steps(
        1, LoadStatsRequest(encode(*(stats(f"c{at}", row(in_progress=1)) for at in range(600)))), T0 + 10
    )
    next(adding)
    book.close(1, 10)
    assert list(adding) == []
    assert sum(each.figures.in_progress for each in book.clusters(T0 + 10, 60)) == 0


def test_the_node_of_a_report_is_not_kept() -> None:
    """Nor does it take the room of reports."""
    book = Books(latest_bytes=100)
    book.open(1)
    node = wire_pb2.Node(id="n", cluster="x" * 100_000).SerializeToString()
    book.add(1, LoadStatsRequest(encode(stats("web", row(issued=1)), node=node)), T0 + 10)
    assert [each.figures.issued for each in found(book, 10, by="node").rows] == [1]
    assert dict(book.size().left_out) == {}


def test_nodes_are_counted_whatever_order_their_clusters_have(book: Books) -> None:
    """Envoy's order is that of a hash map: it differs between processes, and from one report to the next."""
    book.open(2)
    clusters = [stats("web", row(issued=1)), *(stats(f"c{at}", row(issued=1)) for at in range(20))]
    shuffler = Random(1)
    for at in range(10, 70, 10):
        for stream in (1, 2):
            shuffler.shuffle(clusters)
            book.tell(stream, at, *clusters)
        assert {each.nodes for each in book.clusters(T0 + at, 10)} == {2}
    assert [each.nodes for each in book.demand("", "web", T0 + 60, 10).sources] == [2]


def test_a_node_with_several_streams_counts_once(book: Books) -> None:
    book.open(2, node="node-1")
    for stream in (1, 2):
        book.tell(stream, 10, stats("web", row(issued=1)))
    assert found(book, 10).nodes == 1
    book.close(1, 11)
    assert found(book, 11).nodes == 1
    book.close(2, 12)
    assert found(book, 12).nodes == 0


def test_a_node_that_names_a_cluster_no_longer_is_not_counted_for_it(book: Books) -> None:
    book.tell(1, 10, stats("web"), stats("other"))
    for at in (20, 30, 40):
        book.tell(1, at, stats("other"))
    assert [(each.cluster, each.nodes) for each in book.clusters(T0 + 40, 10)] == [("other", 1), ("web", 0)]


def test_clocks_may_be_set_back(book: Books) -> None:
    book.tell(1, 100, stats("web", row(issued=1)))
    book.tell(1, 90, stats("web", row(issued=1)))
    assert found(book, 90).figures.issued == 2


@pytest.mark.parametrize("back_s", [6, 60, 3_600])
def test_a_clock_that_is_set_back_counts_nothing_twice(book: Books, back_s: int) -> None:
    """All reports ended at one and the same second until the clock was where it had been: the rate rose and rose."""
    for at in range(10, 210, 10):
        book.tell(1, at, stats("web", row(issued=100, in_progress=1)))
    book.open(2, 195 - back_s)
    for at in range(210 - back_s, 410 - back_s, 10):
        book.tell(2, at)
        book.tell(1, at, stats("web", row(issued=100, in_progress=1)))
        figures = found(book, at + 1, 10)
        assert figures.figures.rps == pytest.approx(10.0)
        assert (figures.until, figures.reported) == (T0 + at, T0 + at), "by the clock of now"
        (told,) = found(book, at, 10, by="node").rows
        assert told.reported == T0 + at
        assert book.demand("", "web", T0 + at, 10).sources[0].reported == T0 + at
    last = 400 - back_s
    assert found(book, last).figures.rps == pytest.approx(10.0), "over the minute before, too"
    first, second = book.streams()
    assert (first.reported, second.opened) == (T0 + last, T0 + 195 - back_s)
    # How long it was from the last report to the step of the clock, nobody knows.
    assert first.opened - T0 == pytest.approx(-back_s, abs=5)
    (line,) = book.series("web", T0 + last, 60, 10)
    assert [point.at for point in line.points] == [T0 + last - 60 + 10 * step for step in range(6)]
    book.close(2, last)
    assert book.departed_nodes() == {"node-2": T0 + last}


def test_localities_may_be_written_in_several_ways(book: Books) -> None:
    """Fields in another order are the same locality."""
    turned = wire_pb2.LocalityTally(locality=b"\x12\x01a\x0a\x01r", total_issued_requests=2).SerializeToString()
    cluster = wire_pb2.ClusterTally(
        cluster_name=b"web", upstream_locality_stats=[turned], load_report_interval=b"\x08\x0a"
    )
    data = wire_pb2.LoadTally(cluster_stats=[cluster.SerializeToString()]).SerializeToString()
    book.add(1, LoadStatsRequest(data), T0 + 10)
    book.tell(1, 20, stats("web", row(Locality("r", "a"), issued=1)))
    (told,) = found(book, 20).rows
    assert told.figures.issued == 3


# Silence


def test_an_open_stream_that_says_nothing_means_zero(book: Books) -> None:
    """As an idle gRPC client: it names a cluster no longer, then sends nothing at all."""
    book.tell(1, 10, stats("web", row(issued=1)))
    for at in (20, 30):
        book.tell(1, at)
    (own,) = book.demand("", "web", T0 + 700, 10).sources
    assert own.rps == 0
    (stream,) = book.streams()
    assert (stream.node, stream.reported) == ("node-1", T0 + 30)
