"""What chains are lowered to, in real Envoys and gRPC clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Connect
from tests.mesh.core.chain.cases import CASES as CHAIN_CASES
from tests.mesh.core.lower.lowering_cases import ALL_GRPC, ALL_HTTP, CASES, VERSIONS
from tests.mesh.core.lower.test_lowering import upstream_of
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant, grpc_bootstrap
from tests.support.chains import entries_of
from tests.support.envoy import DRAIN_BY_DEFAULT, EnvoyProcess, get, wait_body
from tests.support.grpc_client import GrpcBackend, GrpcClient
from tests.support.hostile_entries import hostile_entries
from tests.support.load import HttpLoad
from tests.support.lowering import Json, catalog_of, chain_of, lowered, served
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, free_port
from tests.support.random_mesh import RandomMesh
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream
from xds.mesh.core.chain.request_walk import HttpRequest, walk
from xds.mesh.core.lower.upstreams import FAILOVERS, read_upstreams
from xds.model.resource_type import LISTENER

# One setting in `make test`, both in soak.
one_failover = pytest.mark.parametrize(
    "failover", [FAILOVERS[0], *(pytest.param(each, marks=pytest.mark.soak) for each in FAILOVERS[1:])]
)
UNREACHABLE = ("22_", "23_")  # chains that lead to a peer and nowhere else
MESHES = 25
SAMPLE = 3_000
CA_FILE = "/etc/ssl/certs/ca-certificates.crt"  # of the fixture


# All that the tests of lowering make


def apart(label: str, resources: list[Json], changes: dict[str, str]) -> list[Json]:
    """The resources under names of their own, in all references, too; listeners with free ports."""
    names = [one["cluster_name"] if "cluster_name" in one else one["name"] for one in resources]
    renamed = {name: f"{label}/{name}" for name in names} | changes
    found = [_renamed(one, renamed) for one in resources]
    for one in found:
        if one["@type"] == LISTENER and "address" in one:
            one["address"]["socket_address"]["port_value"] = 0
    return found


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _renamed(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [_renamed(one, names) for one in value]
    return names.get(value, value) if isinstance(value, str) else value


def batch(ca_file: Path) -> Iterator[Json]:
    """All fixtures, all chains that compile, random meshes, and entries with hostile texts."""
    changes = {CA_FILE: str(ca_file)}
    for case in CASES:
        found = lowered(case.document, case.entries)
        yield from apart(case.name, served(found, catalog_of(case.instances)), changes)
    for chain in CHAIN_CASES:
        if not chain.name.startswith(UNREACHABLE):
            found = lowered({"upstreams": [upstream_of(chain)]}, chain.entries)
            yield from apart(f"chain-{chain.name}", served(found, {}), changes)
    for field, entries in hostile_entries():
        found = lowered({"upstreams": [{"service": "web", "bind_port": 1}]}, entries)
        yield from apart(f"hostile-{field}", served(found, {}), changes)
    for seed in range(MESHES):
        mesh = RandomMesh.of(seed)
        found = lowered(mesh.document.document(), mesh.entries)
        yield from apart(f"random-{seed}", served(found, mesh.catalog), changes)


def test_envoy_takes_all_that_is_lowered(server: ServerProcess, connect: Connect, tmp_path: Path) -> None:
    resources = list(batch(CertificateAuthority(tmp_path).path))
    server.push(server.group, resources)
    envoy = connect(Variant.ADS_DELTA).wait_live()
    server.wait_synced(server.group, server.node)
    assert server.nacks(node=server.node) == []
    listeners = {one["name"] for one in resources if one["@type"] == LISTENER and "address" in one}
    assert set(envoy.listener_ports()) == listeners
    clusters = {one["name"] for one in resources if one["@type"].endswith(".Cluster")}
    assert envoy.cluster_names() >= clusters
    assert envoy.fetch_timeouts() == {}


# Requests


class EchoUpstream(Upstream):
    """Its answers have the request's path and its header ``x-leg`` in ``x-seen``."""

    def answer(self, path: bytes, head: bytes) -> Any:
        answer, delay_s = super().answer(path, head)
        legs = [line for line in head.decode().split("\r\n") if line.startswith("x-leg:")]
        return replace(answer, head=f"x-path: {path.decode()}\r\nx-seen: {';'.join(legs)}\r\n"), delay_s


