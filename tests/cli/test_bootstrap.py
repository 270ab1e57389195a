"""``xds bootstrap``: the token, the node and the address of a proxy, with real Envoys."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.conftest import Remote
from tests.support.commands import xds
from tests.support.envoy import EnvoyProcess
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.server import ServerProcess

CONNECTED = {"control_plane.connected_state": 1}
THE_OPERATORS = {"XDS_TOKEN": "of-the-operator"}


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "edge.token"
    file.write_text("of-the-proxy\n")
    return file


def test_the_token_of_the_operator_never_gets_into_a_bootstrap(tmp_path: Path, token_file: Path) -> None:
    context = tmp_path / "xds" / "config.toml"
    context.parent.mkdir()
    operators = tmp_path / "operator.token"
    operators.write_text(THE_OPERATORS["XDS_TOKEN"])
    named = f'token_file = "{operators}"'
    context.write_text(f'current = "here"\n[contexts.here]\nserver = "http://127.0.0.1:1"\n{named}\n')
    environment = {**THE_OPERATORS, "XDS_TOKEN_FILE": str(operators), "XDG_CONFIG_HOME": str(tmp_path)}
    assert "of-the-operator" not in xds("bootstrap", environment=environment).out
    given = xds("bootstrap", "--token-file", token_file, environment=environment).out
    assert ("of-the-operator" in given, "Bearer of-the-proxy" in given) == (False, True)


@pytest.mark.parametrize("mode", ["grpc", "rest"])
@pytest.mark.parametrize("way", ["--token", "--token-file"])
def test_a_token_that_the_client_could_not_send_is_refused(mode: str, way: str, token_file: Path) -> None:
    """gRPC libraries and Envoy's polls send no token that a bootstrap names."""
    given = {"--token": "of-the-proxy", "--token-file": str(token_file)}[way]
    refused = xds("bootstrap", "--mode", mode, way, given)
    assert (refused.code, refused.out) == (2, "")
    assert "--cert" in refused.err


@pytest.mark.parametrize(
    ("address", "more", "code"),
    [
        ("xds.example:18000", [], 2),
        ("10.0.0.5:18000", [], 2),
        ("[2001:db8::1]:18000", [], 2),
        ("xds.example:18000", ["--insecure"], 0),
        ("xds.example:18000", ["--ca", "ca.pem"], 0),
        ("localhost:18000", [], 0),
        ("127.0.0.2:18000", [], 0),
        ("[::1]:18000", [], 0),
    ],
)
def test_a_token_leaves_the_machine_by_tls_only(address: str, more: list[str], code: int, token_file: Path) -> None:
    ran = xds("bootstrap", "--token-file", token_file, "--xds-addr", address, *more)
    assert (ran.code, "of-the-proxy" in ran.out) == (code, code == 0)
    assert ("give --ca" in ran.err) is (code == 2)


def test_a_written_bootstrap_is_the_owners_only(tmp_path: Path, token_file: Path) -> None:
    for name in ("envoy.yaml", "envoy.json"):
        file = tmp_path / name
        file.write_text("an earlier one, readable by all")
        file.chmod(0o644)
        ran = xds("bootstrap", "--token-file", token_file, "-o", file)
        assert (ran.code, ran.out, file.stat().st_mode & 0o777) == (0, "", 0o600)
        assert "of-the-proxy" in file.read_text()
    assert json.loads((tmp_path / "envoy.json").read_text())["node"]["id"] == "envoy-1"
    missing = xds("bootstrap", "-o", tmp_path / "missing" / "envoy.yaml")
    assert (missing.code, "No such file" in missing.err) == (2, True)


@pytest.mark.parametrize("before", [True, False])
def test_a_format_is_no_file(before: bool) -> None:
    words = ["-o", "json", "bootstrap"] if before else ["bootstrap", "-o", "json"]
    assert xds(*words).json()["node"] == {"id": "envoy-1", "cluster": "default"}


def test_metadata_is_json_where_it_can_be_and_dots_nest() -> None:
    fields = ["tier=web", "limits.rps=5", "limits.burst=[1, 2]", "open=", "eq=a=b", r"envoy\.lb.canary=true", "n=NaN"]
    given = [word for field in fields for word in ("--metadata", field)]
    assert xds("bootstrap", *given, "-o", "json").json()["node"]["metadata"] == {
        "tier": "web",
        "limits": {"rps": 5, "burst": [1, 2]},
        "open": "",
        "eq": "a=b",
        "envoy.lb": {"canary": True},
        "n": "NaN",
    }


@pytest.mark.parametrize(
    "fields", [["tier"], ["=web"], ["a..b=1"], ["a=1", "a=2"], ["a=1", "a.b=2"], ["a.b=2", "a=1"], [".".join("a" * 99)]]
)
def test_metadata_that_cannot_be_meant_is_refused(fields: list[str]) -> None:
    refused = xds("bootstrap", *(word for field in fields for word in ("--metadata", field)))
    assert (refused.code, refused.out) == (2, "")
    assert "--metadata" in refused.err


