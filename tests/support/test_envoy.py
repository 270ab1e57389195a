"""The harness by itself: a real Envoy on static and file configuration, upstreams, load, certificates."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.support import resources as r
from tests.support.background import Background
from tests.support.bootstrap import EnvoyBootstrap, Variant, XdsTls, static_bootstrap
from tests.support.envoy import EnvoyProcess, get, validate, wait_body
from tests.support.http import plain_client
from tests.support.load import HttpLoad
from tests.support.pki import CertificateAuthority, served_serial
from tests.support.process import free_port, wait_until
from tests.support.proxy import TcpProxy
from tests.support.upstream import Upstream

StartUpstream = Callable[[str], Upstream]


def test_static_envoy_under_load_loses_nothing(
    tmp_path: Path, upstream: StartUpstream, background: Background, running: ExitStack
) -> None:
    cluster = r.static_cluster("c1", upstream("a").port)
    web = r.listener("web", r.inline_routes("web", r.route("c1")))
    envoy = running.enter_context(EnvoyProcess(tmp_path, static_bootstrap([cluster], [web]))).wait_live()
    load = running.enter_context(HttpLoad(background, envoy.wait_listener("web"), rps=0.0))
    load.wait_total(2_000)
    report = load.stop()
    assert (report.failed, report.samples) == (0, [])
    assert report.bodies["a"] == report.total >= 2_000
    assert envoy.stat("cluster.c1.upstream_rq_200") == report.total


def test_load_counts_failures(tmp_path: Path, background: Background, running: ExitStack) -> None:
    web = r.listener("web", r.inline_routes("web", r.direct_route("no", 503)))
    envoy = running.enter_context(EnvoyProcess(tmp_path, static_bootstrap([], [web]))).wait_live()
    load = running.enter_context(HttpLoad(background, envoy.wait_listener("web"), connections=2))
    load.wait_total(20)
    report = load.stop()
    assert report.failed == report.total
    assert "503 no" in report.samples[0]


def test_files_are_followed_and_refusals_are_seen(tmp_path: Path, upstream: StartUpstream, running: ExitStack) -> None:
    files = FileSource(tmp_path)
    files.publish("cds", r.static_cluster("c1", upstream("a").port))
    files.publish("lds", r.listener("web", r.inline_routes("web", r.route("c1"))))
    dynamic = {"cds_config": files.source("cds"), "lds_config": files.source("lds")}
    bootstrap = static_bootstrap([], [], dynamic_resources=dynamic)
    envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap)).wait_live()
    port = envoy.wait_listener("web")
    wait_body(port, "a")
    files.publish("cds", r.static_cluster("c1", upstream("b").port))
    wait_body(port, "b")
    files.publish("cds", r.refused_cluster("c1"))
    envoy.wait_stat("cluster_manager.cds.update_rejected", 1)
    assert get(port).text == "b"
    assert envoy.text("cluster_manager.cds.version_text") == "2"
    assert envoy.cluster_names() == {"c1"}


class FileSource:
    """Resource files that an Envoy watches; each publication replaces a type's file as a whole."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._versions: dict[str, int] = {}

    def publish(self, kind: str, *resources: r.Json) -> None:
        """Write the file of a type with the next version."""
        version = self._versions[kind] = self._versions.get(kind, 0) + 1
        staged = self._directory / f"{kind}.staged"
        staged.write_text(json.dumps({"version_info": str(version), "resources": resources}))
        staged.rename(self._directory / f"{kind}.json")

    def source(self, kind: str) -> r.Json:
        """Envoy's config source for the file."""
        return {"path_config_source": {"path": str(self._directory / f"{kind}.json")}, "resource_api_version": "V3"}


@pytest.mark.parametrize("variant", Variant)
def test_every_builder_makes_content_that_envoy_accepts(tmp_path: Path, variant: Variant) -> None:
    ca = CertificateAuthority(tmp_path)
    pair = ca.issue("client")
    bootstrap = EnvoyBootstrap(
        9,
        variant,
        locality={"region": "r"},
        metadata={"a": "b"},
        load_reports=True,
        runtime_layers=("rt",),
        initial_metadata=(("authorization", "Bearer x"),),
        tls=XdsTls(ca.path, pair.path, pair.key_path),
    )
    source = bootstrap.config_source
    files = FileSource(tmp_path)  # validation of a static cluster with a secret by ADS crashes Envoy 1.40
    files.publish("sds", r.trust_secret("trust", ca.pem), r.tls_secret("s1", pair.pem, pair.key_pem))
    document = bootstrap.document()
    document["static_resources"]["clusters"] += _untyped(
        r.eds_cluster("eds", source, "service", **r.http_health_check()),
        r.static_cluster("tls", 9, transport_socket=r.upstream_tls("trust", "localhost", files.source("sds"))),
    )
    if variant is Variant.REST:
        source = r.ADS  # RDS, SDS and the rest by REST name the xDS cluster the same way
        document["dynamic_resources"]["ads_config"] = EnvoyBootstrap(9).document()["dynamic_resources"]["ads_config"]
    document["static_resources"]["listeners"] += _untyped(
        r.listener("rds", r.rds("web", source), filters=[r.discovered_filter("ec1", source=source)]),
        r.listener("tls", r.rds("web", source), transport_socket=r.downstream_tls("s1", source)),
        r.listener("scoped", r.scopes("x-scope", source), filters=[r.on_demand_filter()]),
        r.listener("inline", r.inline_routes("i", r.header_route("x-cluster"), r.runtime_route("eds", "k", 50))),
        r.listener("odcds", r.inline_routes("o", r.direct_route("hi")), filters=[r.on_demand_filter(r.ADS)]),
    )
    assert validate(document, tmp_path) == ""


def test_validate_reports_errors(tmp_path: Path) -> None:
    assert "Unknown address resolver: no-resolver" in validate(
        static_bootstrap([r.refused_cluster("c1")], []), tmp_path
    )


def _untyped(*resources: r.Json) -> list[r.Json]:
    return [{key: value for key, value in resource.items() if key != "@type"} for resource in resources]


def test_tls_upstream_and_certificates(tmp_path: Path, background: Background, running: ExitStack) -> None:
    ca = CertificateAuthority(tmp_path)
    certificate = ca.issue("web", ["localhost", "127.0.0.1", "spiffe://test/web"])
    secure = Upstream(background, "secure", certificate.server_context())
    running.callback(secure.close)
    assert served_serial(secure.port, ca) == certificate.serial
    with httpx.Client(verify=ca.client_context(), trust_env=False) as client:
        assert client.get(f"https://localhost:{secure.port}/").text == "secure"


def test_proxy_cuts_and_restores(upstream: StartUpstream, background: Background, running: ExitStack) -> None:
    proxy = TcpProxy(background, upstream("a").port)
    running.callback(proxy.close)
    with plain_client(base_url=f"http://127.0.0.1:{proxy.port}", timeout=2.0) as client:
        assert client.get("/").text == "a"
        proxy.cut()
        with pytest.raises(httpx.TransportError):
            client.get("/")
        proxy.restore()
        assert client.get("/").text == "a"


def test_free_ports_and_deadlines() -> None:
    assert free_port() < 32_768
    with pytest.raises(AssertionError, match="never; last: 0\nwhy"):
        wait_until(lambda: 0, "never", deadline_s=0.05, detail=lambda: "why")