@dataclass
class MeshSite:
    """A server with one group, whose resources come of config entries and instances."""

    server: ServerProcess
    directory: Path
    running: ExitStack
    port: int

    def push(self, entries: str, instances: dict[str, list[str]], **settings: object) -> None:
        """The one upstream is web; its port is 0 for gRPC clients without a proxy."""
        document = {"upstreams": [{"service": "web", "bind_port": self.port}], **settings}
        self.server.push(self.server.group, served(lowered(document, entries), catalog_of(instances)))

    def envoy(self, variant: Variant = Variant.ADS_DELTA) -> EnvoyProcess:
        """An Envoy that listens for web, and drains as Envoy does by default."""
        node, group = self.server.node, self.server.group
        bootstrap = EnvoyBootstrap(self.server.grpc_port, variant, node_id=node, node_cluster=group)
        found = self.running.enter_context(EnvoyProcess(self.directory, bootstrap, drain=DRAIN_BY_DEFAULT))
        found.wait_listener(f"web:{LOOPBACK}:{self.port}")
        return found


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """The server that modules like this one share."""
    shared_server.begin_anew()
    return shared_server


@pytest.fixture
def site(server: ServerProcess, tmp_path: Path, running: ExitStack) -> MeshSite:
    return MeshSite(server, tmp_path, running, free_port())


@pytest.fixture
def echo(background: Background, running: ExitStack) -> Callable[[str], EchoUpstream]:
    def start(name: str) -> EchoUpstream:
        started = EchoUpstream(background, name)
        running.callback(started.close)
        return started

    return start


ROUTES = (
    ALL_HTTP
    + """
- Kind: service-router
  Name: web
  Routes:
  - {Match: {HTTP: {PathExact: /exact}}, Destination: {Service: a, PrefixRewrite: /x}}
  - {Match: {HTTP: {PathPrefix: /PRE, CaseInsensitive: true}}, Destination: {Service: b, PrefixRewrite: /}}
  - {Match: {HTTP: {PathPrefix: /api.v1}}, Destination: {Service: a, PrefixRewrite: /}}
  - {Match: {HTTP: {PathPrefix: /folder/}}, Destination: {Service: a, PrefixRewrite: /}}
  - {Match: {HTTP: {PathPrefix: /old}}, Destination: {Service: a, PrefixRewrite: /new}}
  - {Match: {HTTP: {PathRegex: "/n/[0-9]+"}}, Destination: {Service: b}}
  - {Match: {HTTP: {Header: [{Name: x-h, Prefix: a}, {Name: X-No, Present: true, Invert: true}]}},
     Destination: {Service: a}}
  - {Match: {HTTP: {Header: [{Name: x-not, Exact: a, Invert: true}]}}, Destination: {Service: b}}
  - {Match: {HTTP: {Methods: [get], QueryParam: [{Name: q, Regex: "a+"}]}}, Destination: {Service: b}}
  - {Match: {HTTP: {QueryParam: [{Name: e, Present: true}]}}, Destination: {Service: a}}
"""
)
REQUESTS: list[tuple[str, dict[str, str]]] = [
    ("/", {}),
    ("/exact", {}),
    ("/exact/", {}),
    ("/exactly", {}),
    ("/pre", {}),
    ("/Pre/users", {}),
    ("/prefix", {}),
    ("/api.v1", {}),
    ("/api.v1/users/1", {}),
    ("/api.v1users", {}),
    ("/apixv1/users", {}),
    ("/folder/", {}),
    ("/folder/a/b", {}),
    ("/folder", {}),
    ("/old/1", {}),
    ("/older", {}),
    ("/n/12", {}),
    ("/n/12x", {}),
    ("/h", {"x-h": "abc"}),
    ("/h", {"x-h": "bc"}),
    ("/h", {"x-h": "abc", "x-no": "1"}),
    ("/h", {"x-not": "a"}),
    ("/h", {"x-not": "b"}),
    ("/?q=aa", {}),
    ("/?q=ab", {}),
    ("/?e", {}),
    ("/?e=1&q=b", {}),
]


