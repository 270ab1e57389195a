"""``xds auth test`` and ``whoami`` against a server with rules."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.commands import FinishedCommand, xds
from tests.support.grpc_stream import GrpcStream, sotw
from tests.support.pki import CertificateAuthority
from tests.support.process import LOOPBACK, wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from xds.model.resource_type import CLUSTER

RULES = [
    {"principal": "token:fleet", "node": {"id": "fleet-*"}},
    {
        "principal": "spiffe://corp/ns/{ns}/sa/{sa}",
        "node": {"id": "{sa}", "metadata": {"NS": "{ns}"}},
        "where": "node.locality.region == eu",
        "groups": ["{ns}-*"],
    },
]


class Site:
    def __init__(self, directory: Path, running: ExitStack) -> None:
        authority = CertificateAuthority(directory)
        self.edge = authority.issue("edge-1", ["spiffe://corp/ns/shop/sa/edge-1"])
        tokens = [
            {"name": name, "sha256": sha256(name.encode()).hexdigest(), "scopes": scopes}
            for name, scopes in {"root": ["admin"], "fleet": ["xds"], "ci": ["read"]}.items()
        ]
        environment = {"XDS_AUTH__TOKENS": json.dumps(tokens), "XDS_AUTH__NODES": json.dumps({"rules": RULES})}
        server = ServerProcess(directory, ["--store", "memory"], environment, token="root")
        self.server = running.enter_context(server)
        self.server.push("shop-edge", [static_cluster("a", 80)])
        self.server.request("PUT", "/api/v1/groups/shop-edge", json={"selector": 'node.id matches "edge-.*"'})
        (directory / "token").write_text("root")
        self.directory = directory

    def xds(self, *arguments: str | Path, token: str = "root") -> FinishedCommand:
        (self.directory / "token").write_text(token)
        url = f"http://{LOOPBACK}:{self.server.http_port}"
        return xds(*arguments, "--server", url, "--token-file", self.directory / "token")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(tmp_path_factory.mktemp("auth"), running)


FITTING = ("--node-id", "edge-1", "--metadata", "NS=shop", "--region", "eu")


def test_a_certificate_that_may(site: Site) -> None:
    ran = site.xds("auth", "test", "--cert", site.edge.path, *FITTING)
    assert ran.code == 0
    assert "spiffe://corp/ns/shop/sa/edge-1, cn:edge-1" in ran.out
    assert "group:     shop-edge (by selector)" in ran.out
    assert "mode:      enforce" in ran.out
    assert "no principal matches token:fleet" in ran.out


def test_a_context_gives_a_proxy_call_its_credentials_too(site: Site, tmp_path: Path) -> None:
    (site.directory / "token").write_text("root")
    file = tmp_path / "xds" / "config.toml"
    file.parent.mkdir()
    url = f"http://{LOOPBACK}:{site.server.http_port}"
    file.write_text(f"[contexts.here]\nserver = '{url}'\ntoken_file = '{site.directory / 'token'}'\n")
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "XDS_ADDR": "", "XDS_CONTEXT": "here"}
    ran = xds("destination", "get", "nosuch:80", environment=environment)
    assert "token:root may not be node 'linkerd@127.0.0.1'" in ran.err, "else it would be UNAUTHENTICATED"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (
            ("--node-id", "edge-2", "--metadata", "NS=shop", "--region", "eu"),
            "node.id 'edge-2' does not match 'edge-1'",
        ),
        (("--node-id", "edge-1", "--region", "eu"), "node.metadata.NS '' does not match 'shop'"),
        (("--node-id", "edge-1", "--metadata", "NS=shop"), "does not match the filter"),
    ],
)
def test_auth_test_gives_the_reason_of_a_refusal(site: Site, flags: tuple[str, ...], reason: str) -> None:
    ran = site.xds("auth", "test", "--cert", site.edge.path, *flags)
    assert ran.code == 1
    assert reason in ran.out
    assert f"rule 2: {reason}" in ran.err or "rule 2: the node does not match the filter" in ran.err


def test_tokens_by_name(site: Site) -> None:
    assert site.xds("auth", "test", "--token", "fleet", "--node-id", "fleet-7").code == 0
    found = site.xds("auth", "test", "--token", "fleet", "--node-id", "edge-1", "-o", "json")
    assert (found.code, found.json()["allowed"], found.json()["rules"][0]["allows"]) == (1, False, False)
    reader = site.xds("auth", "test", "--token", "ci", "--node-id", "fleet-7")
    assert reader.code == 1
    assert site.xds("auth", "test", "--token", "nobody", "--node-id", "x").code == 4


def test_auth_test_refuses_incomplete_questions(site: Site, tmp_path: Path) -> None:
    (tmp_path / "empty.pem").write_text("no certificate")
    for flags in (
        ("--node-id", "x"),
        ("--node-id", "x", "--cert", tmp_path / "absent.pem"),
        ("--node-id", "x", "--cert", tmp_path / "empty.pem"),
        ("--node-id", "x", "--cert", site.edge.path, "--metadata", "NS"),
        ("--cert", site.edge.path),
    ):
        assert site.xds("auth", "test", *flags).code == 2, flags
    assert site.xds("auth", "test", "--cert", site.edge.path, "--node-id", "").code == 3


def test_a_refused_operation_names_the_missing_scope(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "edge.yaml"
    file.write_text(json.dumps({"resources": [static_cluster("a", 80)]}))
    refused = site.xds("apply", "-g", "shop-edge", "-f", file, token="ci")
    assert (refused.code, "the token 'ci' lacks the scope write" in refused.err) == (6, True)


def test_whoami_shows_the_principal_and_its_scopes(site: Site) -> None:
    assert site.xds("auth", "whoami", token="ci").out == "principal: token:ci\nname:      ci\nscopes:    read\n"
    assert site.xds("auth", "whoami", "-o", "json").json()["principals"] == ["token:root"]


def test_the_principal_is_shown_with_the_node(site: Site) -> None:
    with GrpcStream(site.server.grpc_port, metadata=[("authorization", "Bearer fleet")]) as stream:
        stream.send(sotw(CLUSTER, node_id="fleet-1"))
        wait_until(lambda: "fleet-1" in site.server.nodes(), "the node", 10)
        assert "token:fleet" in site.xds("nodes", "-o", "wide").out
        assert "token:fleet" not in site.xds("nodes").out
        assert "principal: token:fleet\n" in site.xds("explain", "fleet-1").out
