"""Commands against a server that asks for TLS, a client certificate and a token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.commands import FinishedCommand, xds
from tests.support.pki import CertificateAuthority, served_serial
from tests.support.process import LOOPBACK, wait_until
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess

TOKENS = {"all": ["read", "write:group/*", "secrets:read", "admin"], "reader": ["read"]}


@dataclass(frozen=True)
class Guarded:
    """The server, and the files with its credentials."""

    server: ServerProcess
    directory: Path

    def xds(self, *arguments: str | Path, token: str = "all", ca: bool = True, cert: bool = True) -> FinishedCommand:
        """Run a command with these credentials; ``token`` names a token, empty for none."""
        (self.directory / "token").write_text(token)
        flags: list[str | Path] = ["--server", f"https://{LOOPBACK}:{self.server.http_port}"]
        flags += ["--token-file", self.directory / "token"] if token else []
        flags += ["--cacert", self.directory / "test-ca.pem"] if ca else []
        flags += ["--cert", self.directory / "cli.pem", "--key", self.directory / "cli.key"] if cert else []
        return xds(*arguments, *flags)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    directory = tmp_path_factory.mktemp("guarded")
    authority = CertificateAuthority(directory)
    own = authority.issue("server")
    client = authority.issue("cli")
    tokens = [
        {"name": name, "sha256": sha256(name.encode()).hexdigest(), "scopes": scopes} for name, scopes in TOKENS.items()
    ]
    tls = {"certificate": str(own.path), "private_key": str(own.key_path), "client_ca": str(authority.path)}
    environment = {"XDS_SERVER__HTTP__TLS": json.dumps(tls), "XDS_AUTH__TOKENS": json.dumps(tokens)}
    context = authority.client_context()
    context.load_cert_chain(client.path, client.key_path)
    with ExitStack() as running:
        server = ServerProcess(directory, ["--store", "memory"], environment, context, "all")
        yield Guarded(running.enter_context(server), directory)


def test_client_certificate_authority_and_token_together_are_accepted(guarded: Guarded) -> None:
    guarded.server.push("edge", [static_cluster("a", 80)])
    assert guarded.xds("get", "groups", "-o", "name").out == "edge\n"


def test_a_connection_without_one_of_the_credentials_fails(guarded: Guarded) -> None:
    nobody = guarded.xds("get", "groups", token="")
    # A certificate without an entry has only the scope of an xDS client.
    assert (nobody.code, "the certificate 'dns:localhost' lacks the scope read" in nobody.err) == (6, True)
    assert guarded.xds("get", "groups", token="wrong").code == 6
    stranger = guarded.xds("get", "groups", ca=False)
    assert (stranger.code, "certificate" in stranger.err.lower()) == (7, True)
    bare = guarded.xds("get", "groups", cert=False)
    assert (bare.code, "the server may ask for a client certificate: --cert, --key" in bare.err) == (7, True)
    assert ("--cert," in stranger.err, "--cacert FILE" in stranger.err) == (False, True)
    assert guarded.xds("get", "groups", "--cacert", "/nonexistent", ca=False).code == 2


def test_a_reader_may_not_write_nor_see_secrets(guarded: Guarded) -> None:
    guarded.server.push("edge", [static_cluster("a", 80)])
    refused = guarded.xds("delete", "edge", token="reader")
    assert (refused.code, "write:group/edge" in refused.err) == (6, True)
    assert guarded.xds("get", "snapshot", "-g", "edge", token="reader").code == 0
    assert guarded.xds("export", "edge", token="reader").code == 6
    compared = guarded.xds("diff", "-g", "edge", "--from", "1", "--to", "1", token="reader")
    assert (compared.code, "secrets:read" in compared.err) == (0, True)


def test_the_certificate_is_checked(guarded: Guarded) -> None:
    items = {item["check"]: item for item in guarded.xds("check", "-o", "json").json()["items"]}
    assert items["tls"]["state"] == "warning"  # the certificates of tests are valid for two days
    assert "expires in 1d" in items["tls"]["detail"]


def test_a_renewed_certificate_is_used_for_the_next_connection(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    first = authority.issue("server")
    tls = {"certificate": str(first.path), "private_key": str(first.key_path)}
    environment = {"XDS_SERVER__HTTP__TLS": json.dumps(tls)}
    with ServerProcess(tmp_path, ["--store", "memory"], environment, authority.client_context()) as server:
        assert served_serial(server.http_port, authority) == first.serial
        whole = first.key_path.read_bytes()
        first.key_path.write_bytes(b"half a rotation")
        wait_until(lambda: "tls.reload_failed" in server.process.log(), "a look at the files")
        assert served_serial(server.http_port, authority) == first.serial
        first.key_path.write_bytes(whole)
        renewed = authority.issue("server")
        wait_until(lambda: served_serial(server.http_port, authority) == renewed.serial, "the renewed certificate")