def test_envoy_sends_requests_where_the_walk_through_the_chain_says(
    site: MeshSite, echo: Callable[[str], EchoUpstream]
) -> None:
    instances = {name: [f"{LOOPBACK}:{echo(name).port}"] for name in ("web", "a", "b")}
    site.push(ROUTES, instances)
    site.envoy()
    (upstream,) = read_upstreams({"upstreams": [{"service": "web"}]}).upstreams
    chain = chain_of(upstream, entries_of(ROUTES)).chain
    wait_body(site.port, "web")
    for target, headers in REQUESTS:
        way = walk(chain, HttpRequest.of(target, headers=headers.items()))
        (end,) = way.ways
        answer = get(site.port, path=target, **headers)
        query = f"?{target.partition('?')[2]}" if "?" in target else ""
        found = (answer.text, answer.headers["x-path"])
        assert found == (end.resolver.target.partition(".")[0], way.path + query), (target, headers)


GONE = "gone"
FAILOVER = """
- Kind: service-resolver
  Name: web
  Failover: {"*": {Targets: [{Datacenter: dc2}, {Service: backup}]}}
"""


@one_failover
def test_envoy_fails_over_in_order_and_back(site: MeshSite, upstream: Callable[[str], Upstream], failover: str) -> None:
    ports = {name: upstream(name).port for name in ("near", "far", "backup")}

    def push(near: str, far: str) -> None:
        web = [f"{LOOPBACK}:{ports['far']} dc2 {far}"]
        web += [f"{LOOPBACK}:{ports['near']} {near}"] if near != GONE else []
        site.push(ALL_HTTP + FAILOVER, {"web": web, "backup": [f"{LOOPBACK}:{ports['backup']}"]}, failover=failover)

    push("passing", "passing")
    envoy = site.envoy()
    for near, far, expected in (
        ("passing", "passing", "near"),
        ("critical", "passing", "far"),
        ("critical", "critical", "backup"),
        ("passing", "critical", "near"),
        (GONE, "passing", "far"),
        ("warning", "passing", "near"),
    ):
        push(near, far)
        wait_body(site.port, expected)
    assert envoy.fetch_timeouts() == {}


@one_failover
def test_envoy_fails_over_only_when_no_instance_is_healthy(
    site: MeshSite, upstream: Callable[[str], Upstream], failover: str
) -> None:
    """Envoy's own factor of 1.4 would send nine of ten requests to the other datacenter here."""
    near = [f"{LOOPBACK}:{upstream('near').port}", *(f"{LOOPBACK}:{free_port()} critical" for _ in range(14))]
    site.push(ALL_HTTP + FAILOVER, {"web": [*near, f"{LOOPBACK}:{upstream('far').port} dc2"]}, failover=failover)
    site.envoy()
    wait_body(site.port, "near")
    assert {get(site.port).text for _ in range(100)} == {"near"}


def test_the_changes_of_headers_of_a_leg_reach_the_instance(
    site: MeshSite, echo: Callable[[str], EchoUpstream]
) -> None:
    entries = (
        ALL_HTTP
        + """
- Kind: service-splitter
  Name: web
  Splits: [{Weight: 100, RequestHeaders: {Set: {x-leg: "one 50%%"}}, ResponseHeaders: {Remove: [x-path]}}]
"""
    )
    site.push(entries, {"web": [f"{LOOPBACK}:{echo('web').port}"]})
    site.envoy()
    wait_body(site.port, "web")
    answer = get(site.port, x_leg="client")
    assert answer.headers["x-seen"] == "x-leg: one 50%"
    assert "x-path" not in answer.headers


