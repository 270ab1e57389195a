"""One service, seen by a real Envoy and by Linkerd's clients: the same endpoints and the same weights, at any time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.background import Background
from tests.support.linkerd_client import LinkerdClient, LinkerdStream, ProxyOf2018, ProxyOfToday
from tests.support.process import wait_until
from tests.support.resources import cluster_load_assignment, eds_cluster, listener, rds, route_config
from tests.support.server import GROUP
from tests.support.service_site import ServiceSite, hosts

SERVICE, TOKEN = "web.default.svc.cluster.local", json.dumps({"ns": GROUP})
KILLED_EVERY = 20
PORTS = range(21_001, 21_009)


class RegisteredService:
    """The instances of the service ``web``, registered over HTTP."""

    def __init__(self, site: ServiceSite) -> None:
        self._site = site
        self.passing: set[int] = set()
        self.registered: set[int] = set()

    def register(self, port: int, *, passes: bool) -> None:
        """Register an instance, or tell its health anew."""
        body = {"Name": "web", "ID": str(port), "Address": "127.0.0.1", "Port": port, "Check": {"TTL": "600s"}}
        if port not in self.registered:
            assert self._site.server.request("PUT", "/v1/agent/service/register", json=body).is_success
        status = "pass" if passes else "fail"
        assert self._site.server.request("PUT", f"/v1/agent/check/{status}/service:{port}").is_success
        self.registered.add(port)
        (self.passing.add if passes else self.passing.discard)(port)

    def deregister(self, port: int) -> None:
        """It goes."""
        assert self._site.server.request("PUT", f"/v1/agent/service/deregister/{port}").is_success
        self.registered.discard(port)
        self.passing.discard(port)


class Follower:
    """A Linkerd proxy that reads until it holds what is expected."""

    def __init__(self, ask: Callable[[LinkerdClient], LinkerdStream], proxy: ProxyOfToday | ProxyOf2018) -> None:
        self._ask = ask
        self.proxy = proxy

    def connect(self, client: LinkerdClient) -> None:
        """Ask, on a new connection."""
        self._stream = self._ask(client)
        self.proxy.reconnect()

    def follow(self, ports: set[int]) -> None:
        """Fold messages until the endpoints are those at these ports."""
        expected = {f"127.0.0.1:{port}" for port in ports}
        while set(self.proxy.endpoints) != expected:
            self.proxy.take(self._stream.next())


@pytest.fixture
def site(tmp_path: Path, background: Background, running: ExitStack) -> ServiceSite:
    return ServiceSite(tmp_path, background, running, {})


@pytest.fixture
def client(site: ServiceSite) -> Iterator[LinkerdClient]:
    made = LinkerdClient(site.server.grpc_port)
    yield made
    made.close()


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize(
    ("seed", "steps"), [(20, 25), *(pytest.param(seed, 300, marks=pytest.mark.soak) for seed in (21, 22))]
)
def test_envoy_and_linkerd_have_the_same_endpoints_after_every_change(site: ServiceSite, seed: int, steps: int) -> None:
    """By the catalog (``Get`` of the service) and by the assignment that follows it (``Get`` of the cluster)."""
    dice = random.Random(seed)
    service = RegisteredService(site)
    service.register(PORTS[0], passes=True)
    envoy = site.envoy()
    envoy.wait_listener("web")
    followers = [
        Follower(lambda client: client.get(SERVICE), ProxyOfToday()),
        Follower(lambda client: client.get_2018(SERVICE), ProxyOf2018()),
        Follower(lambda client: client.get("web-cluster", TOKEN), ProxyOfToday()),
    ]
    _connect(site, followers)
    for step in range(1, steps + 1):
        port = dice.choice(PORTS)
        if port in service.registered and dice.random() < 0.4 and len(service.registered) > 1:
            service.deregister(port)
        else:
            service.register(port, passes=dice.random() < 0.7)
        expected = set(service.passing)
        for follower in followers:
            follower.follow(expected)
        wait_until(partial(_has, envoy, expected), f"{expected} in Envoy")
        if step % KILLED_EVERY == 0:  # what is registered, and its health, are on disk
            site.server.kill()
            site.server.start()
            _connect(site, followers)
    assert not any(each.proxy.violations for each in followers if isinstance(each.proxy, ProxyOfToday))


def _connect(site: ServiceSite, followers: list[Follower]) -> None:
    client = LinkerdClient(site.server.grpc_port)
    site.running.callback(client.close)
    for follower in followers:
        follower.connect(client)


def _has(envoy: Any, ports: set[int]) -> bool:
    return _usable(envoy) == ports


def _usable(envoy: Any) -> set[int]:
    """The ports that Envoy sends requests to: not draining, and not unhealthy by EDS."""
    return {port for port, host in hosts(envoy).items() if _health(host) in ("HEALTHY", "UNKNOWN", "")}


def _health(host: dict[str, Any]) -> str:
    return str(host.get("health_status", {}).get("eds_health_status", ""))


def test_weighted_clusters_of_envoy_are_overrides_with_the_endpoints_of_each(
    site: ServiceSite, client: LinkerdClient
) -> None:
    envoy = site.envoy()
    legs = [("v1", 90, 81), ("v2", 10, 82)]
    clusters = [part for name, _, port in legs for part in (eds_cluster(name), cluster_load_assignment(name, port))]
    weighted = {"clusters": [{"name": name, "weight": weight} for name, weight, _ in legs]}
    split = {"match": {"prefix": "/"}, "route": {"weighted_clusters": weighted}}
    pushed = [*clusters, listener("web", rds("web")), route_config("web", split)]
    site.server.push(GROUP, [eds_cluster("web-cluster"), *pushed])
    site.server.wait_synced(GROUP, "envoy-1")
    profile = client.profile("web.default.svc.cluster.local:80", TOKEN).next()
    told = {one.authority.partition(":")[0]: one.weight for one in profile.dst_overrides}
    assert told == {name: weight for name, weight, _ in legs}
    held = envoy.clusters()
    for override in profile.dst_overrides:
        name = override.authority.partition(":")[0]
        proxy = ProxyOfToday()
        proxy.take(client.get(override.authority, TOKEN).next())
        in_envoy = {
            f"127.0.0.1:{one['address']['socket_address']['port_value']}" for one in held[name]["host_statuses"]
        }
        assert set(proxy.endpoints) == in_envoy
