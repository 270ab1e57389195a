"""Load reports as Prometheus series: names, labels, and the bound on their number."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import Metric

from tests.server.conftest import Harness, until
from tests.server.load_client import connect, told
from tests.server.test_load_reports import counted
from xds.proto import wire_pb2
from xds.server.metrics.collectors import LoadMetrics

SPECIFIED: Mapping[str, tuple[str, set[str]]] = {
    "xds_server_lrs_streams": ("gauge", set()),
    "xds_server_lrs_reports": ("counter", set()),
    "xds_server_lrs_report_bytes": ("counter", set()),
    "xds_server_lrs_responses": ("counter", set()),
    "xds_server_lrs_restarts": ("counter", set()),
    "xds_server_lrs_interval_seconds": ("gauge", set()),
    "xds_server_lrs_reading_seconds": ("counter", set()),
    "xds_server_lrs_refused": ("counter", set()),
    "xds_server_lrs_left_out": ("counter", {"bound"}),
    "xds_server_lrs_windows": ("gauge", set()),
    "xds_lrs_requests": ("counter", {"cluster", "locality", "outcome"}),
    "xds_lrs_requests_issued": ("counter", {"cluster", "locality"}),
    "xds_lrs_requests_in_progress": ("gauge", {"cluster", "locality"}),
    "xds_lrs_dropped": ("counter", {"cluster", "category"}),
}


def collected(metrics: LoadMetrics) -> dict[str, Metric]:
    return {family.name: family for family in metrics.collect()}


def values(family: Metric) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in family.samples}


async def test_each_series_has_its_name_type_and_labels(server: Harness) -> None:
    stream = await connect(server)
    await stream.begin()
    web = told("web", total_successful_requests=3, total_error_requests=2, total_issued_requests=6)
    web.upstream_locality_stats[0].total_requests_in_progress = 1
    web.total_dropped_requests = 4
    web.dropped_requests.add(category="lb", dropped_count=3)
    await stream.tell(web, told("zero", interval_s=0.0))
    await counted(server, 3, "web")
    await until(lambda: server.server.load.counts.refused)
    found = collected(LoadMetrics(server.server.load))
    assert {name: family.type for name, family in found.items()} == {n: kind for n, (kind, _) in SPECIFIED.items()}
    for name, (_, labels) in SPECIFIED.items():
        assert {frozenset(sample.labels) for sample in found[name].samples} <= {frozenset(labels)}, name
    assert values(found["xds_lrs_requests"]) == {("web", "r/z1", "success"): 3, ("web", "r/z1", "error"): 2}
    assert values(found["xds_lrs_requests_issued"]) == {("web", "r/z1"): 6}
    assert values(found["xds_lrs_requests_in_progress"]) == {("web", "r/z1"): 1}
    assert values(found["xds_lrs_dropped"]) == {("web", "lb"): 3, ("web", "uncategorised"): 1}
    own = ("streams", "reports", "responses", "refused")
    assert [values(found[f"xds_server_lrs_{name}"])[()] for name in own] == [1, 1, 1, 1]
    assert b'xds_lrs_requests_total{cluster="web"' in server.metrics.render()


async def test_series_of_names_from_clients_are_bounded(server: Harness) -> None:
    stream = await connect(server)
    await stream.begin()
    metrics = LoadMetrics(server.server.load, pairs=3)
    await stream.tell(*(told(f"c{number}", total_issued_requests=1) for number in range(2)))
    await until(lambda: server.server.load.counts.clusters == 2)
    assert values(collected(metrics)["xds_lrs_requests_issued"]) == {("c0", "r/z1"): 1, ("c1", "r/z1"): 1}
    zones = [wire_pb2.Locality(region="r", zone=f"z{number}") for number in range(10)]
    await stream.tell(*(told("c0", zone=zone, total_issued_requests=1) for zone in zones))
    await until(lambda: server.server.load.counts.clusters == 12)
    found = values(collected(metrics)["xds_lrs_requests_issued"])
    assert len(found) == 4
    assert found["c1", "r/z1"] == 1
    assert sum(found.values()) == 12
    assert found["other", "other"] == 12 - sum(value for labels, value in found.items() if labels[0] != "other")