def test_a_split_of_subsets_has_its_shares_within_sampling_error(
    site: MeshSite, upstream: Callable[[str], Upstream], background: Background
) -> None:
    entries = (
        ALL_HTTP
        + VERSIONS
        + "- {Kind: service-splitter, Name: web, "
        + "Splits: [{Weight: 90, ServiceSubset: v1}, {Weight: 10, ServiceSubset: v2}]}\n"
    )
    instances = [f"{LOOPBACK}:{upstream(name).port} {name}" for name in ("v1", "v2", "v3")]
    site.push(entries, {"web": instances})
    site.envoy()
    with HttpLoad(background, site.port, rps=0.0) as load:
        load.wait_total(SAMPLE)
    report = load.report
    assert report.failed == 0, report
    assert set(report.bodies) == {"v1", "v2"}
    deviation = (0.9 * 0.1 / report.total) ** 0.5
    assert abs(report.bodies["v2"] / report.total - 0.1) < 4 * deviation


def test_equal_hash_policies_go_to_one_instance(site: MeshSite, upstream: Callable[[str], Upstream]) -> None:
    policies = "[{Field: header, FieldValue: x-user}]"
    entries = (
        ALL_HTTP
        + "- {Kind: service-resolver, Name: web, LoadBalancer: "
        + f"{{Policy: ring_hash, RingHashConfig: {{MaximumRingSize: 512}}, HashPolicies: {policies}}}}}\n"
    )
    site.push(entries, {"web": [f"{LOOPBACK}:{upstream(name).port}" for name in "abc"]})
    site.envoy()
    by_user = {user: {get(site.port, x_user=user).text for _ in range(10)} for user in map(str, range(20))}
    assert all(len(bodies) == 1 for bodies in by_user.values()), by_user
    assert {body for bodies in by_user.values() for body in bodies} == set("abc")


def test_the_cookie_that_envoy_sets_leads_to_one_instance(site: MeshSite, upstream: Callable[[str], Upstream]) -> None:
    policies = "[{Field: cookie, FieldValue: c, CookieConfig: {TTL: 90s, Path: /}}]"
    entries = (
        ALL_HTTP
        + "- {Kind: service-resolver, Name: web, LoadBalancer: "
        + f"{{Policy: ring_hash, RingHashConfig: {{MaximumRingSize: 512}}, HashPolicies: {policies}}}}}\n"
    )
    site.push(entries, {"web": [f"{LOOPBACK}:{upstream(name).port}" for name in "abc"]})
    site.envoy()
    wait_body(site.port, "a")
    seen = set()
    for _ in range(20):
        first = get(site.port)
        cookie = first.headers["set-cookie"].split(";")[0]
        assert {get(site.port, cookie=cookie).text for _ in range(10)} == {first.text}
        seen.add(first.text)
    assert seen == set("abc")


def test_a_failed_request_is_retried_at_another_instance(site: MeshSite, upstream: Callable[[str], Upstream]) -> None:
    entries = ALL_HTTP + (
        "- {Kind: service-router, Name: web, Routes: [{Destination: {RetryOnStatusCodes: [503], NumRetries: 8}}]}\n"
    )
    good, bad = upstream("good"), upstream("bad")
    bad.status = 503
    site.push(entries, {"web": [f"{LOOPBACK}:{one.port}" for one in (good, bad)]})
    site.envoy()
    assert {get(site.port).text for _ in range(20)} == {"good"}
    assert bad.requests > 0


def test_a_tcp_chain_is_proxied_without_reading_requests(site: MeshSite, upstream: Callable[[str], Upstream]) -> None:
    entries = "- {Kind: service-resolver, Name: web, Redirect: {Service: db}}"
    site.push(entries, {"db": [f"{LOOPBACK}:{upstream('db').port}"]})
    envoy = site.envoy()
    wait_body(site.port, "db")
    assert "server" not in get(site.port).headers, "an HTTP proxy adds it"
    assert envoy.stat("tcp.upstream.web.default.default.dc1.downstream_cx_total") >= 1


