"""``xds destination`` against a real server: as a proxy asks, and why it is answered so."""

from __future__ import annotations

import json
import time

import grpc
import pytest

from tests.cli.conftest import Remote
from tests.support.process import wait_until
from xds.linkerd.proto import destination_pb2

HOST = "shop.default.svc.cluster.local:80"


@pytest.fixture(scope="module")
def shop(remote: Remote) -> Remote:
    tagged = {"virtual": {"Address": "10.96.0.10", "Port": 80}}
    for number in (1, 2):
        instance = {"Name": "shop", "ID": f"s{number}", "Address": f"10.0.0.{number}", "Port": 8080}
        answer = remote.server.request(
            "PUT", "/v1/agent/service/register", json={**instance, "TaggedAddresses": tagged}
        )
        assert answer.is_success
    # Instances that come shortly after one another reach the clients together, within a second.
    wait_until(lambda: len(remote.xds("destination", "get", HOST).out.splitlines()) == 2, "both instances are told")
    return remote


def test_get_prints_a_line_for_each_endpoint(shop: Remote) -> None:
    ran = shop.xds("destination", "get", HOST)
    assert ran.code == 0, ran.err
    assert [line.split()[:3] for line in ran.out.splitlines()] == [
        ["+", f"10.0.0.{number}:8080", "weight=10000"] for number in (1, 2)
    ]


def test_get_as_json_and_as_a_proxy_of_2018(shop: Remote) -> None:
    found = json.loads(shop.xds("destination", "get", HOST, "-o", "json").out)
    assert [one["addr"] for one in found["add"]["addrs"]] == ["10.0.0.1:8080", "10.0.0.2:8080"]
    address = f"127.0.0.1:{shop.server.grpc_port}"
    assert shop.xds("destination", "get", "shop", "--conduit", "--xds-addr", address).out.splitlines() == [
        "+ 10.0.0.1:8080 weight=1",
        "+ 10.0.0.2:8080 weight=1",
    ]


def test_an_unknown_service_is_reported_and_a_foreign_name_is_an_error(shop: Remote) -> None:
    assert shop.xds("destination", "get", "nosuch").out == "no endpoints: there is no such service\n"
    ran = shop.xds("destination", "get", "linkerd.io")
    assert ran.code == 2 and "INVALID_ARGUMENT" in ran.err
    assert shop.xds("destination", "get", "shop", "--xds-addr", "127.0.0.1:1").code == 7


def test_an_answer_of_almost_a_whole_message_is_not_waited_on(remote: Remote) -> None:
    """Answers are cut at 3 MiB: this one is not, so nothing follows it."""
    ends = [
        {"endpoint": {"address": {"socket_address": {"address": f"10.1.{n >> 8}.{n & 255}", "port_value": 80}}}}
        for n in range(13_000)
    ]
    labels = {"filter_metadata": {"io.linkerd": {"label_pod": "p" * 150}}}
    assignment = {
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "big",
        "endpoints": [{"lb_endpoints": ends, "metadata": labels}],
    }
    body = {"resources": [assignment]}
    assert remote.server.request("PUT", "/api/v1/groups/big/snapshot", json=body).is_success
    began_at = time.monotonic()
    remote.xds("destination", "get", "nosuch")
    usual_s = time.monotonic() - began_at
    began_at = time.monotonic()
    ran = remote.xds("destination", "get", "big", "--token", '{"cluster": "big"}')
    assert (ran.code, len(ran.out.splitlines())) == (0, len(ends)), ran.err
    assert time.monotonic() - began_at < 5.0 + 8 * usual_s, "an answer is waited for 10 s"


def test_the_profile_of_a_name_and_of_an_address(shop: Remote) -> None:
    by_name = json.loads(shop.xds("destination", "profile", HOST, "-o", "json").out)
    by_address = json.loads(shop.xds("destination", "profile", "10.96.0.10:80", "-o", "json").out)
    assert by_name == by_address and by_name["fully_qualified_name"] == HOST.partition(":")[0]
    assert json.loads(shop.xds("destination", "profile", "10.0.0.1:8080", "-o", "json").out)["endpoint"]


def test_explain_says_where_the_answer_comes_from(shop: Remote) -> None:
    found = json.loads(shop.xds("destination", "explain", HOST, "-o", "json").out)
    assert (found["source"], found["endpoints_total"], found["skipped"]) == ("service shop", 2, [])
    assert shop.xds("destination", "explain", "linkerd.io").code == 2
    assert shop.xds("destination", "explain", f"nobody.{HOST}").code == 4


def test_an_inspection_leaves_no_node_and_no_event(shop: Remote, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = shop.xds("history", "-o", "json").out
    watching = shop.start(tmp_path_factory.mktemp("inspects"), "destination", "get", HOST, "--watch")
    try:
        watching.wait_until(lambda: "10.0.0.1" in watching.log_tail(), "the first answer")
        for command in ("get", "profile", "explain"):
            assert shop.xds("destination", command, HOST).code == 0
        assert shop.xds("destination", "get", "shop", "--conduit").code == 0
        assert "linkerd@127.0.0.1" not in shop.server.nodes()
    finally:
        watching.stop()
    assert "linkerd@127.0.0.1" not in shop.server.nodes()
    assert "linkerd" not in shop.xds("watch", "--since", "1h", "--no-follow").out
    assert shop.xds("history", "-o", "json").out == before


def test_watch_prints_changes(shop: Remote, tmp_path_factory: pytest.TempPathFactory) -> None:
    watching = shop.start(tmp_path_factory.mktemp("watch"), "destination", "get", "late", "--watch")
    try:
        watching.wait_until(lambda: "no such service" in watching.log_tail(), "the first answer")
        body = {"Name": "late", "Address": "10.0.0.9", "Port": 80}
        assert shop.server.request("PUT", "/v1/agent/service/register", json=body).is_success
        watching.wait_until(lambda: "+ 10.0.0.9:80" in watching.log_tail(), "the endpoint")
    finally:
        watching.stop()


def test_a_proxy_is_shown_with_its_answers(shop: Remote) -> None:
    body = {"Name": "shown", "Address": "10.0.0.8", "Port": 80}
    assert shop.server.request("PUT", "/v1/agent/service/register", json=body).is_success
    request = destination_pb2.GetDestination(path="shown:80", context_token="")
    with grpc.insecure_channel(f"127.0.0.1:{shop.server.grpc_port}") as channel:
        call = channel.unary_stream("/io.linkerd.proxy.destination.Destination/Get")(request.SerializeToString())
        next(call)
        wait_until(lambda: shop.server.nodes()["linkerd@127.0.0.1"]["streams"][0]["linkerd"]["endpoints"], "served")
        node = shop.server.nodes()["linkerd@127.0.0.1"]
        (told,) = [one["linkerd"] for one in node["streams"] if "linkerd" in one]
        assert (told["authority"], told["source"], told["endpoints"]) == ("shown:80", "service shown", 1)
        explained = shop.server.get("/nodes/linkerd@127.0.0.1/explain")
        assert [one["authority"] for one in explained["linkerd"]] == ["shown:80"]
        assert "1 Linkerd stream" in shop.xds("nodes").out
        text = shop.xds("explain", "linkerd@127.0.0.1").out
        assert "Linkerd proxies are served services without a group" in text
        (line,) = [line for line in text.splitlines() if "shown:80" in line]
        assert line.split()[:5] == ["Destination/Get", "shown:80", "1", "endpoint", "service"]
        call.cancel()