def test_flags_of_envoy_itself_are_left_to_it() -> None:
    for more in (["--node-id", "x"], ["--cluster", "x"], ["--mode", "grpc"]):
        assert xds("bootstrap", "--service-node", *more).code == 2
    ran = xds("bootstrap", "--service-node", "--region", "eu", "--metadata", "tier=web", "-o", "json")
    assert ran.json()["node"] == {"locality": {"region": "eu"}, "metadata": {"tier": "web"}}
    assert "--service-node ID" in ran.err


def test_the_flags_of_an_envoy_give_its_node(remote: Remote, tmp_path: Path) -> None:
    address = f"127.0.0.1:{remote.server.grpc_port}"
    document = remote.xds("bootstrap", "--service-node", "--metadata", "tier=web", "--xds-addr", address, "-o", "json")
    flags = ["--service-node", "flagged-1", "--service-cluster", "flagged", "--service-zone", "eu-1"]
    with EnvoyProcess(tmp_path, document.json(), flags=flags):
        wait_until(lambda: "flagged-1" in remote.server.nodes(), "the node")
        found = remote.xds("nodes", "-l", 'node.metadata.tier == "web" and node.locality.zone == "eu-1"', "-o", "json")
        assert [(item["id"], item["cluster"]) for item in found.json()["items"]] == [("flagged-1", "flagged")]


@pytest.mark.parametrize("has_tls", [False, True])
def test_localhost_is_reached_at_whichever_address_the_server_listens(
    has_tls: bool, tmp_path: Path, token_file: Path
) -> None:
    """``::1`` comes first in most hosts files, and the server listens on 127.0.0.1 only."""
    authority = CertificateAuthority(tmp_path)
    hashed = hashlib.sha256(b"of-the-proxy").hexdigest()
    token: dict[str, Any] = {"name": "proxies", "sha256": hashed, "scopes": ["xds"]}
    environment = {"XDS_AUTH__TOKENS": json.dumps([token])}
    if has_tls:
        certificate = authority.issue("server")
        files = {"certificate": str(certificate.path), "private_key": str(certificate.key_path)}
        environment["XDS_SERVER__GRPC__TLS"] = json.dumps(files)
    with ServerProcess(tmp_path, ["--store", "memory"], environment) as server:
        trust = ["--ca", str(authority.path)] if has_tls else []
        given = ["--token-file", str(token_file), "--xds-addr", f"localhost:{server.grpc_port}", *trust]
        document = xds("bootstrap", *given, "-o", "json").json()
        with EnvoyProcess(tmp_path, document) as envoy:
            wait_until(lambda: envoy.stats("control_plane.connected_state") == CONNECTED, "the stream")


def test_envoy_reads_its_token_from_a_file_and_answers_probes(tmp_path: Path, token_file: Path) -> None:
    hashed = hashlib.sha256(b"of-the-proxy").hexdigest()
    token: dict[str, Any] = {"name": "proxies", "sha256": hashed, "scopes": ["admin"]}
    ports = {"--admin-port": str(free_port()), "--ready-addr": f"{LOOPBACK}:{free_port()}"}
    probed = f"http://{ports['--ready-addr']}"

    def is_ready() -> bool:
        try:
            return httpx.get(f"{probed}/ready", trust_env=False, verify=False).status_code == 200
        except httpx.ConnectError:  # until it has its first configuration
            return False

    environment = {"XDS_AUTH__TOKENS": json.dumps([token])}
    with ServerProcess(tmp_path, ["--store", "memory"], environment, token="of-the-proxy") as server:
        given = ["--proxy-token-file", str(token_file), "--xds-addr", f"{LOOPBACK}:{server.grpc_port}"]
        document = xds("bootstrap", *given, *(word for pair in ports.items() for word in pair), "-o", "json")
        assert "of-the-proxy" not in document.out
        server.push("default", [])
        with EnvoyProcess(tmp_path, document.json()) as envoy:
            wait_until(lambda: envoy.stats("control_plane.connected_state") == CONNECTED, "the stream")
            wait_until(is_ready, "it is ready")
            assert "envoy_server_live" in httpx.get(f"{probed}/stats/prometheus", trust_env=False, verify=False).text
            for method, path in (("GET", "/config_dump"), ("POST", "/quitquitquit"), ("POST", "/ready")):
                assert httpx.request(method, f"{probed}{path}", trust_env=False, verify=False).status_code == 404, path


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--ready-addr", "0.0.0.0:19001"], "--admin-port"),
        (["--ready-addr", "0.0.0.0:19001", "--mode", "grpc", "--admin-port", "1"], "--mode grpc"),
        (["--proxy-token-file", "/t", "--mode", "rest"], "--mode rest"),
        (["--proxy-token-file", "/t", "--token", "t"], "--proxy-token-file"),
        (["--proxy-token-file", "/t", "--xds-addr", "xds.example:18000"], "give --ca"),
    ],
)
def test_files_and_probes_of_a_proxy_that_cannot_be_meant_are_refused(given: list[str], text: str) -> None:
    refused = xds("bootstrap", *given)
    assert (refused.code, refused.out) == (2, "")
    assert text in refused.err
