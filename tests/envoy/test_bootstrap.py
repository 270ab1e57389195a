"""Bootstraps: a real Envoy accepts every mode."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.envoy import validate
from tests.support.pki import CertificateAuthority
from xds.envoy.bootstrap import BootstrapMode, BootstrapOptions, ClientTls, bootstrap
from xds.model.node import Locality

ENVOY_MODES = [mode for mode in BootstrapMode if mode is not BootstrapMode.GRPC]


@pytest.mark.parametrize("mode", ENVOY_MODES)
def test_envoy_accepts_every_mode(mode: BootstrapMode, tmp_path: Path) -> None:
    options = BootstrapOptions("edge-1", "edge", "127.0.0.1", 18000, mode, locality=Locality("eu", "a"))
    document = bootstrap(options)
    assert validate(document, tmp_path) == ""
    assert document["node"] == {"id": "edge-1", "cluster": "edge", "locality": {"region": "eu", "zone": "a"}}


def test_envoy_accepts_names_and_load_reports(tmp_path: Path) -> None:
    document = bootstrap(BootstrapOptions("a", "b", "localhost", 1, token="t", metadata={"k": [1]}))
    assert validate(document, tmp_path) == ""
    assert document["cluster_manager"]["load_stats_config"]["api_type"] == "GRPC"


@pytest.mark.parametrize("mode", ENVOY_MODES)
def test_load_is_reported_unless_it_is_switched_off(mode: BootstrapMode) -> None:
    """Load reports go over gRPC: a bootstrap for REST has none."""
    reporting = bootstrap(BootstrapOptions("a", "b", "localhost", 1, mode))
    assert ("cluster_manager" in reporting) is (mode is not BootstrapMode.REST)
    assert "cluster_manager" not in bootstrap(BootstrapOptions("a", "b", "localhost", 1, mode, load_reports=False))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_envoy_accepts_mutual_tls(host: str, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    client = authority.issue("envoy-1")
    tls = ClientTls(str(authority.path), str(client.path), str(client.key_path))
    assert validate(bootstrap(BootstrapOptions("a", "b", host, 1, tls=tls)), tmp_path) == ""


def test_node_is_sent_once_and_the_connection_is_kept_alive() -> None:
    document = bootstrap(BootstrapOptions("a", "b", "127.0.0.1", 1))
    assert document["dynamic_resources"]["ads_config"]["set_node_on_first_message_only"] is True
    assert "connection_keepalive" in str(document["static_resources"])


def test_grpc_library_bootstrap() -> None:
    document = bootstrap(BootstrapOptions("a", "b", "::1", 18000, BootstrapMode.GRPC, tls=ClientTls("/ca.pem")))
    server = document["xds_servers"][0]
    assert server["server_uri"] == "[::1]:18000"
    assert server["channel_creds"] == [{"type": "tls", "config": {"ca_certificate_file": "/ca.pem"}}]
