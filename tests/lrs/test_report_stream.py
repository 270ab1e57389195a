"""The LRS rules of docs/protocol.md#load-reports, as far as a stream decides them: `xds.lrs.report_stream`."""

from __future__ import annotations

import math
from typing import Any

import pytest

from xds.lrs.cluster_counters import COUNTER_LIMIT, LOCALITIES_LIMIT, NAME_LIMIT
from xds.lrs.load_stats import CATEGORIES_LIMIT, ENDPOINTS_LIMIT, LoadStatsRequest
from xds.lrs.report_stream import (
    DEFAULT_SETTINGS,
    MINIMUM_INTERVAL_S,
    NO_CLUSTER,
    SEND_ALL_CLUSTERS,
    EndLoadStream,
    LoadNodeIdentified,
    LoadReported,
    LoadReportStream,
    LoadSettings,
    SendLoadResponse,
)
from xds.model.errors import RemoteProtocolError
from xds.model.load_report import CPU, ClusterLoad, Metric, Traffic
from xds.model.node import Locality, Node
from xds.proto import wire_pb2


class Client:
    """A client of an LRS stream, in real bytes."""

    def __init__(self, *features: str, user_agent: str = "envoy", settings: LoadSettings = DEFAULT_SETTINGS) -> None:
        self.clusters = ["b", "a"]
        self.stream = LoadReportStream(self._clusters, settings)
        self.node = wire_pb2.Node(id="proxy", user_agent_name=user_agent, client_features=features)

    def _clusters(self, node: Node) -> list[str]:
        assert node.id == "proxy"
        return self.clusters

    def first(self, *stats: wire_pb2.ClusterStats) -> list[object]:
        return self.send(*stats, node=self.node.SerializeToString())

    def send(self, *stats: wire_pb2.ClusterStats, node: bytes = b"") -> list[object]:
        message = wire_pb2.LoadStatsRequest(node=node, cluster_stats=stats)
        return list(self.stream.receive(LoadStatsRequest(message.SerializeToString())))


def stats(cluster: str = "a", interval_s: int = 10, **fields: Any) -> wire_pb2.ClusterStats:
    made = wire_pb2.ClusterStats(cluster_name=cluster, **fields)
    made.load_report_interval.seconds = interval_s
    return made


def zone(name: str, **fields: Any) -> wire_pb2.UpstreamLocalityStats:
    return wire_pb2.UpstreamLocalityStats(locality=wire_pb2.Locality(zone=name), **fields)


def asked(events: list[object]) -> wire_pb2.LoadStatsResponse:
    (found,) = (event for event in events if isinstance(event, SendLoadResponse))
    return wire_pb2.LoadStatsResponse.FromString(found.body)


def loads(events: list[object]) -> tuple[ClusterLoad, ...]:
    (found,) = (event for event in events if isinstance(event, LoadReported))
    return found.loads


def test_lrs_rule_1_the_first_message_may_report() -> None:
    """LRS rule 1: a client that reconnects reports what it counted meanwhile in its first message."""
    events = Client(SEND_ALL_CLUSTERS).first(stats(upstream_locality_stats=[zone("z", total_successful_requests=7)]))
    assert loads(events)[0].localities[0].traffic == Traffic(successes=7)
    assert not any(isinstance(event, LoadReported) for event in Client(SEND_ALL_CLUSTERS).first())


def test_lrs_rule_2_the_node_is_bound_by_the_first_message() -> None:
    """LRS rule 2: grpc-go sends its node in the first message only; the node of a later message may be empty."""
    client = Client(SEND_ALL_CLUSTERS)
    assert isinstance(client.first()[0], LoadNodeIdentified)
    for node in (b"", wire_pb2.Node().SerializeToString(), wire_pb2.Node(id="other").SerializeToString()):
        assert [type(event) for event in client.send(stats(), node=node)] == [LoadReported]
        assert client.stream.node is not None
        assert client.stream.node.id == "proxy"


def test_lrs_rule_2_a_stream_without_a_node_is_refused() -> None:
    client = Client()
    with pytest.raises(RemoteProtocolError, match="names no node"):
        client.send(stats())


def test_lrs_rule_3_the_first_message_is_answered_once() -> None:
    """LRS rule 3: a client reports nothing before it has read a LoadStatsResponse."""
    client = Client(SEND_ALL_CLUSTERS)
    assert asked(client.first())
    assert not any(isinstance(event, SendLoadResponse) for event in client.send(stats()))


def test_lrs_rule_3_changed_settings_reach_a_client_of_one_response() -> None:
    """LRS rule 3: grpc-go reads one response per stream, so it must reconnect to get other settings."""
    client = Client(SEND_ALL_CLUSTERS, user_agent="gRPC Go")
    client.first()
    assert client.stream.offer(LoadSettings(5.0)) == [EndLoadStream()]
    envoy = Client(SEND_ALL_CLUSTERS)
    envoy.first()
    assert asked(list(envoy.stream.offer(LoadSettings(5.0)))).load_reporting_interval.seconds == 5


