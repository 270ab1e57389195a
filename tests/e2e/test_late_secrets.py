"""A real Envoy goes on with the certificate that serves until the one that its listener newly names is pushed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support import resources as r
from tests.support.bootstrap import Variant, in_variants
from tests.support.envoy import EnvoyProcess, get, wait_body
from tests.support.pki import Certificate, CertificateAuthority, served_serial
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.upstream import Upstream

LATE_S = 1.5  # until the secret is pushed


@pytest.fixture
def server(shared_server: ServerProcess) -> ServerProcess:
    """The server that modules like this one share."""
    shared_server.begin_anew()
    return shared_server


def _web(secret: str) -> r.Json:
    return r.listener("web", r.inline_routes("web", r.direct_route("hi")), transport_socket=r.downstream_tls(secret))


def _secret(name: str, certificate: Certificate) -> r.Json:
    return r.tls_secret(name, certificate.pem, certificate.key_pem)


@in_variants(Variant.ADS_DELTA, others=[Variant.ADS_SOTW])
def test_the_certificate_in_use_stays_until_the_next_one_is_pushed(
    server: ServerProcess, connect: Callable[..., EnvoyProcess], tmp_path: Path, variant: Variant
) -> None:
    ca = CertificateAuthority(tmp_path)
    one, two = ca.issue("one"), ca.issue("two")
    server.push(server.group, [_web("s1"), _secret("s1", one)])
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    assert served_serial(port, ca) == one.serial
    server.push(server.group, [_web("s2"), _secret("s1", one)])
    end_s = time.monotonic() + LATE_S
    while time.monotonic() < end_s:
        assert served_serial(port, ca) == one.serial
    server.push(server.group, [_web("s2"), _secret("s1", one), _secret("s2", two)])
    wait_until(lambda: served_serial(envoy.wait_listener("web"), ca) == two.serial, "the next certificate serves")
    assert envoy.fetch_timeouts() == {}


@in_variants(Variant.ADS_DELTA, others=[Variant.ADS_SOTW])
def test_a_cluster_in_use_serves_until_the_secret_that_it_newly_names_is_pushed(
    server: ServerProcess,
    connect: Callable[..., EnvoyProcess],
    tmp_path: Path,
    secure_upstream: Callable[[str, Certificate], Upstream],
    variant: Variant,
) -> None:
    """Under requests: none is lost."""
    ca = CertificateAuthority(tmp_path)
    secure_port = secure_upstream("secure", ca.issue("web")).port

    def site(trust: str, *secrets: str) -> list[r.Json]:
        upstream = r.static_cluster("c1", secure_port, transport_socket=r.upstream_tls(trust, "localhost"))
        web = r.listener("web", r.inline_routes("web", r.route("c1")))
        return [upstream, web, *(r.trust_secret(each, ca.pem) for each in secrets)]

    server.push(server.group, site("t1", "t1"))
    envoy = connect(variant).wait_live()
    port = envoy.wait_listener("web")
    wait_body(port, "secure")
    server.push(server.group, site("t2", "t1"))
    end_s = time.monotonic() + LATE_S
    while time.monotonic() < end_s:
        assert get(port).status_code == 200
    server.push(server.group, site("t2", "t1", "t2"))
    server.wait_synced(server.group, server.node)
    assert get(port).status_code == 200
    assert envoy.fetch_timeouts() == {}


@pytest.mark.parametrize("variant", [Variant.ADS_DELTA])
def test_a_missing_secret_is_reported_to_a_starting_envoy_at_once(
    server: ServerProcess, connect: Callable[..., EnvoyProcess], tmp_path: Path, variant: Variant
) -> None:
    """Also if it started before, and a push changed its listener while it was away."""
    one = CertificateAuthority(tmp_path).issue("one")
    server.push(server.group, [_web("s1"), _secret("s1", one)])
    envoy = connect(variant).wait_live()
    server.push(server.group, [_web("s2"), _secret("s1", one)])
    envoy.restart().wait_live()
    assert envoy.fetch_timeouts() == {}
