"""Live load over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.lrs.reports import (
    HERE,
    T0,
    THERE,
    Books,
    row,
    stats,
)
from tests.support.connected import Client
from xds.admin.load_view import LoadView
from xds.admin.models.load import LoadSummary
from xds.lrs.stream_states import ReportStream
from xds.model.node import Node
from xds.proto import wire_pb2

IN_A, IN_B = {"region": "r", "zone": "a", "sub_zone": ""}, {"region": "r", "zone": "b", "sub_zone": ""}


def endpoint(port: int, successes: int) -> wire_pb2.UpstreamEndpointStats:
    where = wire_pb2.Address(socket_address=wire_pb2.SocketAddress(address="10.0.0.1", port_value=port))
    return wire_pb2.UpstreamEndpointStats(
        address=where, total_successful_requests=successes, total_issued_requests=successes
    )


@pytest.fixture
def book(api: Api) -> Books:
    """Reports of two nodes in zones ``a`` and ``b``, ten seconds after they connected."""
    made = Books()
    made.open(1, locality=HERE)
    made.open(2, locality=THERE)
    made.tell(
        1,
        10,
        stats("web", row(HERE, 60, 0, 60, 2), row(THERE, 30, 10, 40, 1), dropped=5, drops={"lb": 3}),
        stats("api", row(HERE, 1, 0, 1)),
    )
    made.tell(2, 10, stats("web", row(THERE, 20, 0, 20, upstream_endpoint_stats=[endpoint(80, 15), endpoint(81, 5)])))
    streams = {"n1": [ReportStream(7, "ipv4:1", "v2", T0, T0 + 10, 3, 2, 1)]}
    api.services.load = LoadView(made, lambda node: streams.get(node, []), lambda: T0 + 10)
    return made


@pytest.fixture
def get(api: Api, book: Books) -> Callable[..., Any]:
    """The JSON of a path that must answer 200."""

    async def answer(path: str, **query: object) -> Any:
        found = await api.client.get(f"/api/v1{path}", params={name: str(value) for name, value in query.items()})
        assert found.status_code == 200, found.text
        return found.json()

    return answer


async def test_clusters_that_were_reported(get: Callable[..., Any]) -> None:
    answer = await get("/load", window=10)
    api_item, web = answer["items"]
    assert answer["reporting"] == {"interval_s": 10.0, "set_interval_s": 10.0, "core": 0.0}
    assert (api_item["cluster"], api_item["successes"], api_item["nodes"]) == ("api", 1, 1)
    counts = ("successes", "errors", "issued", "in_progress", "dropped")
    assert [web[name] for name in counts] == [110, 10, 120, 3, 5]
    assert web["drops"] == {"lb": 3, "uncategorised": 2}
    assert (web["rps"], web["window_s"], web["nodes"], web["service_name"]) == (12, 10, 2, "")
    assert web["error_ratio"] == pytest.approx(10 / 120, abs=1e-6)
    assert (web["attempts"], web["dropped_rps"], web["groups"]) == (125, 0.5, [])
    assert web["drop_ratio"] == pytest.approx(5 / 125, abs=1e-6)
    assert web["failed_ratio"] == pytest.approx(15 / 125, abs=1e-6)
    assert web["until"] == web["reported"] == "2027-01-15T08:00:10.000Z"


async def test_a_cluster_by_locality(get: Callable[..., Any]) -> None:
    web = await get("/load/web", window=10)
    rows = {(row["source"]["zone"], row["locality"]["zone"]): row for row in web["localities"]}
    assert {pair: row["issued"] for pair, row in rows.items()} == {("a", "a"): 60, ("a", "b"): 40, ("b", "b"): 20}
    assert rows["a", "b"]["errors"] == 10
    assert (rows["a", "a"]["source"], rows["a", "b"]["locality"]) == (IN_A, IN_B)
    assert rows["a", "a"]["share"] == 0.5
    assert (web["by"], web["issued"]) == ("locality", 120)


async def test_a_cluster_by_node(get: Callable[..., Any]) -> None:
    rows = {row["node"]: row for row in (await get("/load/web", by="node"))["reporters"]}
    assert {name: row["totals"]["issued"] for name, row in rows.items()} == {"node-1": 100, "node-2": 20}
    assert rows["node-1"]["totals"]["dropped"] == 5
    assert (rows["node-1"]["window_s"], rows["node-1"]["source"]) == (10, IN_A)


async def test_a_cluster_by_endpoint(get: Callable[..., Any]) -> None:
    rows = (await get("/load/web", by="endpoint"))["endpoints"]
    assert [(row["endpoint"], row["issued"]) for row in rows] == [("10.0.0.1:80", 15), ("10.0.0.1:81", 5)]


async def test_rows_come_in_pages(get: Callable[..., Any]) -> None:
    whole = (await get("/load/web"))["localities"]
    first = await get("/load/web", limit=2)
    rest = await get("/load/web", page_token=first["next_page_token"])
    assert first["localities"] + rest["localities"] == whole
    assert "next_page_token" not in rest
    page = await get("/load", limit=1)
    assert [item["cluster"] for item in page["items"]] == ["api"]
    assert [item["cluster"] for item in (await get("/load", page_token=page["next_page_token"]))["items"]] == ["web"]


async def test_priorities_have_rows_and_pages_of_their_own(get: Callable[..., Any], book: Books) -> None:
    book.tell(1, 10, stats("p", row(HERE, 1, 0, 1), row(HERE, 2, 0, 2, priority=1), row(HERE, 4, 0, 4, priority=10)))
    first = await get("/load/p", limit=1)
    rest = await get("/load/p", page_token=first["next_page_token"])
    rows = first["localities"] + rest["localities"]
    assert [(row["locality"], row["priority"], row["issued"]) for row in rows] == [
        (IN_A, 0, 1),
        (IN_A, 1, 2),
        (IN_A, 10, 4),
    ]


async def test_a_cluster_with_two_services_and_a_name_that_is_a_path(get: Callable[..., Any], book: Books) -> None:
    book.tell(1, 10, stats("a/b", row(HERE, 1, 0, 1), service_name="x"), stats("a/b", row(HERE, 2, 0, 2)))
    listed = [(item["cluster"], item["service_name"]) for item in (await get("/load"))["items"]]
    assert listed == [("a/b", ""), ("a/b", "x"), ("api", ""), ("web", "")]
    assert (await get("/load/a%2Fb"))["successes"] == 3
    assert (await get("/load/a%2Fb", service_name="x"))["successes"] == 1


async def test_a_cluster_whose_only_node_went_while_it_reported_has_no_time(book: Books) -> None:
    found, *_ = book.clusters(T0 + 10, 10)
    assert LoadSummary.from_domain(replace(found, reported=0.0)).reported is None


async def test_a_series(get: Callable[..., Any]) -> None:
    found = await get("/load/web/series", window=10, step=5)
    (line,) = found["items"]
    assert "source" not in line
    assert [(point["issued"], point["rps"]) for point in line["points"]] == [(60, 12), (60, 12)]
    assert [point["dropped"] for point in line["points"]] == [2.5, 2.5]
    assert line["points"][0]["failed_ratio"] == pytest.approx(7.5 / 62.5, abs=1e-6)
    assert found["step_s"] == 5
    lines = (await get("/load/web/series", window=10, step=10, by="locality"))["items"]
    assert {(each["source"]["zone"], each["locality"]["zone"]) for each in lines} == {
        ("a", "a"),
        ("a", "b"),
        ("b", "b"),
    }


@pytest.mark.parametrize(
    ("path", "status", "detail"),
    [
        ("/load?window=0", 400, "window: 1 to 3600 seconds"),
        ("/load?window=2h", 400, "window: 1 to 3600 seconds"),
        ("/load?window=soon", 400, "not 'soon'"),
        ("/load/web?by=color", 422, ""),
        ("/load/nobody", 404, "no recent load reports for cluster 'nobody'"),
        ("/load/nobody/series", 404, "no recent load reports for cluster 'nobody'"),
        ("/load/web/series?window=5m&step=1", 400, "step: 60 to 300 seconds"),
        ("/load/web/series?by=node", 400, "no history of single nodes"),
        ("/load?page_token=a", 400, "page_token"),
    ],
)
async def test_a_query_that_cannot_be_answered_is_a_problem_document(
    api: Api, book: Books, path: str, status: int, detail: str
) -> None:
    answer = await api.client.get(f"/api/v1{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert detail in answer.json()["detail"]


async def test_a_node_shows_its_streams_of_reports(api: Api, book: Books) -> None:
    Client(api.plane.fleet, Node("n1", "edge"), "edge")
    (item,) = (await api.client.get("/api/v1/nodes")).json()["items"]
    ads, reports = item["streams"]
    assert "load" not in ads
    assert (reports["service"], reports["api"], reports["types"]) == ("LRS", "v2", {})
    told = {"reports": 3, "reported": "2027-01-15T08:00:10.000Z", "refused": 2, "left_out": 1}
    assert reports["load"] == told
