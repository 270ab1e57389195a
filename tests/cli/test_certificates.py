"""When pushed certificates expire: in the API, in ``describe group``, ``check`` and a metric."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Remote
from tests.support.pki import CertificateAuthority

SECRET = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
TLS = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"


def days(number: float) -> datetime.timedelta:
    return datetime.timedelta(days=number, hours=1)


@pytest.fixture
def empty(remote: Remote) -> Iterator[Remote]:
    yield remote
    remote.server.begin_anew()


def secret(name: str, chain: str, key: str) -> dict[str, Any]:
    inline = {"certificate_chain": {"inline_string": chain}, "private_key": {"inline_string": key}}
    return {"@type": SECRET, "name": name, "tls_certificate": inline}


def test_certificates_that_expire_are_shown_everywhere(empty: Remote, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    soon = authority.issue("soon", ("web.example", "spiffe://corp.example/web"), days(3))
    later = authority.issue("later", ("api.example",), days(90))
    bundle = {"@type": SECRET, "name": "ca", "validation_context": {"trusted_ca": {"inline_string": authority.pem}}}
    documents = [
        secret("web", soon.path.read_text(), soon.key_path.read_text()),
        secret("api", later.path.read_text(), later.key_path.read_text()),
        bundle,
    ]
    empty.server.push("edge", documents)
    items = empty.server.get("/certificates", group="edge")["items"]
    assert [(item["name"], item["names"]) for item in items] == [
        ("web", ["web.example", "spiffe://corp.example/web"]),
        ("api", ["api.example"]),
    ]
    assert empty.server.get("/certificates", limit="1")["next_page_token"]
    described = empty.xds("describe", "group", "edge").out
    assert re.search(r"^3d +secrets +web +web\.example", described, re.MULTILINE) and "\n90d " in described
    checked = empty.xds("check").out
    assert "group edge: secrets/web (web.example, spiffe://corp.example/web) expires in 3d" in checked
    metrics = empty.server.request("GET", "/metrics").text
    line = next(each for each in metrics.splitlines() if each.startswith("xds_server_pushed_certificate_expiry"))
    assert 'group="edge"' in line
    left_s = float(line.split()[-1]) - datetime.datetime.now(datetime.UTC).timestamp()
    assert 3 * 86400 <= left_s <= 3.1 * 86400
    assert empty.server.request("GET", "/api/v1/certificates?group=nowhere").status_code == 404
    # A chain is valid as long as all of its certificates are: that of the authority ends first.
    empty.server.push("edge", [secret("api", later.path.read_text() + authority.pem, later.key_path.read_text())])
    (item,) = empty.server.get("/certificates", group="edge")["items"]
    left = datetime.datetime.fromisoformat(item["not_after"]) - datetime.datetime.now(datetime.UTC)
    assert left < datetime.timedelta(days=3)


def test_a_certificate_within_a_listener_and_one_that_has_expired(empty: Remote, tmp_path: Path) -> None:
    old = CertificateAuthority(tmp_path).issue("old", ("old.example",), datetime.timedelta(seconds=-1))
    certificate = {
        "certificate_chain": {"inline_string": old.path.read_text()},
        "private_key": {"inline_string": old.key_path.read_text()},
    }
    socket = {"name": "tls", "typed_config": {"@type": TLS, "common_tls_context": {"tls_certificates": [certificate]}}}
    proxy = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy",
        "stat_prefix": "t",
        "cluster": "c",
    }
    chain = {"filters": [{"name": "tcp", "typed_config": proxy}], "transport_socket": socket}
    listener = {
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "in",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 1}},
        "filter_chains": [chain],
    }
    empty.server.push("edge", [listener])
    assert "group edge: listeners/in (old.example) has expired" in empty.xds("check").out


def test_no_certificates_are_no_warning(empty: Remote) -> None:
    empty.server.push("edge", [])
    assert "none pushed" in empty.xds("check").out
    assert "certificates:" not in empty.xds("describe", "group", "edge").out
