"""A server with what alerts and dashboards ask for: load, refusals, a silent node, a source that fails, pushes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

import grpc
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.proxy import STREAM_DEADLINE_S, Proxy
from tests.server.load_client import V3, report, reporter, told
from tests.support import resources as r
from tests.support.grpc_stream import GrpcStream, sotw
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, wait_until
from tests.support.server import ServerProcess
from xds.model.resource_type import ENDPOINT

GROUP = "default"
SERIES = re.compile(r"\b((?:xds|process)_\w+|up\b)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~|!=|=|!~)"([^"]*)"')


class Served(NamedTuple):
    """The samples of a scrape, by the name of the series."""

    samples: dict[str, list[tuple[dict[str, str], float]]]

    def labels(self, name: str) -> set[str]:
        return {label for labels, _ in self.samples[name] for label in labels}

    def select(self, selector: str) -> list[tuple[dict[str, str], float]]:
        """The samples of ``name{matchers}``, each with ``=`` or ``=~``."""
        found = SERIES.fullmatch(selector)
        assert found is not None
        wanted = {
            name: value if sign == "=~" else re.escape(value) for name, sign, value in MATCHER.findall(found[2] or "")
        }
        return [
            one
            for one in self.samples.get(found[1], ())
            if all(re.fullmatch(value, one[0].get(name, "")) for name, value in wanted.items())
        ]


def watched_server(directory: Path, running: ExitStack) -> ServerProcess:
    """A server without a policy. Its HTTP port has TLS, by the authority in ``test-ca.pem``.

    Requests to the cluster ``web`` fail and are dropped, one of two sources cannot be read, one node rejects its
    clusters, one requests what does not exist, one never answers, a careful rollout goes on, and a backup was made.
    """
    stop = Event()
    targets = directory / "shop.yaml"
    targets.write_text("services:\n  shop: [127.0.0.1:1]\n")
    sources = {name: {"kind": "files", "paths": [path]} for name, path in (("gone", "gone"), ("there", str(targets)))}
    (directory / "xds.yaml").write_text(yaml.safe_dump({"sources": sources}))
    flags = ["--store", "memory", "--lrs-interval", "1s", "--config", str(directory / "xds.yaml")]
    authority = CertificateAuthority(directory)
    own = authority.issue("server")
    files = {"certificate": str(own.path), "private_key": str(own.key_path)}
    environment = {"XDS_SERVER__HTTP__TLS": json.dumps(files)}
    context = authority.client_context()
    server = running.enter_context(ServerProcess(directory, flags, environment, tls=context))
    server.push(GROUP, [r.steered_cluster("web"), r.zoned_load_assignment("web", {"z1": [1], "z2": [2]})])
    reporting = Thread(target=_report, args=(server.grpc_port, stop))
    reporting.start()
    running.callback(reporting.join)
    running.callback(stop.set)
    silent = running.enter_context(Proxy(server.grpc_port, "silent", GROUP, zone="z1"))
    silent.answer()
    server.push("edge", [r.steered_cluster("web"), r.zoned_load_assignment("web", {"z1": [1]})])
    refusing = running.enter_context(Proxy(server.grpc_port, "refusing", "edge"))
    refusing.nack = "no good"
    refusing.answer()
    asking = running.enter_context(GrpcStream(server.grpc_port, deadline_s=STREAM_DEADLINE_S))
    asking.send(sotw(ENDPOINT, ["absent"], "asking", "edge"))
    certificate = authority.issue("pushed")
    chain, key = certificate.path.read_text(), certificate.key_path.read_text()
    tls = {"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}
    secret = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
    server.push("secrets", [{"@type": secret, "name": "pushed", "tls_certificate": tls}])
    _begin_rollout(running, server)
    assert server.request("GET", "/api/v1/backup").status_code == 200
    return server


def _begin_rollout(running: ExitStack, server: ServerProcess) -> None:
    """A careful rollout to a node that does not answer, which becomes stale."""
    server.push("careful", [r.static_cluster("a")])
    mute = running.enter_context(Proxy(server.grpc_port, "mute", "careful"))
    mute.answer()
    body = {"resources": [r.static_cluster("b")], "rollout": {"waves": ["1"], "hold_s": 200, "on_failure": "hold"}}
    answer = server.request("PUT", "/api/v1/groups/careful/snapshot", json=body)
    assert answer.is_success, answer.text


def steer(server: ServerProcess) -> None:
    """Set a policy whose cluster has too little capacity."""
    rate = {"per_locality_rps": 50}
    policy = {"capacity": {"rates": [rate]}, "interval_s": 1, "stale_after_s": 5, "fallback_after_s": 60}
    answer = server.request("PUT", f"/api/v1/groups/{GROUP}/assignments/web", json=policy)
    assert answer.status_code == 200, answer.text


def wait_told(server: ServerProcess) -> Served:
    """Wait until the server tells all of it; the scrape."""
    found: list[Served] = []

    def is_told() -> bool:
        found.append(scrape(server))
        reasons = {labels["reason"] for labels, _ in found[-1].select("xds_assignment_reasons")}
        seen = ("xds_server_nodes_nacked", "xds_server_missing_resources")
        return {"overload", "partial_reports"} <= reasons and all(found[-1].samples[name] for name in seen)

    wait_until(is_told, "the policy is overloaded, and a node is silent", 60.0, detail=lambda: found[-1].samples)
    return found[-1]


def _report(port: int, stop: Event) -> None:
    """A node of zone z1 that reports each second: 150 requests, some failed, and drops."""

    def messages() -> Iterator[bytes]:
        first = reporter("edge-1")
        while not stop.is_set():
            web = told("web", 1.0, total_successful_requests=120, total_error_requests=30, total_issued_requests=150)
            web.dropped_requests.add(category="lb", dropped_count=10)
            web.total_dropped_requests = 10
            yield report(web, node=first)
            first = b""
            stop.wait(1.0)

    with grpc.insecure_channel(f"{LOOPBACK}:{port}") as channel:
        try:
            for _ in channel.stream_stream(V3)(messages(), timeout=STREAM_DEADLINE_S):
                pass
        except grpc.RpcError:
            assert stop.is_set()


def scrape(server: ServerProcess) -> Served:
    text = server.request("GET", "/metrics").text
    samples: dict[str, list[tuple[dict[str, str], float]]] = {"up": [({}, 1.0)]}  # by Prometheus itself
    for family in text_string_to_metric_families(text):
        for name in (family.name, f"{family.name}_total"):
            samples.setdefault(name, [])
        for sample in family.samples:
            samples.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
    return Served(samples)