SHAPES: list[tuple[str, Json]] = [
    (ALL_HTTP, {}),
    (
        ALL_HTTP + "- {Kind: service-splitter, Name: web, Splits: [{Weight: 50}, {Weight: 50, Service: backup}]}\n",
        {},
    ),
    (ALL_HTTP + FAILOVER, {}),
    (ALL_HTTP + FAILOVER, {"failover": "priority"}),
    (
        ALL_HTTP + "- {Kind: service-resolver, Name: web, ConnectTimeout: 2s, LoadBalancer: {Policy: ring_hash}}\n",
        {"locality_aware": True},
    ),
    (ALL_HTTP + "- {Kind: service-router, Name: web, Routes: [{Destination: {Service: backup}}]}\n" + FAILOVER, {}),
    (ALL_HTTP + "- {Kind: service-resolver, Name: web, Redirect: {Service: backup}}\n", {}),
]
REQUESTS_BETWEEN = 200


@pytest.mark.parametrize("variant", [Variant.ADS_DELTA, pytest.param(Variant.ADS_SOTW, marks=pytest.mark.soak)])
def test_a_chain_changes_its_shape_without_a_lost_request(
    site: MeshSite, upstream: Callable[[str], Upstream], background: Background, variant: Variant
) -> None:
    """One cluster becomes an aggregate, one with priorities, and back; a route in the listener becomes one of RDS."""
    web, backup = ([f"{LOOPBACK}:{upstream(name).port}"] for name in ("web", "backup"))
    instances = {"web": web, "backup": backup}
    site.push(ALL_HTTP, instances)
    envoy = site.envoy(variant)
    with HttpLoad(background, site.port) as load:
        for entries, settings in (*SHAPES, *reversed(SHAPES)):
            site.push(entries, instances, **settings)
            site.server.wait_synced(site.server.group, site.server.node)
            load.wait_total(REQUESTS_BETWEEN)
    assert load.report.failed == 0, load.report
    assert site.server.nacks(node=site.server.node) == []
    assert envoy.fetch_timeouts() == {}


# gRPC


@pytest.fixture
def backends(running: ExitStack) -> dict[str, GrpcBackend]:
    return {name: running.enter_context(GrpcBackend(name)) for name in ("a", "b")}


def grpc_instances(backends: dict[str, GrpcBackend], health: str = "passing") -> dict[str, list[str]]:
    """The instances of web and of backup."""
    return {"web": [f"{LOOPBACK}:{backends['a'].port} {health}"], "backup": [f"{LOOPBACK}:{backends['b'].port}"]}


GRPC_FAILOVER = ALL_GRPC + '- {Kind: service-resolver, Name: web, Failover: {"*": {Service: backup}}}\n'
GRPC_ROUTES = (
    ALL_GRPC
    + """
- Kind: service-router
  Name: web
  Routes: [{Match: {HTTP: {PathExact: /test.Name/Get}}, Destination: {Service: backup, RequestTimeout: 3s}}]
- {Kind: service-resolver, Name: backup, ConnectTimeout: 1s, LoadBalancer: {Policy: round_robin}}
"""
)


@one_failover
def test_grpc_through_envoy_with_failover(
    site: MeshSite, backends: dict[str, GrpcBackend], tmp_path: Path, failover: str
) -> None:
    """HTTP/2 to the instances, also of an aggregate cluster."""
    site.push(GRPC_FAILOVER, grpc_instances(backends), failover=failover)
    site.envoy()
    client = site.running.enter_context(GrpcClient(tmp_path))
    client.wait_body(f"{LOOPBACK}:{site.port}", "a")
    site.push(GRPC_FAILOVER, grpc_instances(backends, "critical"), failover=failover)
    client.wait_body(f"{LOOPBACK}:{site.port}", "b")


