"""All metrics by name, type and labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.conftest import Harness, Start, until
from xds.fleet.event_log import EventLog
from xds.model.errors import ConflictError
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.push.journal import PushJournal
from xds.store.base import NO_META, FullSet, Meta, Rollback

PREFIX = "xds_server_"

# As specified: name without the prefix and ``_total`` -> type, labels.
SPECIFIED: Mapping[str, tuple[str, frozenset[str]]] = {
    name: (kind, frozenset(labels.split()))
    for name, kind, labels in (
        ("streams", "gauge", "protocol service"),
        ("nodes", "gauge", "group"),
        ("node_agents", "gauge", "agent"),
        ("stream_duration_seconds", "histogram", ""),
        ("streams_closed", "counter", "code"),
        ("requests", "counter", "type kind"),
        ("nacks", "counter", "type group"),
        ("nodes_nacked", "gauge", "type group"),
        ("responses", "counter", "type"),
        ("resources_sent", "counter", "type"),
        ("response_size_bytes", "histogram", ""),
        ("convergence_seconds", "histogram", "group"),
        ("ack_seconds", "histogram", "type"),
        ("push_queue_seconds", "histogram", ""),
        ("coalesced_updates", "counter", ""),
        ("push_triggers", "counter", "reason"),
        ("response_build_seconds", "histogram", ""),
        ("send_timeouts", "counter", "type"),
        ("nodes_stale", "gauge", "group type"),
        ("snapshot_revision", "gauge", "group"),
        ("snapshot_resources", "gauge", "group type"),
        ("snapshot_commits", "counter", "result"),
        ("rollbacks", "counter", "reason"),
        ("missing_resources", "gauge", "type"),
        ("event_loop_lag_seconds", "gauge", ""),
        ("files_exhausted", "counter", ""),
        ("streams_awaiting_admission", "gauge", ""),
        ("admission_seconds", "histogram", ""),
        ("in_flight_bytes", "gauge", ""),
        ("in_flight_waits", "counter", ""),
        ("slow_streams", "gauge", ""),
        ("slow_streams_cut", "counter", ""),
        ("build_info", "gauge", "version python edp"),
    )
}
BESIDES = {"process_resident_memory_bytes", "process_cpu_seconds", "python_gc_collections"}


def families(server: Harness) -> dict[str, Any]:
    return {family.name: family for family in text_string_to_metric_families(server.metrics.text().decode())}


async def lived_through(server: Harness) -> None:
    """Let everything happen that a metric counts."""
    journal = PushJournal(EventLog())
    server.metrics.attach_pushes(journal.commits, journal.triggers, journal.rollbacks)
    journal.committed("default", 1, FullSet((), {}), Meta("ann"), {}, 2, new=True)
    journal.committed("default", 2, Rollback(1), NO_META, {}, 2, new=False)
    with pytest.raises(ConflictError):
        journal.refused("default", ConflictError("moved on", 2), NO_META)
    taking, refusing, leaving = await server.stream(), await server.stream(), await server.stream()
    await taking.request()
    await taking.ack(await taking.receive())
    await until(lambda: server.metrics.type(CLUSTER).kinds["ack"])
    await leaving.request(node_id="n3")
    await leaving.receive()
    leaving.call.cancel()
    await until(server.metrics.closed.total)
    await refusing.request(ENDPOINT, ["none"], node_id="n2")
    server.push({"c1": "b", "c2": "b"})
    await taking.ack(await taking.receive())
    await until(lambda: server.metrics.convergence)
    await refusing.request(CLUSTER, node_id="n2")
    response = await refusing.receive()
    while response.type_url != CLUSTER:
        response = await refusing.receive()
    await refusing.ack(response, error="no good")
    await until(lambda: server.metrics.nacks)


async def test_each_metric_has_its_name_type_and_labels(server: Harness) -> None:
    await lived_through(server)
    found = families(server)
    assert set(found) >= BESIDES
    for name, (kind, labels) in SPECIFIED.items():
        family = found[PREFIX + name]
        assert family.type == kind, name
        told = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        # Nothing is stale within a test, and nothing superseded unanswered.
        assert told == {labels} or (not told and name in {"nodes_stale", "send_timeouts"}), (name, told)


async def test_pushes_are_counted_by_their_result(server: Harness) -> None:
    await lived_through(server)
    samples = {
        (sample.name.removeprefix(PREFIX), *sample.labels.values()): sample.value
        for family in families(server).values()
        for sample in family.samples
    }
    assert samples["snapshot_commits_total", "committed"] == 2
    assert samples["snapshot_commits_total", "conflict"] == 1
    assert samples["rollbacks_total", "manual"] == 1
    assert samples["push_triggers_total", "snapshot"] == 1
    assert samples["push_queue_seconds_count",] >= 1
    assert samples["response_build_seconds_count",] >= 1
    assert samples["missing_resources", "endpoints"] == 1


async def test_series_per_node_are_bounded_and_asked_for(start: Start) -> None:
    server = await start(nodes_shown=1)
    server.push({"c1": "a"})
    for number in range(3):
        stream = await server.stream()
        await stream.request(node_id=f"n{number}")
        await stream.ack(await stream.receive())
    await until(lambda: server.metrics.type(CLUSTER).kinds["ack"] == 3)
    found = families(server)
    [sample] = found["xds_server_node_synced"].samples
    assert (sample.labels["type"], sample.labels["group"], sample.value) == ("clusters", "default", 1)
    assert found["xds_server_node_synced_truncated"].samples[0].value == 2


async def test_series_per_node_are_off_by_default(server: Harness) -> None:
    await lived_through(server)
    assert not any("node" in sample.labels for family in families(server).values() for sample in family.samples)


async def test_the_text_is_made_once_a_second(server: Harness) -> None:
    assert server.metrics.text() is server.metrics.text()
