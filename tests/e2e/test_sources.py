"""A real Envoy gets endpoints from files and DNS, under load, while they change, fail, and the server is killed."""

from __future__ import annotations

import json
import random
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.background import Background
from tests.support.bootstrap import grpc_bootstrap
from tests.support.dns_server import DnsServer
from tests.support.envoy import EnvoyProcess
from tests.support.grpc_client import GrpcBackend, GrpcClient
from tests.support.load import HttpLoad
from tests.support.process import LOOPBACK, wait_until
from tests.support.resources import api_listener, eds_cluster, rds, route, route_config
from tests.support.server import GROUP, NODE
from tests.support.service_site import CLUSTER, SERVICE, ServiceSite, hosts, serving, wait_serving

NAME = "_web._tcp.example.org"
TARGET = "xds:///svc"
STEPS = [6, pytest.param(150, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])]
REQUESTS_BETWEEN = 100

Weights = dict[int, int]


@pytest.fixture
def dns(background: Background, running: ExitStack) -> DnsServer:
    server = background.run(DnsServer().start())
    running.callback(lambda: background.run(server.stop()))
    return server


class Targets:
    """Files with the instances of the service, written in one way or another."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.directory = directory
        self._chance = chance
        directory.mkdir()

    def write(self, weights: Weights) -> None:
        """Replace or overwrite the files; an instance is in one of two."""
        parts: list[Weights] = [{}, {}]
        for port, weight in weights.items():
            parts[self._chance.random() < 0.3][port] = weight
        # The file that gains is written first: an instance that moves from one to the other is never in none.
        for name, part in self._chance.sample([("a.json", parts[0]), ("b.yaml", parts[1])], 2):
            self._write(name, {**weights, **part})
        for name, part in (("a.json", parts[0]), ("b.yaml", parts[1])):
            self._write(name, part)

    def write_at_once(self, weights: Weights) -> None:
        """All instances are in one file, so nobody reads a part of the change."""
        self._write("c.json", weights)

    def _write(self, name: str, weights: Weights) -> None:
        instances = [{"address": LOOPBACK, "port": port, "weight": weight} for port, weight in weights.items()]
        text = json.dumps({"services": {SERVICE: instances}})
        path = self.directory / name
        if self._chance.random() < 0.5:
            path.write_text(text)
        else:
            path.with_suffix(".new").write_text(text)
            path.with_suffix(".new").rename(path)


def change(weights: Weights, site: ServiceSite, chance: random.Random) -> Weights:
    """A next set: new weights, some instances gone (at most half at once, which is not held), new ones."""
    gone = chance.sample(sorted(weights), chance.randint(0, len(weights) // 2))
    kept = {port: chance.randint(1, 4) if chance.random() < 0.3 else old for port, old in weights.items()}
    after = {port: weight for port, weight in kept.items() if port not in gone}
    for _ in range(chance.randint(0 if len(after) > 2 else 2, 2 if len(after) < 6 else 0)):
        after[site.upstream().port] = chance.randint(1, 4)
    return after


def walk(
    site: ServiceSite, steps: int, chance: random.Random, apply: Callable[[Weights], None]
) -> tuple[EnvoyProcess, HttpLoad]:
    """Change the set ``steps`` times under load; after each, Envoy has exactly the set of the source."""
    weights = {site.upstream().port: 1 for _ in range(3)}
    apply(weights)
    envoy = site.envoy()
    wait_serving(envoy, weights)
    load = site.load(envoy)
    for _ in range(steps):
        load.wait_total(REQUESTS_BETWEEN)
        before, weights = weights, change(weights, site, chance)
        apply(weights)
        wait_serving(envoy, weights)
        site.retire(envoy, *(before.keys() - weights.keys()))
        assert serving(envoy) == weights
    for port in weights:
        load.wait_body(str(port))
    assert site.revisions() == 1
    return envoy, load


def none_lost(load: HttpLoad) -> None:
    report = load.stop()
    assert report.failed == 0, report
    assert report.total > REQUESTS_BETWEEN


@pytest.mark.parametrize("steps", STEPS)
def test_endpoints_follow_target_files(tmp_path: Path, background: Background, running: ExitStack, steps: int) -> None:
    chance = random.Random(18)
    targets = Targets(tmp_path / "targets", chance)
    sources = {"targets": {"kind": "files", "paths": [str(targets.directory)]}}
    site = ServiceSite(tmp_path, background, running, sources, hold_window_s=0)
    _, load = walk(site, steps, chance, targets.write)
    none_lost(load)


@pytest.mark.parametrize("steps", STEPS)
def test_endpoints_follow_srv_records(
    tmp_path: Path, background: Background, running: ExitStack, dns: DnsServer, steps: int
) -> None:
    """Between two good answers the server fails, is silent, denies the name once, or is gone."""
    chance = random.Random(18)
    dns.put("host.example.org", "A", LOOPBACK, ttl_s=0)
    site = ServiceSite(tmp_path, background, running, {"names": settings(dns)}, hold_window_s=0)

    def trouble() -> None:
        how = chance.choice(["SERVFAIL", "REFUSED", "silent", "denied", "gone", "none"])
        if how == "gone":
            background.run(dns.stop())
            time.sleep(0.5)
            background.run(dns.start())
        elif how == "denied":
            kept = dns.records.pop((NAME, "SRV"))
            asked = dns.asked[(NAME, "SRV")]
            wait_until(lambda: dns.asked[(NAME, "SRV")] > asked, "asked once")
            dns.records[(NAME, "SRV")] = kept
        elif how != "none":
            dns.fail(NAME, None if how == "silent" else how)
            time.sleep(0.5)
            dns.heal(NAME)

    def apply(weights: Weights) -> None:
        if (NAME, "SRV") in dns.records:
            trouble()
        dns.put(NAME, "SRV", *(f"1 {weight} {port} host.example.org." for port, weight in weights.items()), ttl_s=0)

    _, load = walk(site, steps, chance, apply)
    none_lost(load)


def settings(dns: DnsServer) -> dict[str, object]:
    return {
        "kind": "dns",
        "servers": [f"{LOOPBACK}:{dns.port}"],
        "services": {SERVICE: {"name": NAME}},
        "shortest_s": 0.2,
        "retry_s": 0.2,
        "longest_retry_s": 0.5,
        "timeout_s": 0.3,
    }


def test_the_last_good_set_survives_the_source_and_the_server(
    tmp_path: Path, background: Background, running: ExitStack, dns: DnsServer
) -> None:
    """The source is gone, the server is killed and comes back, a proxy is new: all have the last good set."""
    dns.put("host.example.org", "A", LOOPBACK, ttl_s=0)
    site = ServiceSite(tmp_path, background, running, {"names": settings(dns)})
    weights = {site.upstream().port: 1 for _ in range(3)}
    dns.put(NAME, "SRV", *(f"1 {weight} {port} host.example.org." for port, weight in weights.items()), ttl_s=0)
    envoy = site.envoy()
    wait_serving(envoy, weights)
    load = site.load(envoy)
    time.sleep(2)  # the last good set is written once a second
    dns.is_silent = True
    wait_until(lambda: site.source("names")["state"] == "failing", "the failure is seen")
    for end in (site.server.kill, site.server.stop):
        end()
        load.wait_total(REQUESTS_BETWEEN)
        site.server.start()
        assert site.source("names")["state"] in ("starting", "failing")
        late = site.envoy(f"late-{end.__name__}")
        wait_serving(late, weights)
        load.wait_total(REQUESTS_BETWEEN)
        assert serving(envoy) == weights
    dns.is_silent = False
    more = weights | {site.upstream().port: 1}
    dns.put(NAME, "SRV", *(f"1 {weight} {port} host.example.org." for port, weight in more.items()), ttl_s=0)
    wait_serving(envoy, more)
    assert site.source("names")["state"] == "reading"
    none_lost(load)


def test_a_grpc_client_follows_target_files(tmp_path: Path, background: Background, running: ExitStack) -> None:
    """Each call succeeds, and after each change the calls reach exactly the backends of the file."""
    targets = Targets(tmp_path / "targets", random.Random(18))
    sources = {"targets": {"kind": "files", "paths": [str(targets.directory)]}}
    site = ServiceSite(tmp_path, background, running, sources, hold_window_s=0)
    backends = {name: running.enter_context(GrpcBackend(name)) for name in "abcd"}
    site.server.push(
        GROUP,
        [api_listener("svc", rds("routes")), route_config("routes", route(CLUSTER, prefix="")), eds_cluster(CLUSTER)],
    )
    bootstrap = grpc_bootstrap(site.server.grpc_port, node_id=NODE, node_cluster=GROUP)
    client: GrpcClient | None = None
    for names in ("ab", "abc", "bc", "cd", "ad", "abcd"):
        targets.write({backends[name].port: 1 for name in names})
        if client is None:
            client = running.enter_context(GrpcClient(tmp_path, bootstrap))
            client.wait_body(TARGET, "a")
        seen: deque[str] = deque(maxlen=30)
        end = time.monotonic() + 20
        while not (len(seen) == 30 and set(seen) == set(names)):
            outcome = client.call(TARGET)
            assert outcome.status == "OK", outcome
            seen.append(outcome.body)
            assert time.monotonic() < end, (names, seen)


def test_a_file_that_loses_nearly_all_is_held_until_it_is_accepted(
    tmp_path: Path, background: Background, running: ExitStack
) -> None:
    targets = Targets(tmp_path / "targets", random.Random(18))
    sources = {"targets": {"kind": "files", "paths": [str(targets.directory)]}}
    site = ServiceSite(tmp_path, background, running, sources)
    weights = {site.upstream().port: 1 for _ in range(4)}
    targets.write_at_once(weights)
    envoy = site.envoy()
    wait_serving(envoy, weights)
    load = site.load(envoy)
    kept = dict(list(weights.items())[:1])
    targets.write_at_once(kept)
    wait_until(lambda: site.source("targets")["held"] == [SERVICE], "the loss is held")
    load.wait_total(REQUESTS_BETWEEN)
    assert serving(envoy) == weights
    accepted = site.server.request("POST", "/api/v1/sources/targets/accept")
    assert accepted.is_success, accepted.text
    wait_serving(envoy, kept)
    site.retire(envoy, *(weights.keys() - kept.keys()))
    assert site.source("targets")["held_n"] == 0
    assert set(hosts(envoy)) == set(kept)
    none_lost(load)
