"""Real Envoys over TLS, with client certificates and with bearer tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant, XdsTls, in_variants
from tests.support.envoy import EnvoyProcess, wait_body
from tests.support.pki import CertificateAuthority
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

GROUP = "test"
NODE = "envoy-1"
STRANGER = "stranger"
TOKEN = "s3cret"

StartUpstream = Callable[[str], Upstream]

streamed_variants = in_variants(Variant.SPLIT_DELTA)


def tls_environment(door: str, ca: CertificateAuthority, mutual: bool) -> dict[str, str]:
    """Settings that put TLS on the ``GRPC`` or ``HTTP`` door."""
    certificate = ca.issue("server")
    files = {"CERTIFICATE": certificate.path, "PRIVATE_KEY": certificate.key_path}
    if mutual:
        files["CLIENT_CA"] = ca.path
    return {f"XDS_SERVER__{door}__TLS__{name}": str(path) for name, path in files.items()}


@streamed_variants
def test_tls(tmp_path: Path, running: ExitStack, upstream: StartUpstream, variant: Variant) -> None:
    ca = CertificateAuthority(tmp_path)
    server = running.enter_context(ServerProcess(tmp_path, environment=tls_environment("GRPC", ca, False)))
    server.push(GROUP, r.web_resources("c1", upstream("a").port, source=variant.config_source))
    bootstrap = EnvoyBootstrap(server.grpc_port, variant, tls=XdsTls(ca.path))
    envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap)).wait_live()
    wait_body(envoy.wait_listener("web"), "a")


def test_rest_over_tls(tmp_path: Path, running: ExitStack, upstream: StartUpstream) -> None:
    ca = CertificateAuthority(tmp_path)
    environment = tls_environment("HTTP", ca, False)
    server = running.enter_context(ServerProcess(tmp_path, environment=environment, tls=ca.client_context()))
    server.push(GROUP, r.web_resources("c1", upstream("a").port, source=Variant.REST.config_source))
    bootstrap = EnvoyBootstrap(server.http_port, Variant.REST, tls=XdsTls(ca.path))
    envoy = running.enter_context(EnvoyProcess(tmp_path, bootstrap)).wait_live()
    wait_body(envoy.wait_listener("web"), "a")


def test_client_certificate_is_demanded(tmp_path: Path, running: ExitStack, upstream: StartUpstream) -> None:
    ca = CertificateAuthority(tmp_path)
    client = ca.issue("client")
    server = running.enter_context(ServerProcess(tmp_path, environment=tls_environment("GRPC", ca, True)))
    server.push(GROUP, r.web_resources("c1", upstream("a").port))
    known = EnvoyBootstrap(server.grpc_port, tls=XdsTls(ca.path, client.path, client.key_path))
    unknown = EnvoyBootstrap(server.grpc_port, node_id=STRANGER, tls=XdsTls(ca.path))
    stranger = running.enter_context(EnvoyProcess(tmp_path, unknown, name=STRANGER))
    envoy = running.enter_context(EnvoyProcess(tmp_path, known)).wait_live()
    wait_body(envoy.wait_listener("web"), "a")
    wait_until(lambda: stranger.stat("cluster_manager.cds.update_failure"), "the stranger is refused")
    assert set(server.nodes()) == {NODE}


@streamed_variants
def test_token_is_demanded(tmp_path: Path, running: ExitStack, upstream: StartUpstream, variant: Variant) -> None:
    environment = {"XDS_AUTH__TOKEN_SHA256": json.dumps([hashlib.sha256(TOKEN.encode()).hexdigest()])}
    server = running.enter_context(ServerProcess(tmp_path, environment=environment, token=TOKEN))
    authorization = (("authorization", f"Bearer {TOKEN}"),)
    known = EnvoyBootstrap(server.grpc_port, variant, initial_metadata=authorization)
    server.push(GROUP, r.web_resources("c1", upstream("a").port, source=known.config_source))
    unknown = EnvoyBootstrap(server.grpc_port, variant, node_id=STRANGER)
    stranger = running.enter_context(EnvoyProcess(tmp_path, unknown, name=STRANGER))
    envoy = running.enter_context(EnvoyProcess(tmp_path, known)).wait_live()
    wait_body(envoy.wait_listener("web"), "a")
    wait_until(lambda: stranger.stat("cluster_manager.cds.update_failure"), "the stranger is refused")
    assert set(server.nodes()) == {NODE}


def test_an_envoy_is_the_node_that_its_certificate_says(
    tmp_path: Path, running: ExitStack, upstream: StartUpstream
) -> None:
    ca = CertificateAuthority(tmp_path)
    own, other = (ca.issue(name, [f"spiffe://corp.example/{name}"]) for name in (NODE, STRANGER))
    rule = {"principal": "spiffe://corp.example/{id}", "node": {"id": "{id}"}, "groups": [GROUP]}
    environment = {**tls_environment("GRPC", ca, True), "XDS_AUTH__NODES": json.dumps({"rules": [rule]})}
    server = running.enter_context(ServerProcess(tmp_path, environment=environment))
    server.push(GROUP, r.web_resources("c1", upstream("a").port))
    honest = EnvoyBootstrap(server.grpc_port, tls=XdsTls(ca.path, own.path, own.key_path))
    liar = EnvoyBootstrap(server.grpc_port, tls=XdsTls(ca.path, other.path, other.key_path))
    stranger = running.enter_context(EnvoyProcess(tmp_path, liar, name=STRANGER))
    envoy = running.enter_context(EnvoyProcess(tmp_path, honest)).wait_live()
    wait_body(envoy.wait_listener("web"), "a")
    wait_until(lambda: stranger.stat("cluster_manager.cds.update_failure"), "the stranger is refused")
    assert not stranger.stat("cluster_manager.cds.update_success")
    assert {stream["principal"] for stream in server.nodes()[NODE]["streams"]} == {f"spiffe://corp.example/{NODE}"}
