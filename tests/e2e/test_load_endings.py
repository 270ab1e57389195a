"""What real Envoys count of hedged requests, TCP connections, resets and long streams."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx

from tests.e2e.test_grpc_clients import GROUP
from tests.e2e.test_load_counts import NODE, NUMBER, StartUpstream, envoy, server, statuses
from tests.e2e.test_load_reports import REPORTED_S, load, wait_counts, wait_more, wait_reporting, zoned
from tests.support import resources as r
from tests.support.background import Background
from tests.support.envoy import EnvoyProcess, get
from tests.support.http2_upstream import ResettingUpstream
from tests.support.process import wait_until
from tests.support.server import ServerProcess

__all__ = ["envoy", "server"]  # fixtures

HEDGE_AFTER_S, SLOW_S, LONG_S = 0.1, 0.4, 3.0
AT_ONCE = 10
HEDGED: r.Json = {
    "hedge_policy": {"hedge_on_per_try_timeout": True},
    "retry_policy": {"retry_on": "5xx", "num_retries": 1, "per_try_timeout": f"{HEDGE_AFTER_S}s"},
}
HTTP2: r.Json = {
    "typed_extension_protocol_options": {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
}


def push(server: ServerProcess, envoy: EnvoyProcess, *resources: r.Json, clusters: tuple[str, ...]) -> int:
    """Push, and wait until the clusters are reported from the start; the port of listener ``web``."""
    server.push(GROUP, resources)
    port = envoy.wait_listener("web")
    for name in clusters:
        wait_reporting(server, name, [NODE], more=0)
    wait_more(server, [NODE])
    return port


def test_resets_count_as_errors_and_a_cut_body_as_success(
    server: ServerProcess, envoy: EnvoyProcess, upstream: StartUpstream, background: Background, running: ExitStack
) -> None:
    """An answer whose head was read is a success for Envoy, whatever becomes of its body."""
    reset, cut, rst = upstream("reset"), upstream("cut"), ResettingUpstream(background)
    running.callback(rst.close)
    reset.ending, cut.ending = "reset", "cut"
    made = [
        *zoned("reset", {"z1": [reset.port]})[:2],
        *zoned("cut", {"z1": [cut.port]})[:2],
        *zoned("rst", {"z1": [rst.port]}, **HTTP2)[:2],
        r.listener("web", r.rds("web")),
        r.route_config("web", *(r.route(name, f"/{name}") for name in ("reset", "cut", "rst"))),
    ]
    port = push(server, envoy, *made, clusters=("reset", "cut", "rst"))
    assert statuses(port, "/reset") == {503}
    assert statuses(port, "/rst") == {503}
    with ThreadPoolExecutor(NUMBER) as pool:  # Envoy takes a second to close each of these connections
        broken = [pool.submit(get, port, path="/cut") for _ in range(NUMBER)]
    assert {type(each.exception()) for each in broken} == {httpx.RemoteProtocolError}
    wait_counts(server, "reset", issued=NUMBER, successes=0, errors=NUMBER, dropped=0)
    wait_counts(server, "rst", issued=NUMBER, successes=0, errors=NUMBER, dropped=0)
    wait_counts(server, "cut", issued=NUMBER, successes=NUMBER, errors=0, dropped=0)
    assert (reset.requests, rst.requests, cut.requests) == (NUMBER, NUMBER, NUMBER)


def test_hedged_requests_are_issued_one_by_one_and_the_losers_end_nowhere(
    server: ServerProcess, envoy: EnvoyProcess, upstream: StartUpstream
) -> None:
    web = upstream("web")
    resources = zoned("web", {"z1": [web.port]}, circuit_breakers={"thresholds": [{"max_retries": 1000}]})
    resources[-1] = r.route_config("web", r.route("web", **HEDGED))
    port = push(server, envoy, *resources, clusters=("web",))
    web.delay_s = SLOW_S
    with ThreadPoolExecutor(AT_ONCE) as pool:
        assert {*pool.map(lambda _: get(port).status_code, range(NUMBER))} == {200}
    assert web.requests > NUMBER, "a second try begins while the first one waits"
    wait_counts(server, "web", issued=web.requests, successes=NUMBER, errors=0, dropped=0)


def test_connections_of_a_tcp_proxy_count_as_requests(
    server: ServerProcess, envoy: EnvoyProcess, upstream: StartUpstream
) -> None:
    """They are issued and never end in the figures: neither a success nor an error."""
    web = upstream("web")
    made = [*zoned("web", {"z1": [web.port]})[:2], r.chained_listener("web", [r.tcp_chain("tcp", "web")])]
    port = push(server, envoy, *made, clusters=("web",))
    before = load(server, "web")["issued"]  # probes of the listener
    assert statuses(port, "/") == {200}
    wait_counts(server, "web", issued=before + NUMBER, successes=0, errors=0, dropped=0)
    wait_until(lambda: load(server, "web")["in_progress"] == 0, "no connection is open", REPORTED_S)


def test_a_long_stream_is_in_progress_until_it_ends(
    server: ServerProcess, envoy: EnvoyProcess, upstream: StartUpstream
) -> None:
    web = upstream("web")
    port = push(server, envoy, *zoned("web", {"z1": [web.port]}), clusters=("web",))
    web.delay_s = LONG_S

    def counts() -> dict[str, float]:
        found = load(server, "web")
        return {name: found[name] for name in ("issued", "in_progress", "successes")}

    with ThreadPoolExecutor(AT_ONCE) as pool:
        streams = [pool.submit(get, port) for _ in range(AT_ONCE)]
        under_way = {"issued": AT_ONCE, "in_progress": AT_ONCE, "successes": 0}
        wait_until(lambda: counts() == under_way, f"{under_way}", REPORTED_S, detail=counts)
        assert {stream.result().status_code for stream in streams} == {200}
    over = {"issued": AT_ONCE, "in_progress": 0, "successes": AT_ONCE}
    wait_until(lambda: counts() == over, f"{over}", REPORTED_S, detail=counts)
