"""Names, labels and bounds of the metrics."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import Harness, until
from xds.fleet.fleet import Fleet
from xds.model.resource_type import CLUSTER
from xds.server.counters import GROUP_LABELS, OTHER, Distribution, Metrics
from xds.server.metrics.collectors import FleetMetrics
from xds.snapshots.cache import SnapshotCache

CORE = {
    "streams",
    "streams_closed",
    "nodes",
    "requests",
    "nacks",
    "nodes_nacked",
    "nodes_lingering",
    "nodes_held",
    "responses",
    "resources_sent",
    "response_size_bytes",
    "limit_hits",
    "ack_seconds",
    "snapshot_revision",
    "snapshot_resources",
    "missing_resources",
    "convergence_seconds",
    "push_fan_out_seconds",
    "event_loop_lag_seconds",
    "build_info",
}


def samples(metrics: Metrics) -> dict[tuple[str, tuple[str, ...]], float]:
    """Sample name and label values, in the order of the labels' names, to value."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (
            sample.name.removeprefix("xds_server_"),
            tuple(value for _, value in sorted(sample.labels.items())),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_core_metrics_are_there() -> None:
    metrics = Metrics()
    metrics.registry.register(FleetMetrics(metrics, SnapshotCache(), Fleet(), 0))
    families = {family.name for family in text_string_to_metric_families(metrics.render().decode())}
    assert {f"xds_server_{name}" for name in CORE} <= families
    assert "process_resident_memory_bytes" in families


async def test_a_conversation_is_counted(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    await stream.ack(await stream.receive())
    await until(lambda: server.metrics.type(CLUSTER).kinds["ack"])
    found = samples(server.metrics)
    assert found["streams", ("sotw", "ADS")] == 1
    assert found["nodes", ("default",)] == 1
    assert found["requests_total", ("initial", "clusters")] == 1
    assert found["requests_total", ("ack", "clusters")] == 1
    assert found["responses_total", ("clusters",)] == 1
    assert found["resources_sent_total", ("clusters",)] == 2
    assert found["ack_seconds_count", ("clusters",)] == 1
    assert found["response_size_bytes_count", ()] == 1
    assert found["snapshot_revision", ("default",)] == 1
    assert found["snapshot_resources", ("default", "clusters")] == 2


async def test_convergence_is_measured_per_push(server: Harness) -> None:
    stream = await server.stream()
    await stream.request()
    await stream.ack(await stream.receive())
    await until(lambda: server.metrics.type(CLUSTER).kinds["ack"])
    server.push({"c1": "b", "c2": "b"})
    await stream.ack(await stream.receive())
    distribution = await until(lambda: server.metrics.convergence.get("default"))
    assert sum(distribution.counts) == 1


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    for number in range(1000):
        metrics.type(f"type.googleapis.com/made.up.Type{number}").responses += 1
        metrics.nacked(CLUSTER, f"group-{number}")
    found = samples(metrics)
    assert found["responses_total", (OTHER,)] == 1000
    assert len(metrics.nacks) == GROUP_LABELS + 1
    assert found["nacks_total", (OTHER, "clusters")] == 1000 - GROUP_LABELS


def test_distribution() -> None:
    distribution = Distribution((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        distribution.observe(value)
    assert distribution.buckets() == [("1.0", 2), ("2.0", 3), ("+Inf", 4)]
    assert distribution.total == 12.0