def test_lrs_rule_4_all_clusters_only_for_clients_that_can() -> None:
    """LRS rule 4: a client without the feature is asked for clusters by name."""
    able, old = asked(Client(SEND_ALL_CLUSTERS).first()), asked(Client().first())
    assert (able.send_all_clusters, list(able.clusters)) == (True, [])
    assert (old.send_all_clusters, list(old.clusters)) == (False, ["a", "b"])


def test_lrs_rule_5_silence_is_asked_for_by_a_cluster_that_does_not_exist() -> None:
    """LRS rule 5: grpc-go takes an empty list for all clusters."""
    client = Client()
    client.clusters = []
    assert list(asked(client.first()).clusters) == [NO_CLUSTER]


def test_lrs_rule_6_the_service_name_is_kept_apart() -> None:
    """LRS rule 6: two clusters may have the same EDS service name."""
    client = Client(SEND_ALL_CLUSTERS)
    client.first()
    (load,) = loads(client.send(stats("canary", cluster_service_name="web")))
    assert (load.cluster, load.service_name) == ("canary", "web")


@pytest.mark.parametrize("interval_s", [0.0, -5.0, 0.2])
def test_lrs_rule_7_the_interval_is_a_second_at_least(interval_s: float) -> None:
    """LRS rule 7: clients need a valid interval above 0."""
    client = Client(SEND_ALL_CLUSTERS, settings=LoadSettings(interval_s))
    assert asked(client.first()).load_reporting_interval.seconds == MINIMUM_INTERVAL_S


def test_lrs_rule_7_the_reported_interval_counts() -> None:
    """LRS rule 7: the measured time is in `ClusterStats.load_report_interval`."""
    client = Client(SEND_ALL_CLUSTERS)
    client.first()
    report = stats()
    report.load_report_interval.seconds, report.load_report_interval.nanos = 1, 2_700_000
    (load,) = loads(client.send(report))
    assert math.isclose(load.interval_s, 1.0027)


def test_lrs_rule_8_a_request_is_sent_again_only_after_a_change() -> None:
    """LRS rule 8: a change of the clusters, the interval or the endpoint statistics is sent; nothing else is."""
    client = Client()
    client.first()
    assert client.stream.offer(LoadSettings()) == []
    client.clusters = ["a", "b", "c"]
    assert list(asked(list(client.stream.offer(LoadSettings()))).clusters) == ["a", "b", "c"]
    assert asked(list(client.stream.offer(LoadSettings(by_endpoint=True)))).report_endpoint_granularity
    assert client.stream.offer(LoadSettings(by_endpoint=True)) == []


def test_no_request_is_sent_before_the_first_message() -> None:
    assert Client().stream.offer(LoadSettings(3.0)) == []


def test_lrs_rule_10_endpoints_where_the_client_reports_them() -> None:
    """LRS rule 10: "Endpoint statistics are optional"."""
    address = wire_pb2.Address(socket_address=wire_pb2.SocketAddress(address="::1", port_value=80))
    endpoint = wire_pb2.UpstreamEndpointStats(address=address, total_error_requests=2)
    client = Client(SEND_ALL_CLUSTERS)
    client.first()
    (load,) = loads(client.send(stats(upstream_locality_stats=[zone("z", upstream_endpoint_stats=[endpoint])])))
    (found,) = load.localities[0].endpoints
    assert (found.address, found.traffic.errors) == ("[::1]:80", 2)


def test_lrs_rule_11_localities_with_their_counts() -> None:
    """LRS rule 11: successes, errors and issued requests are counters, requests in progress are a gauge; each per
    locality and priority."""
    told = zone("z", total_successful_requests=1, total_error_requests=2, total_issued_requests=4, priority=1)
    told.total_requests_in_progress = 3
    client = Client(SEND_ALL_CLUSTERS)
    client.first()
    (load,) = loads(client.send(stats(upstream_locality_stats=[told])))
    (locality,) = load.localities
    assert locality.locality == Locality(zone="z")
    assert (locality.priority, locality.traffic) == (1, Traffic(1, 2, 4, 3))


def test_lrs_rule_12_drops_by_category_and_without() -> None:
    """LRS rule 12: drops without a category are the total less the sum of the categories."""
    drop = wire_pb2.ClusterStats.DroppedRequests
    client = Client(SEND_ALL_CLUSTERS)
    client.first()
    both = [
        drop(category="a", dropped_count=2),
        drop(category="b", dropped_count=3),
        drop(category="a", dropped_count=1),
    ]
    (load,) = loads(client.send(stats(total_dropped_requests=9, dropped_requests=both)))
    assert (load.dropped, dict(load.drops), load.uncategorised) == (9, {"a": 3, "b": 3}, 3)
    (load,) = loads(client.send(stats(total_dropped_requests=1, dropped_requests=both)))
    assert (load.dropped, load.uncategorised) == (6, 0)