@one_failover
def test_grpc_clients_without_a_proxy(
    site: MeshSite, backends: dict[str, GrpcBackend], tmp_path: Path, failover: str
) -> None:
    """A default chain, routes, failover and back."""
    site.port = 0
    site.push(ALL_GRPC, grpc_instances(backends), failover=failover)
    names = {"node_id": site.server.node, "node_cluster": site.server.group}
    bootstrap = grpc_bootstrap(site.server.grpc_port, **names)
    client = site.running.enter_context(GrpcClient(tmp_path, bootstrap))
    client.wait_body("xds:///web", "a")
    site.push(GRPC_ROUTES, grpc_instances(backends), failover=failover)
    client.wait_body("xds:///web", "b")
    site.push(GRPC_FAILOVER, grpc_instances(backends), failover=failover)
    client.wait_body("xds:///web", "a")
    site.push(GRPC_FAILOVER, grpc_instances(backends, "critical"), failover=failover)
    client.wait_body("xds:///web", "b")
    site.push(GRPC_FAILOVER, grpc_instances(backends), failover=failover)
    client.wait_body("xds:///web", "a")
    assert site.server.nacks(node=site.server.node) == []


# What entries may say, where gRPC clients without a proxy are sent it as well.
LEAST_REQUEST = """
- Kind: service-resolver
  Name: web
  LoadBalancer: {Policy: least_request, LeastRequestConfig: {ChoiceCount: 3}}
"""
ALL_THAT_GRPC_TAKES = """
- Kind: service-resolver
  Name: web
  LoadBalancer:
    Policy: ring_hash
    RingHashConfig: {MinimumRingSize: 16, MaximumRingSize: 64}
    HashPolicies:
    - {Field: header, FieldValue: x-user, Terminal: true}
    - {Field: cookie, FieldValue: c, CookieConfig: {TTL: 9s}}
    - {Field: query_parameter, FieldValue: q}
    - {SourceIP: true}
- Kind: service-splitter
  Name: web
  Splits:
  - {Weight: 100, RequestHeaders: {Set: {x-a: "%PROTOCOL%"}}, ResponseHeaders: {Remove: [x-b]}}
  - {Weight: 0, Service: backup}
- Kind: service-router
  Name: web
  Routes:
  - {Match: {HTTP: {PathExact: /none}}, Destination: {Service: backup, PrefixRewrite: /x, IdleTimeout: 9s}}
  - {Match: {HTTP: {PathPrefix: /none/, CaseInsensitive: true}}, Destination: {Service: backup, PrefixRewrite: /}}
  - {Match: {HTTP: {PathPrefix: /none}}, Destination: {Service: backup, PrefixRewrite: /}}
  - {Match: {HTTP: {PathRegex: "/none/[^/]+"}}, Destination: {Service: backup, RequestTimeout: -1s}}
  - {Match: {HTTP: {Methods: [GET, PUT], Header: [{Name: x-none, Suffix: a}, {Name: y, Present: true, Invert: true}]}},
     Destination: {Service: backup}}
  - Destination:
      {NumRetries: 9, RetryOn: [5xx, reset, cancelled, unavailable], RetryOnStatusCodes: [401, 503],
       RetryOnConnectFailure: true}
"""


@pytest.mark.parametrize("entries", [LEAST_REQUEST, ALL_THAT_GRPC_TAKES], ids=["least-request", "all-else"])
def test_grpc_clients_accept_resources_lowered_for_them(
    site: MeshSite, backends: dict[str, GrpcBackend], tmp_path: Path, entries: str
) -> None:
    site.port = 0
    site.push(ALL_GRPC + entries, grpc_instances(backends), locality_aware=True)
    names = {"node_id": site.server.node, "node_cluster": site.server.group}
    client = site.running.enter_context(GrpcClient(tmp_path, grpc_bootstrap(site.server.grpc_port, **names)))
    client.wait_body("xds:///web", "a")
    site.server.wait_synced(site.server.group, site.server.node)
    assert site.server.nacks(node=site.server.node) == []
