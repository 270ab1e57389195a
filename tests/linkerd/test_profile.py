"""`Destination.GetProfile` and the policies over a real connection: each case of their rules has a test."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import grpc
import pytest

from tests.support.linkerd_client import (
    INBOUND,
    OUTBOUND,
    LinkerdClient,
    added,
    no_endpoints,
    place_of,
    refuses,
    traffic,
    without_policy,
)
from tests.support.linkerd_policy import backends_of
from tests.support.linkerd_site import HOST, LinkerdSite, instance
from xds.linkerd.proto import destination_pb2 as pb
from xds.linkerd.proto import inbound_pb2, outbound_pb2
from xds.linkerd.settings import DestinationSettings
from xds.model.errors import ValidationError

V1, V2 = "web-v1.default.svc.cluster.local", "web-v2.default.svc.cluster.local"
HTTP = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}


def overrides(profile: Any) -> dict[str, int]:
    return {one.authority: one.weight for one in profile.dst_overrides}


# By name and by virtual address


def test_case_45_a_service_without_configuration_has_a_default_profile(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    site.put("web", instance("10.0.0.1"))
    stream = client.profile(f"{HOST}:80")
    profile = stream.next()
    assert profile.fully_qualified_name == HOST
    budget = profile.retry_budget
    assert (round(budget.retry_ratio, 3), budget.min_retries_per_second, budget.ttl.seconds) == (0.2, 10, 10)
    assert not (profile.routes or profile.dst_overrides or profile.opaque_protocol)
    assert not profile.HasField("endpoint") and not profile.HasField("profile_ref")
    parent = profile.parent_ref.resource
    assert (parent.group, parent.kind, parent.name, parent.namespace, parent.port) == (
        "core", "Service", "web", "default", 80,
    )  # fmt: skip
    assert stream.is_quiet()


def test_the_retry_budget_is_as_configured() -> None:
    with closing(LinkerdSite(DestinationSettings(retry_ratio=0.5, retry_min_per_s=3, retry_ttl_s=20))) as site:
        site.put("web", instance("10.0.0.1"))
        budget = site.client().profile(f"{HOST}:80").next().retry_budget
        assert (budget.retry_ratio, budget.min_retries_per_second, budget.ttl.seconds) == (0.5, 3, 20)


@pytest.mark.parametrize("virtual", ["10.96.0.10", "fd00::10"])
def test_case_46_the_virtual_address_has_the_same_profile(
    site: LinkerdSite, client: LinkerdClient, virtual: str
) -> None:
    site.put("web.default", instance("10.0.0.1", virtual_addresses=("10.96.0.10", "fd00::10")))
    path = f"[{virtual}]:80" if ":" in virtual else f"{virtual}:80"
    assert client.profile(path).next() == client.profile(f"{HOST}:80").next()


def test_case_46_the_address_stays_that_of_the_service_without_instances(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    site.put("web", instance("10.0.0.1", virtual_addresses=("10.96.0.10",)))
    stream = client.profile("10.96.0.10:80")
    assert stream.next().fully_qualified_name == HOST
    site.put("web")
    assert client.profile("10.96.0.10:80").next().fully_qualified_name == HOST
    assert stream.is_quiet()


@pytest.mark.parametrize("name", [HOST, "web.service.consul", "web"])
def test_an_unknown_service_keeps_its_name_so_that_requests_wait_for_it(
    site: LinkerdSite, client: LinkerdClient, name: str
) -> None:
    """Without a name, a proxy in ingress mode and a gateway reject them (docs/linkerd.md#profiles)."""
    profile, policy = client.profile(f"{name}:80").next(), client.watch(authority=f"{name}:80").next()
    assert without_policy(profile) == f"balance {name}" and profile.HasField("retry_budget")
    assert backends(policy) == {f"{name}:80": 1}
    stream = client.get(f"{profile.fully_qualified_name}:80")
    assert no_endpoints(stream.next()) is False
    site.put("web", instance("10.0.0.1"))
    assert set(added(stream.next())) == {"10.0.0.1:8080"}


def test_a_profile_never_waits_for_sources() -> None:
    with closing(LinkerdSite(is_read=False)) as site:
        assert site.client().profile(HOST).next(3.0).fully_qualified_name == HOST
        assert place_of(site.client().profile("10.9.9.9:80").next(3.0).endpoint.addr) == "10.9.9.9:80"


# Endpoints


def test_case_47_an_instance_has_an_endpoint_with_its_namespace(site: LinkerdSite, client: LinkerdClient) -> None:
    meta = {"namespace": "shop", "pod": "web-1", "linkerd-identity": "a.b"}
    site.put("web.shop", instance("10.0.0.1", meta=meta))
    profile = client.profile("10.0.0.1:8080").next()
    assert place_of(profile.endpoint.addr) == "10.0.0.1:8080"
    assert profile.endpoint.metric_labels["namespace"] == "shop"
    assert profile.endpoint.metric_labels["pod"] == "web-1"
    assert "zone_locality" not in profile.endpoint.metric_labels
    assert profile.endpoint.tls_identity.dns_like_identity.name == "a.b"
    assert not profile.fully_qualified_name and not profile.HasField("parent_ref")
    assert profile.HasField("retry_budget")


def test_cases_48_and_49_an_unknown_address_is_dialled_until_a_workload_is_there(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    stream, of_database = client.profile("10.0.0.1:8080"), client.profile("10.0.0.1:3306")
    bare = stream.next()
    assert place_of(bare.endpoint.addr) == "10.0.0.1:8080" and bare.endpoint.weight == 10_000
    assert not bare.endpoint.metric_labels and not bare.opaque_protocol
    assert of_database.next().opaque_protocol
    site.put("web", instance("10.0.0.1", meta={"pod": "web-1"}))
    assert stream.next().endpoint.metric_labels["pod"] == "web-1"
    site.put("web", instance("10.0.0.1", meta={"pod": "web-1"}, tags=("x",)))
    assert stream.is_quiet()
    site.run(_drained(site))
    assert stream.next() == bare
    assert stream.is_quiet()


async def _drained(site: LinkerdSite) -> None:
    """The instance goes, and has drained."""
    site.sink.remove("web")
    await site.catalog.tick()
    site.now_s += 60
    await site.catalog.tick()


@pytest.mark.parametrize("path", ["10.9.9.9:8080", "10.0.0.1:8080", "10.0.0.1:9999", "[fd00::99]:8080"])
def test_an_address_of_no_service_is_an_endpoint_so_that_a_proxy_in_ingress_mode_forwards(
    site: LinkerdSite, client: LinkerdClient, path: str
) -> None:
    """Without the endpoint, it rejects requests to the address (docs/linkerd.md#profiles)."""
    site.put("web", instance("10.0.0.1"))
    profile = client.profile(path).next()
    assert without_policy(profile) == f"forward {path}" and not profile.fully_qualified_name
    refuses(client.watch(*split_address(path)), grpc.StatusCode.NOT_FOUND)


def split_address(path: str) -> tuple[str, int]:
    host, _, port = path.rpartition(":")
    return host.strip("[]"), int(port)


def test_case_50_an_instance_that_is_not_ready_has_an_endpoint(site: LinkerdSite, client: LinkerdClient) -> None:
    meta = {"linkerd-identity": "a.b"}
    site.put("web", instance("10.0.0.1", health="critical", meta=meta))
    assert client.profile("10.0.0.1:8080").next().endpoint.tls_identity.dns_like_identity.name == "a.b"


def test_case_51_an_instance_by_its_name(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1", meta={"hostname": "web-0"}), instance("10.0.0.2"))
    assert place_of(client.profile(f"web-0.{HOST}").next().endpoint.addr) == "10.0.0.1:8080"
    refuses(client.profile(f"web-9.{HOST}"), grpc.StatusCode.NOT_FOUND)


def test_case_58_an_address_of_two_services_is_refused(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1", virtual_addresses=("10.96.0.10",)))
    site.put("api", instance("10.0.0.2", virtual_addresses=("10.96.0.10",)))
    said = refuses(client.profile("10.96.0.10:80"), grpc.StatusCode.FAILED_PRECONDITION)
    assert "api, web" in said


def test_case_58_an_address_of_two_workloads_is_refused(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1", meta={"linkerd-identity": "a.b"}))
    site.put("api", instance("10.0.0.1", meta={"linkerd-identity": "c.d"}))
    refuses(client.profile("10.0.0.1:8080"), grpc.StatusCode.FAILED_PRECONDITION)


@pytest.mark.parametrize("path", ["linkerd.io:80", "a.b", "web:0", "10.0.0.1:99999", "[::1", "[fe80::1%eth0]:80"])
def test_case_59_foreign_and_malformed_names_are_refused(client: LinkerdClient, path: str) -> None:
    refuses(client.profile(path), grpc.StatusCode.INVALID_ARGUMENT)


# Routes


def router(*routes: dict[str, Any]) -> dict[str, Any]:
    return {"Kind": "service-router", "Name": "web", "Routes": list(routes)}


def test_case_52_routes_come_in_order_with_their_failures(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1"))
    retried = {"NumRetries": 3, "RetryOn": ["5xx"], "RetryOnStatusCodes": [420], "RequestTimeout": "2s"}
    site.write(
        HTTP,
        router(
            {"Match": {"HTTP": {"PathRegex": "/private/.*", "Methods": ["GET"]}}, "Destination": {"RetryOn": ["5xx"]}},
            {"Match": {"HTTP": {"PathExact": "/login"}}, "Destination": retried},
            {"Match": {"HTTP": {"PathPrefix": "/a.b/", "Methods": ["GET", "PURGE"], "CaseInsensitive": True}}},
        ),
    )
    private, login, prefix = client.profile(HOST).next().routes
    assert private == pb.Route(
        condition=pb.RequestMatch(
            all=pb.RequestMatch.Seq(
                matches=[
                    pb.RequestMatch(path=pb.PathMatch(regex="/private/.*")),
                    pb.RequestMatch(method={"registered": "GET"}),
                ]
            )
        ),
        response_classes=[
            pb.ResponseClass(condition=pb.ResponseMatch(status=pb.HttpStatusRange(min=500, max=599)), is_failure=True)
        ],
        metrics_labels={"route": "GET /private/.*"},
        is_retryable=True,
    )
    assert login.condition == pb.RequestMatch(path=pb.PathMatch(regex="/login"))
    assert login.timeout.seconds == 2 and login.is_retryable
    ranges = [(one.condition.status.min, one.condition.status.max) for one in login.response_classes]
    assert ranges == [(420, 420), (500, 599)]
    path, methods = prefix.condition.all.matches
    assert path.path.regex == r"(?i)/a\.b/.*"
    assert [one.method.WhichOneof("type") for one in methods.any.matches] == ["registered", "unregistered"]
    assert not prefix.is_retryable and not prefix.HasField("timeout")


@pytest.mark.parametrize(
    ("to", "word"),
    [
        ({"RetryOnConnectFailure": True}, "connect-failure"),
        ({"RetryOn": ["reset", "refused-stream", "unavailable", "cancelled"]}, "reset, refused-stream, unavailable"),
        ({"NumRetries": 3}, "NumRetries"),
        ({"RetryOn": ["gateway-error"], "RetryOnConnectFailure": True}, "connect-failure"),
    ],
)
def test_retries_that_are_not_about_statuses_are_left_out_and_reported(
    site: LinkerdSite, client: LinkerdClient, to: dict[str, Any], word: str
) -> None:
    """What may be repeated only before an instance had it is not repeated on a 500."""
    site.write(HTTP, router({"Match": {"HTTP": {"PathExact": "/pay"}}, "Destination": to}))
    pay = client.profile(HOST).next().routes[0]
    retried = [(one.condition.status.min, one.condition.status.max) for one in pay.response_classes if one.is_failure]
    assert retried == ([(502, 504)] if "gateway-error" in to.get("RetryOn", ()) else [])
    assert pay.is_retryable == bool(retried)
    told = [each for state in site.destinations.states() for each in state.skipped]
    assert any(word in each for each in told), told


def test_the_timeout_of_a_resolver_is_that_of_every_request(site: LinkerdSite, client: LinkerdClient) -> None:
    site.write(HTTP, {"Kind": "service-resolver", "Name": "web", "RequestTimeout": "3s"})
    (route,) = client.profile(HOST).next().routes
    assert route.condition.path.regex == ".*" and route.timeout.seconds == 3 and not route.is_retryable
    (of_policy,) = client.watch(authority=f"{HOST}:80").next().protocol.detect.http1.routes
    assert of_policy.rules[0].timeouts.request.seconds == 3


def test_a_path_that_the_proxy_may_read_otherwise_is_left_out_and_reported(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    """Of a route by path and method, a proxy drops a path that it cannot read, and matches by the method alone."""
    matches = ({"PathRegex": r"/\Qa.b\E", "Methods": ["GET"]}, {"PathRegex": "/a|/b"})
    timed = {"RequestTimeout": "1s"}
    site.write(HTTP, router(*({"Match": {"HTTP": each}, "Destination": timed} for each in matches)))
    (told,) = client.profile(HOST).next().routes
    assert told.condition.path.regex == "^(?:/a|/b)$"
    (state,) = site.destinations.states()
    assert any("route 1" in each and "regular expression" in each for each in state.skipped)


def test_case_53_an_invalid_write_is_refused_and_the_last_good_profile_stays(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    site.write(HTTP, router({"Match": {"HTTP": {"PathExact": "/a"}}}))
    stream = client.profile(HOST)
    assert len(stream.next().routes) == 1
    with pytest.raises(ValidationError, match="would break"):
        site.write({"Kind": "service-defaults", "Name": "web", "Protocol": "tcp"})
    assert stream.is_quiet()


def test_case_54_inexpressible_routes_are_left_out_and_reported(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1"))
    site.put("admin", instance("10.0.0.2"))
    site.write(
        HTTP,
        router(
            {"Match": {"HTTP": {"Header": [{"Name": "x", "Present": True}]}}, "Destination": {"RequestTimeout": "1s"}},
            {"Match": {"HTTP": {"QueryParam": [{"Name": "q", "Present": True}]}}},
            {"Match": {"HTTP": {"PathPrefix": "/admin"}}, "Destination": {"Service": "admin"}},
            {"Match": {"HTTP": {"PathPrefix": "/a"}}, "Destination": {"PrefixRewrite": "/b", "NumRetries": 2}},
        ),
    )
    profile = client.profile(HOST).next()
    assert [one.metrics_labels["route"] for one in profile.routes] == ["/a*"]
    assert not profile.dst_overrides, "requests keep going where they go"
    (state,) = site.destinations.states()
    told = "\n".join(state.skipped)
    for word in ("headers", "query parameters", "another destination", "PrefixRewrite", "NumRetries"):
        assert word in told


def test_case_55_a_splitter_becomes_overrides(site: LinkerdSite, client: LinkerdClient) -> None:
    site.write(HTTP, _splitter(90, 10))
    stream = client.profile(f"{HOST}:8080")
    legs = [(one.authority, one.weight) for one in stream.next().dst_overrides]
    assert legs == [(f"{V1}:8080", 9000), (f"{V2}:8080", 1000)]
    site.write(_splitter(50, 50))
    assert [one.weight for one in stream.next().dst_overrides] == [5000, 5000]
    site.write(_splitter(100, 0))
    assert overrides(stream.next()) == {f"{V1}:8080": 10_000}
    assert stream.is_quiet()


def _splitter(first: int, second: int) -> dict[str, Any]:
    legs = [{"Weight": first, "Service": "web-v1"}, {"Weight": second, "Service": "web-v2"}]
    return {"Kind": "service-splitter", "Name": "web", "Splits": legs}


def test_case_55_each_leg_can_be_asked_for(site: LinkerdSite, client: LinkerdClient) -> None:
    versions = {f"v{n}": {"Filter": f"Service.Meta.version == v{n}"} for n in (1, 2)}
    site.put("web", *(instance(f"10.0.0.{n}", meta={"version": f"v{n}"}) for n in (1, 2)))
    site.put("web-3", instance("10.0.0.3"))
    legs = [
        {"Weight": 50, "ServiceSubset": "v1"},
        {"Weight": 30, "ServiceSubset": "v2"},
        {"Weight": 20, "Service": "web-3"},
    ]
    site.write(
        HTTP,
        {"Kind": "service-resolver", "Name": "web", "Subsets": versions},
        {"Kind": "service-splitter", "Name": "web", "Splits": legs},
    )
    for host in (HOST, "web.service.consul", "web"):
        found = overrides(client.profile(host).next())
        assert list(found.values()) == [5000, 3000, 2000]
        reached = [set(added(client.get(authority).next())) for authority in found]
        assert reached == [{"10.0.0.1:8080"}, {"10.0.0.2:8080"}, {"10.0.0.3:8080"}]


def test_case_56_an_opaque_port_is_sent_on_the_streams_of_its_port(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1"))
    site.write({"Kind": "service-defaults", "Name": "web", "Meta": {"linkerd-opaque-ports": "4242"}})
    http, database = client.profile(f"{HOST}:80"), client.profile(f"{HOST}:4242")
    assert not http.next().opaque_protocol
    assert database.next().opaque_protocol
    site.write({"Kind": "service-defaults", "Name": "web", "Meta": {"linkerd-opaque-ports": "1"}})
    assert not database.next().opaque_protocol
    assert http.is_quiet()


def test_case_57_equal_profiles_are_sent_once(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("web", instance("10.0.0.1"))
    stream = client.profile(HOST)
    stream.next()
    site.write({"Kind": "service-defaults", "Name": "web", "Protocol": "tcp"})
    site.put("web", instance("10.0.0.2"))
    assert stream.is_quiet()


# Policies


def backends(policy: Any) -> dict[str, int]:
    """The authorities of a policy's backends with their weights, the same for all protocols."""
    detect = policy.protocol.detect
    found = [backends_of(route) for kind in (detect.http1, detect.http2, detect.opaque) for route in kind.routes]
    assert len(found) == 3 and found[0] == found[1] == found[2]
    return found[0]


def test_a_virtual_address_is_balanced_over_the_endpoints_of_its_service(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    site.put("web", instance("10.0.0.1", virtual_addresses=("10.96.0.10", "fd00::10")))
    stream = client.watch("10.96.0.10", 80)
    policy = stream.next()
    assert backends(policy) == {f"{HOST}:80": 1}
    assert backends(client.watch("fd00::10", 80).next()) == {f"{HOST}:80": 1}
    assert backends(client.watch(authority=f"{HOST}:80").next()) == {f"{HOST}:80": 1}
    (route,) = policy.protocol.detect.http1.routes
    (rule,) = route.rules
    assert rule.matches[0].path.prefix == "/" and route.HasField("metadata")
    (backend,) = rule.backends.first_available.backends
    assert backend.backend.queue.capacity and backend.backend.queue.failfast_timeout.seconds
    assert backend.backend.balancer.peak_ewma.decay.seconds and policy.metadata.resource.name == "web"
    (path,) = backends(policy)
    assert set(added(client.get(path).next())) == {"10.0.0.1:8080"}
    site.write(HTTP, _splitter(90, 10))
    assert backends(stream.next()) == {f"{V1}:80": 9000, f"{V2}:80": 1000}
    unary = client.unary(OUTBOUND + "Get", traffic("10.96.0.10", 80), outbound_pb2.OutboundPolicy)
    assert backends(unary) == backends(client.watch("10.96.0.10", 80).next())


def test_an_opaque_port_has_an_opaque_policy(site: LinkerdSite, client: LinkerdClient) -> None:
    site.put("db", instance("10.0.0.1", 3306, virtual_addresses=("10.96.0.11",)))
    policy = client.watch("10.96.0.11", 3306).next()
    assert policy.protocol.WhichOneof("kind") == "opaque"
    assert backends_of(policy.protocol.opaque.routes[0]) == {"db.default.svc.cluster.local:3306": 1}


def test_an_unknown_address_is_not_answered_before_the_sources_were_read() -> None:
    """NOT_FOUND is final to a proxy, which would send to the virtual address itself from then on."""
    with closing(LinkerdSite(is_read=False)) as site:
        stream, other = site.client().watch("10.96.0.10", 80), site.client().watch("10.96.0.11", 80)
        assert stream.is_quiet() and other.is_quiet()
        site.put("web", instance("10.0.0.1", virtual_addresses=("10.96.0.10",)))
        assert backends(stream.next()) == {f"{HOST}:80": 1}
        refuses(other, grpc.StatusCode.NOT_FOUND)


def test_sources_that_are_never_read_do_not_hold_up_connections_for_ever() -> None:
    with closing(LinkerdSite(DestinationSettings(start_s=0.5), is_read=False)) as site:
        stream = site.client().watch("10.9.9.9", 80)
        assert stream.is_quiet(0.2)
        refuses(stream, grpc.StatusCode.NOT_FOUND)


def test_a_proxy_with_a_policy_keeps_it_while_the_address_has_no_service(
    site: LinkerdSite, client: LinkerdClient
) -> None:
    held = instance("10.0.0.1", virtual_addresses=("10.96.0.10",))
    site.put("web", held)
    stream = client.watch("10.96.0.10", 80)
    stream.next()
    site.put("web", instance("10.0.0.1"))
    assert stream.is_quiet()
    refuses(client.watch("10.96.0.10", 80), grpc.StatusCode.NOT_FOUND)
    site.put("web", held)
    assert stream.is_quiet()
    site.write(HTTP, _splitter(90, 10))
    assert backends(stream.next()) == {f"{V1}:80": 9000, f"{V2}:80": 1000}


def test_a_policy_without_a_target_is_refused(client: LinkerdClient) -> None:
    refuses(client.watch(authority="web:0"), grpc.StatusCode.INVALID_ARGUMENT)
    refuses(client.watch("10.0.0.1", 0), grpc.StatusCode.INVALID_ARGUMENT)
    with pytest.raises(grpc.RpcError) as refused:
        client.unary(OUTBOUND + "Get", outbound_pb2.TrafficSpec(), outbound_pb2.OutboundPolicy)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("policy", "permits"),
    [("all-unauthenticated", "unauthenticated"), ("all-authenticated", "meshTLS"), ("deny", None)],
)
def test_a_proxy_gets_its_inbound_policy(policy: Any, permits: str | None) -> None:
    with closing(LinkerdSite(DestinationSettings(inbound_policy=policy))) as site:
        client = site.client()
        stream = client.watch_port(8080)
        server = stream.next()
        (route,) = server.protocol.detect.http_routes
        assert route.rules[0].matches[0].path.prefix == "/"
        assert [one.authentication.WhichOneof("permit") for one in server.authorizations] == (
            [permits] if permits else []
        )
        assert all(len(one.networks) == 2 for one in server.authorizations)
        assert server.labels["name"] == policy
        assert stream.is_quiet()
        request = inbound_pb2.PortSpec(workload="ns:pod", port=3306)
        assert client.unary(INBOUND + "GetPort", request, inbound_pb2.Server).protocol.WhichOneof("kind") == "opaque"
        refuses(client.watch_port(0), grpc.StatusCode.INVALID_ARGUMENT)