def test_lrs_rule_13_metrics_and_utilisations() -> None:
    """LRS rule 13: the average is the sum divided by the count. The three utilisations have fields of their own."""
    named = wire_pb2.EndpointLoadMetricStats(
        metric_name="named_metrics.queue", num_requests_finished_with_metric=4, total_metric_value=10
    )
    cpu = wire_pb2.UnnamedEndpointLoadMetricStats(num_requests_finished_with_metric=2, total_metric_value=1.5)
    client = Client(SEND_ALL_CLUSTERS)
    client.first()
    told = zone("z", load_metric_stats=[named], cpu_utilization=cpu)
    (load,) = loads(client.send(stats(upstream_locality_stats=[told])))
    metrics = load.localities[0].metrics
    assert metrics == {"named_metrics.queue": Metric(4, 10.0), CPU: Metric(2, 1.5)}
    assert metrics[CPU].average == 0.75


def test_lrs_rule_18_an_empty_report_says_that_the_client_lives() -> None:
    """LRS rule 18: "A report without clusters shows that the client is alive"."""
    client = Client(SEND_ALL_CLUSTERS)
    client.first()
    (event,) = client.send()
    assert isinstance(event, LoadReported)
    assert (event.loads, event.refused) == ((), 0)


NEGATIVE = (1 << 64) - 3


@pytest.mark.parametrize(
    "report",
    [
        stats(interval_s=0),
        stats(interval_s=-4),
        stats(interval_s=10**9),
        stats(""),
        stats("x" * (NAME_LIMIT + 1)),
        stats(cluster_service_name="x" * (NAME_LIMIT + 1)),
        stats(upstream_locality_stats=[zone("z" * (NAME_LIMIT + 1))]),
        stats(upstream_locality_stats=[zone(f"z{number}") for number in range(LOCALITIES_LIMIT + 1)]),
        stats(dropped_requests=[wire_pb2.ClusterStats.DroppedRequests(category="a")] * (CATEGORIES_LIMIT + 1)),
        stats(dropped_requests=[wire_pb2.ClusterStats.DroppedRequests(category="a" * (NAME_LIMIT + 1))]),
        stats(total_dropped_requests=NEGATIVE),
        stats(dropped_requests=[wire_pb2.ClusterStats.DroppedRequests(category="a", dropped_count=NEGATIVE)]),
        stats(upstream_locality_stats=[zone("z", total_successful_requests=NEGATIVE)]),
        stats(upstream_locality_stats=[zone("z", total_requests_in_progress=COUNTER_LIMIT + 1)]),
        stats(upstream_locality_stats=[zone("z", priority=1_000)]),
        stats(
            upstream_locality_stats=[
                zone("z", upstream_endpoint_stats=[wire_pb2.UpstreamEndpointStats(total_error_requests=NEGATIVE)])
            ]
        ),
        stats(
            upstream_locality_stats=[
                zone("z", load_metric_stats=[wire_pb2.EndpointLoadMetricStats(total_metric_value=math.nan)])
            ]
        ),
        stats(
            upstream_locality_stats=[
                zone(
                    "z",
                    cpu_utilization=wire_pb2.UnnamedEndpointLoadMetricStats(
                        num_requests_finished_with_metric=1, total_metric_value=math.inf
                    ),
                )
            ]
        ),
    ],
)
def test_impossible_counters_are_counted_and_affect_no_other_cluster(report: wire_pb2.ClusterStats) -> None:
    """Negative and overflowing counters and zero intervals are refused, counted and shown, and do no harm."""
    client = Client(SEND_ALL_CLUSTERS)
    client.first()
    (event,) = client.send(report, stats("well"))
    assert isinstance(event, LoadReported)
    assert event.refused == 1
    assert [load.cluster for load in event.loads] == ["well"]


def test_endpoints_beyond_the_limit_are_counted_together() -> None:
    endpoint = wire_pb2.UpstreamEndpointStats(total_successful_requests=1)
    rows = [
        zone(name, total_successful_requests=9, upstream_endpoint_stats=[endpoint] * (ENDPOINTS_LIMIT - 1))
        for name in ("y", "z")
    ]
    client = Client(SEND_ALL_CLUSTERS)
    client.first()
    (load,) = loads(client.send(stats(upstream_locality_stats=rows)))
    assert [len(each.endpoints) for each in load.localities] == [ENDPOINTS_LIMIT - 1, 1]
    assert [each.traffic.successes for each in load.localities] == [9, 9]


def test_bytes_that_are_no_report_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="not a LoadStatsRequest"):
        LoadStatsRequest(b"\xff\xff")
