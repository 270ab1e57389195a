"""Load report streams at the gRPC port: access, and the rules of docs/protocol.md#load-reports for the handler."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from time import monotonic, time
from typing import Any

import grpc
import pytest

from tests.server.conftest import Harness, RawStream, Start, until, within
from tests.server.load_client import V2, V3, Reporter, connect, report, reporter, told
from xds.access.tokens import Grant, Tokens
from xds.filter.filter import compile_filter
from xds.fleet.event_log import EventFilter, EventKind
from xds.lrs.aggregates import LoadAggregates
from xds.lrs.figures import TargetTotals
from xds.lrs.report_stream import NO_CLUSTER, LoadSettings
from xds.lrs.series_index import Bounds
from xds.proto import wire_pb2
from xds.server.flow.limits import FlowLimits
from xds.snapshots.membership import Rule


def totals(server: Harness, cluster: str = "c1") -> TargetTotals | None:
    """What was counted of a cluster; it has one locality."""
    return next((found for found in server.server.load.aggregates.target_totals() if found.cluster == cluster), None)


async def counted(server: Harness, successes: int, cluster: str = "c1") -> TargetTotals:
    """Wait until so many successes are."""

    def reached() -> TargetTotals | None:
        found = totals(server, cluster)
        return found if found is not None and found.successes >= successes else None

    found: TargetTotals = await until(reached)
    assert found.successes == successes
    return found


async def left(server: Harness, streams: int = 0) -> None:
    """Wait until only so many streams are open."""
    await until(lambda: len(server.server.load) == streams)


async def test_lrs_rule_1_a_first_message_that_reports_is_counted(server: Harness) -> None:
    """LRS rule 1: it has everything that the client counted while it was disconnected."""
    stream = await connect(server)
    await stream.begin(told(interval_s=7.5, total_successful_requests=7))
    await counted(server, 7)


async def test_lrs_rule_2_the_stream_is_its_first_nodes(server: Harness) -> None:
    """LRS rule 2: "The stream belongs to the node of its first message"."""
    stream = await connect(server)
    await stream.begin(node_id="n1")
    await stream.tell(told(total_successful_requests=1))
    await stream.send(report(told(total_successful_requests=2), node=reporter("other")))
    await counted(server, 3)
    assert [len(server.server.load.of_node(node)) for node in ("n1", "other")] == [1, 0]


async def test_lrs_rule_3_the_first_message_is_answered(server: Harness) -> None:
    stream = await connect(server)
    asked = await stream.begin()
    assert (asked.send_all_clusters, asked.load_reporting_interval.seconds) == (True, 10)


async def test_lrs_rule_3_changed_settings_reach_a_client_that_reads_one_response(server: Harness) -> None:
    """LRS rule 3: grpc-go reads one response per stream. The server ends the stream to change the settings."""
    stream = await connect(server)
    await stream.begin(user_agent="gRPC Go")
    server.server.load.configure(LoadSettings(3.0, by_endpoint=True))
    assert await stream.ended() == (grpc.StatusCode.OK, "")
    again = await (await connect(server)).begin(user_agent="gRPC Go")
    assert (again.load_reporting_interval.seconds, again.report_endpoint_granularity) == (3, True)
    assert server.server.load.counts.restarts == 1


async def test_lrs_rule_4_old_clients_are_asked_for_the_clusters_of_their_snapshot(server: Harness) -> None:
    """LRS rule 4: a client without the feature is asked for clusters by name, and asked again when they change (LRS
    rule 8)."""
    stream = await connect(server)
    asked = await stream.begin(features=())
    assert (asked.send_all_clusters, list(asked.clusters)) == (False, ["c1", "c2"])
    server.push({"c1": "changed", "c2": "a"})
    server.push({"c1": "changed", "c2": "a", "c3": "a"})
    assert list((await stream.asked()).clusters) == ["c1", "c2", "c3"]
    server.push({"c3": "a"})
    assert list((await stream.asked()).clusters) == ["c3"]
    assert server.server.load.counts.responses == 3


async def test_lrs_rule_5_a_node_without_clusters_is_asked_for_one_that_does_not_exist(start: Start) -> None:
    """LRS rule 5: `clusters` is never empty while `send_all_clusters` is false."""
    server = await start()
    stream = await connect(server)
    assert list((await stream.begin(features=())).clusters) == [NO_CLUSTER]
    server.push({"c1": "a"})
    assert list((await stream.asked()).clusters) == ["c1"]


async def test_lrs_rule_7_the_interval_is_a_second_at_least(start: Start) -> None:
    server = await start(load=LoadSettings(0.1))
    assert (await (await connect(server)).begin()).load_reporting_interval.seconds == 1


async def test_lrs_rule_8_a_request_is_repeated_only_after_a_change(server: Harness) -> None:
    stream = await connect(server)
    await stream.begin()
    server.server.load.configure(LoadSettings())
    server.push({"c9": "a"})
    server.server.load.configure(LoadSettings(2.0))
    assert (await stream.asked()).load_reporting_interval.seconds == 2
    assert server.server.load.counts.responses == 2


@pytest.mark.parametrize("method", [V3, V2])
async def test_lrs_rule_15_reports_come_over_the_port_of_ads(server: Harness, method: str) -> None:
    """LRS rule 15: "LRS is served on the port of ADS", for v2 and v3 alike."""
    channel = await server.channel()
    ads, stream = RawStream(channel), Reporter(channel, method)
    await ads.request()
    assert (await ads.receive()).version_info == "1"
    await stream.begin()
    await stream.tell(told(total_successful_requests=5))
    await counted(server, 5)
    (state,) = server.server.load.of_node("n1")
    assert state.api == ("v2" if method == V2 else "")


async def test_lrs_rule_17_a_last_report_before_the_client_ends_its_side(server: Harness) -> None:
    """LRS rule 17: a report followed by a half-close is counted."""
    stream = await connect(server)
    await stream.begin()
    await stream.tell(told(total_successful_requests=4))
    await stream.end()
    assert await stream.ended() == (grpc.StatusCode.OK, "")
    await counted(server, 4)
    await left(server)


async def test_lrs_rule_18_an_empty_report_says_that_the_client_lives(server: Harness) -> None:
    stream = await connect(server)
    await stream.begin()
    assert server.server.load.of_node("n1")[0].reports == 0
    await stream.tell()
    state = await until(lambda: next((each for each in server.server.load.of_node("n1") if each.reports), None))
    assert state.reported > 0
    assert totals(server) is None


async def test_lrs_rule_20_gauges_are_of_open_streams_and_counters_of_all(server: Harness) -> None:
    """LRS rules 19 and 20: all streams of a node count, and a gauge is the sum of the latest values of open streams."""
    first, second = await connect(server), await connect(server)
    await first.begin()
    await second.begin()
    for _ in range(2):
        await first.tell(told(total_successful_requests=1, total_requests_in_progress=3))
        await second.tell(told(total_successful_requests=10, total_requests_in_progress=4))
    assert (await counted(server, 22)).in_progress == 7
    second.call.cancel()
    await left(server, 1)
    found = await counted(server, 22)
    assert found.in_progress == 3
    await first.end()
    await left(server)
    assert (await counted(server, 22)).in_progress == 0


async def test_a_load_stream_is_an_event_like_others(server: Harness) -> None:
    stream = await connect(server)
    await stream.begin()
    await stream.end()
    await left(server)
    events = server.fleet.events.after(0, EventFilter(), 100).events
    told_of = [(event.kind, event.action, event.node, event.group, event.details["service"]) for event in events]
    assert told_of == [("stream", "opened", "n1", "default", "LRS"), ("stream", "closed", "n1", "default", "LRS")]
    assert server.metrics.closed == {"OK": 1}


async def test_a_client_that_only_reports_load_is_a_node(server: Harness) -> None:
    """No push waits for it. Several streams count, and it stays known for a while after the last one."""
    stream, other = await connect(server), await connect(server, V2)
    await stream.begin()
    await other.begin()
    node = server.fleet.node("n1")
    assert node is not None and node.connected and node.group == "default" and not node.types
    assert server.fleet.ids_after() == ["n1"] and server.fleet.identity("n1") is not None
    assert not server.fleet.connected() and not server.fleet.nodes_by_group()
    server.push({"c1": "a"}, group="edge")
    server.cache.configure([Rule("edge", compile_filter("node.id == n1"))], {})
    await stream.tell(told(total_successful_requests=2))
    await counted(server, 2)
    assert (moved := server.fleet.node("n1")) is not None and moved.group == "edge"
    await stream.end()
    await left(server, 1)
    assert (node := server.fleet.node("n1")) is not None and node.connected
    await other.end()
    await left(server)
    assert (node := server.fleet.node("n1")) is not None and not node.connected


@pytest.mark.parametrize("first", ["ADS", "LRS"])
async def test_a_node_is_connected_until_its_last_stream_of_either_kind_ends(server: Harness, first: str) -> None:
    ads, stream = await server.stream(), await connect(server)
    await ads.request()
    await ads.receive()
    await stream.begin()
    streams = {"ADS": (ads, lambda: not server.fleet.connected()), "LRS": (stream, lambda: not len(server.server.load))}
    second = "LRS" if first == "ADS" else "ADS"
    for name, is_connected in ((first, True), (second, False)):
        ending, has_left = streams[name]
        ending.call.cancel()
        await until(has_left)
        node = server.fleet.node("n1")
        assert node is not None and node.connected is is_connected
    assert server.fleet.ids_after() == ["n1"]


# Who may come in


async def test_no_report_is_taken_before_the_state_is_loaded(start: Start) -> None:
    server = await start(ready=False)
    assert await (await connect(server)).ended() == (grpc.StatusCode.UNAVAILABLE, "the server is starting")


async def test_reports_need_a_token_with_the_scope_of_proxies(start: Start) -> None:
    reader, proxy = Grant("reader", frozenset({"read"})), Grant("proxy", frozenset({"xds"}))
    server = await start(tokens=Tokens([(sha256(b"r").hexdigest(), reader), (sha256(b"p").hexdigest(), proxy)]))
    nobody, refused = await server.stream(V3), await server.stream(V3, authorization="Bearer r")
    assert (await nobody.ended())[0] is grpc.StatusCode.UNAUTHENTICATED
    assert await refused.ended() == (grpc.StatusCode.PERMISSION_DENIED, "the token lacks the scope xds")
    taken = Reporter(await server.channel(), V3, (("authorization", "Bearer p"),))
    await taken.begin(told(total_successful_requests=4))
    await counted(server, 4)


async def test_reports_count_in_the_group_that_the_node_is_in(server: Harness) -> None:
    stream = await connect(server)
    await stream.begin(told(total_successful_requests=4), node_id="mover")
    await counted(server, 4)
    server.push({"c1": "a"}, group="edge")
    server.cache.configure([Rule("edge", compile_filter("node.id == mover"))], {})
    await stream.tell(told(total_successful_requests=2))
    await counted(server, 6)
    book, now = server.server.load.aggregates, time()
    demands = [book.demand(group, "c1", now, 60).sources for group in ("edge", "default")]
    assert [sum(each.nodes for each in sources) for sources in demands] == [1, 0]


async def test_a_drain_ends_report_streams_in_good_order(server: Harness) -> None:
    streams = [await connect(server) for _ in range(5)]
    for number, stream in enumerate(streams):
        await stream.begin(told(total_successful_requests=1), node_id=f"n{number}")
    await counted(server, 5)
    await within(server.server.drain(0.1))
    assert {(await stream.ended())[0] for stream in streams} == {grpc.StatusCode.OK}
    assert len(server.server.load) == 0


async def test_a_disconnected_node_loses_its_report_streams_too(server: Harness) -> None:
    ads, stream = await server.stream(), await connect(server)
    await ads.request()
    await ads.receive()
    await stream.begin()
    assert server.server.disconnect("n1") == 2
    assert await stream.ended() == (grpc.StatusCode.OK, "")


# Bad input


async def refusal(server: Harness, data: bytes) -> grpc.StatusCode:
    stream = await connect(server)
    await stream.send(data)
    return (await stream.ended())[0]


async def test_a_message_that_is_malformed_or_has_no_node_is_refused(server: Harness) -> None:
    nobody = wire_pb2.Node().SerializeToString()
    for data in (b"\xff\xff", b"", report(told()), report(told(), node=nobody), report(node=b"\xff"), b"\x12\x7f"):
        assert await refusal(server, data) is grpc.StatusCode.INVALID_ARGUMENT, data
    too_long = report(node=reporter("x" * (9 << 20)))
    assert await refusal(server, too_long) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert server.metrics.limit_hits == {"receive_bytes": 1}
    assert totals(server) is None
    await left(server)


def overflowing() -> Any:
    return told("over", total_error_requests=1 << 63)


def negative() -> Any:
    return told("minus", total_successful_requests=(1 << 64) - 5)


def instant() -> Any:
    return told("instant", interval_s=0.0, total_successful_requests=5)


async def test_impossible_counters_are_counted_and_shown_and_affect_no_other_client(server: Harness) -> None:
    stream, other = await connect(server), await connect(server)
    await stream.begin()
    await other.begin(node_id="n2")
    await stream.tell(overflowing(), negative(), instant(), told("well", total_successful_requests=1))
    await other.tell(told("well", total_successful_requests=2))
    await counted(server, 3, "well")
    assert [totals(server, name) for name in ("over", "minus", "instant")] == [None] * 3
    assert (server.server.load.of_node("n1")[0].refused, server.server.load.of_node("n2")[0].refused) == (3, 0)
    assert server.server.load.counts.refused == 3
    book = server.server.load.aggregates
    assert [found.cluster for found in book.clusters(time(), 60.0)] == ["well"]


async def test_a_report_of_unknown_clusters_is_counted_as_its_own(server: Harness) -> None:
    """Nobody pushed them, but a proxy has static clusters, too."""
    stream = await connect(server)
    await stream.begin()
    await stream.tell(*(told(f"static-{number}", total_successful_requests=1) for number in range(20)))
    await counted(server, 1, "static-19")


async def test_a_node_that_floods_is_held_back_and_others_are_not(start: Start) -> None:
    server = await start(requests_per_s=50.0, requests_burst=10)
    server.push({"c1": "a"})
    flooding, other, ads = await connect(server), await connect(server), await server.stream()
    await flooding.begin()
    for _ in range(40):
        await flooding.tell(told("flood", total_successful_requests=1))
    await until(server.metrics.limit_hits.total)
    await other.begin(node_id="n2")
    await other.tell(told(total_successful_requests=9))
    await counted(server, 9)
    await ads.request(node_id="n3")
    assert (await ads.receive()).version_info == "1"
    await counted(server, 40, "flood")


async def test_a_long_report_is_counted_as_a_whole(server: Harness) -> None:
    """Longer than what is read in one turn."""
    stream = await connect(server)
    await stream.begin()
    stats = [told(f"cluster-{number:04}-{'x' * 80}", total_successful_requests=1) for number in range(4000)]
    await stream.tell(*stats, told("last", total_successful_requests=1))
    await counted(server, 1, "last")
    counts = server.server.load.counts
    assert (counts.clusters, counts.refused, counts.left_out) == (4001, 0, 0)
    assert counts.reports == 1  # in pieces
    assert [each.reports for each in server.server.load.aggregates.streams()] == [1]


async def test_a_client_that_invents_clusters_uses_up_its_own_share(start: Start) -> None:
    server = await start(aggregates=LoadAggregates(bounds=Bounds(made_by_stream=20)))
    inventing, other = await connect(server), await connect(server)
    await inventing.begin()
    await other.begin(node_id="n2")
    await inventing.tell(*(told(f"invented-{number}", total_successful_requests=1) for number in range(100)))
    await other.tell(told("well", total_successful_requests=1))
    await counted(server, 1, "well")
    assert server.server.load.of_node("n1")[0].left_out > 0
    assert server.server.load.of_node("n2")[0].left_out == 0
    assert len(server.server.load.aggregates.clusters(time(), 60.0)) < 50


async def test_discovery_waits_for_no_more_than_a_piece_of_a_report(server: Harness) -> None:
    """However many streams report: together they have one place in the queue."""
    load, order = server.server.load, list[str]()

    async def count(number: int) -> None:
        async with load.turn(0.002):
            order.append(f"piece {number}")

    reporting = [asyncio.create_task(count(number)) for number in range(5)]
    await asyncio.sleep(0)
    load.deps.work_queue.submit(lambda: order.append("discovery"))
    await within(asyncio.gather(*reporting))
    assert order.index("discovery") <= 1
    assert len(order) == 6


async def test_one_clusters_report_beyond_all_measure_is_not_read(server: Harness) -> None:
    stream = await connect(server)
    await stream.begin()
    huge = told("huge", total_successful_requests=1)
    for number in range(20_000):
        endpoint = huge.upstream_locality_stats[0].upstream_endpoint_stats.add(total_successful_requests=1)
        endpoint.address.socket_address.address = f"address-of-endpoint-{number}"
    await stream.tell(huge, told("well", total_successful_requests=1))
    await counted(server, 1, "well")
    assert totals(server, "huge") is None
    assert server.server.load.of_node("n1")[0].refused == 1
    assert server.metrics.limit_hits["load_cluster_bytes"] == 1


async def test_work_that_takes_too_long_is_held_back(start: Start) -> None:
    server = await start(flow=FlowLimits(report_work_share=0.5, report_work_burst_s=0.0))
    stream = await connect(server)
    await stream.begin()
    for _ in range(5):
        await stream.tell(*(told(f"c{number}", total_successful_requests=1) for number in range(200)))
    await counted(server, 5, "c199")
    assert server.metrics.limit_hits["load_work"] >= 4


async def test_under_load_clients_are_asked_to_report_less_often(start: Start) -> None:
    """Said by an event, a metric and what `LoadView` shows; and back again when it has ended."""
    server = await start(load=LoadSettings(5.0, longest_interval_s=20.0))
    load = server.server.load
    stream = await connect(server)
    assert (await stream.begin()).load_reporting_interval.seconds == 5
    now = monotonic()
    load.note_reading(0.0, now)
    load.note_reading(15.0, now + 30)
    assert (await stream.asked()).load_reporting_interval.seconds == 10
    assert (load.reporting().set_s, load.reporting().interval_s, load.aggregates.interval_s) == (5.0, 10.0, 10.0)
    assert load.reporting().share == pytest.approx(0.5, abs=0.01)
    assert b"xds_server_lrs_interval_seconds 10.0" in server.metrics.render()
    later = await connect(server)
    assert (await later.begin(node_id="n2")).load_reporting_interval.seconds == 10
    load.note_reading(0.1, now + 60)
    assert (await stream.asked()).load_reporting_interval.seconds == 5
    events = server.fleet.events.after(0, EventFilter(), 100).events
    changes = [event for event in events if event.kind is EventKind.STREAM and event.action.startswith("interval_")]
    assert [(event.action, event.details["interval_s"]) for event in changes] == [
        ("interval_lengthened", "10"),
        ("interval_shortened", "5"),
    ]


async def test_reading_is_measured(server: Harness) -> None:
    stream = await connect(server)
    await stream.begin(told(total_successful_requests=1))
    await counted(server, 1)
    await until(lambda: server.server.load.counts.reading_s > 0)
