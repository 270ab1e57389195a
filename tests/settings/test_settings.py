"""Settings: precedence, unknown keys, exposure."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from xds.access.authorisation import NodeAuthMode
from xds.app.settings import load_settings, make_settings
from xds.cli.arguments import serve_flags
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.settings import chain_context
from xds.settings.sections import GRPC_PORT, HTTP_PORT
from xds.settings.settings import Settings, SettingsError, auth_files, is_loopback, shown_settings
from xds.snapshots.order import OrderRules

TOKEN_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "xds.yaml"
    path.write_text(text)
    return path


def test_defaults_are_loopback_and_sqlite() -> None:
    settings = load_settings()
    assert (settings.server.grpc.host, settings.server.grpc.port) == ("127.0.0.1", GRPC_PORT)
    assert (settings.server.http.host, settings.server.http.port) == ("127.0.0.1", HTTP_PORT)
    assert settings.store.kind == "sqlite"
    assert settings.order.rules() == OrderRules()


URL = "postgresql://xds:secret@db.internal/xds"


def test_the_url_of_a_database_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDS_STORE__URL", URL)
    monkeypatch.setenv("XDS_STORE__KIND", "postgres")
    settings = load_settings()
    assert (settings.store.kind, settings.store.url) == ("postgres", URL)
    assert "secret" not in json.dumps(shown_settings(settings))
    flags = serve_flags("", "", "", "memory", False, "")
    assert load_settings(None, flags).store.url == "", "a flag takes the place of both settings"


@pytest.mark.parametrize(("kind", "url"), [("sqlite", URL), ("postgres", ""), ("postgres", "mysql://xds:secret@db")])
def test_a_url_belongs_to_postgres(monkeypatch: pytest.MonkeyPatch, kind: str, url: str) -> None:
    monkeypatch.setenv("XDS_STORE__URL", url)
    monkeypatch.setenv("XDS_STORE__KIND", kind)
    with pytest.raises(SettingsError, match=r"store\.url: store\.kind postgres, and no other, needs") as refused:
        load_settings()
    assert "secret" not in str(refused.value)


def test_flags_win_over_environment_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config(tmp_path, "server: {grpc: {port: 1, host: localhost}, http: {port: 1}, drain_s: 1}")
    monkeypatch.setenv("XDS_SERVER__GRPC__PORT", "2")
    monkeypatch.setenv("XDS_SERVER__HTTP__PORT", "2")
    settings = load_settings(file, {"server": {"http": {"port": 3}}})
    assert settings.server.drain_s == 1
    assert settings.server.grpc.host == "localhost"
    assert settings.server.grpc.port == 2
    assert settings.server.http.port == 3


def test_the_order_is_set_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"enabled": "off", "removal_delay_s": "1", "listener_drain_s": "20", "linger_max": "3"}
    wanted |= {"order_timeout_s": "2.5", "offer_timeout_s": "0.5"}
    for name, value in wanted.items():
        monkeypatch.setenv(f"XDS_ORDER__{name.upper()}", value)
    rules = load_settings().order.rules()
    assert rules == OrderRules(False, 1, 20, 3, order_timeout_s=2.5, offer_timeout_s=0.5)


def test_the_order_is_set_by_a_file(tmp_path: Path) -> None:
    assert not load_settings(config(tmp_path, "order: {enabled: off}")).order.enabled


@pytest.mark.parametrize(
    "wrong",
    [
        {"removal_delay_s": -1},
        {"listener_drain_s": -0.5},
        {"listener_drain_s": ".inf"},
        {"removal_delay_s": 86_401},
        {"linger_max": 0},
        {"order_timeout_s": 0},
        {"offer_timeout_s": 0},
        {"offer_timeout_s": ".nan"},
    ],
)
def test_times_that_make_no_sense_are_refused(tmp_path: Path, wrong: dict[str, object]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(SettingsError, match=rf"order\.{name}: Input should be"):
        load_settings(config(tmp_path, f"order: {{{name}: {value}}}"))


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sever: {}", "sever: unknown setting; did you mean 'server'?"),
        ("server: {grpc: {prot: 1}}", "server.grpc.prot: unknown setting; did you mean 'port'?"),
        ("server: {http: {tls: {certifcate: a}}}", "did you mean 'certificate'?"),
        ("server: {grpc: {port: 70000}}", "server.grpc.port: "),
        ("load: {interval_s: 0.5}", "load.interval_s: "),
        ("load: {interval: 5}", "load.interval: unknown setting; did you mean 'interval_s'?"),
        ("[1, 2]", "expected sections"),
        ("{", "xds.yaml"),
        ("auth: {token_sha256: [hunter2]}", "not the token"),
        (f'auth: {{tokens: [{{name: "a\\0b", sha256: {TOKEN_DIGEST}, scopes: [read]}}]}}', "auth.tokens.0.name"),
        (f"auth: {{token_sha256: [{TOKEN_DIGEST}, {TOKEN_DIGEST}]}}", "several entries: token_sha256, token_sha256"),
        (
            f"auth: {{token_sha256: [{TOKEN_DIGEST}], tokens: [{{name: t, sha256: {TOKEN_DIGEST}, scopes: [read]}}]}}",
            "auth: one token has several entries: token 't', token_sha256",
        ),
    ],
)
def test_errors_in_a_file_are_named(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(SettingsError) as raised:
        load_settings(config(tmp_path, text))
    assert hint in str(raised.value)


def test_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_settings(tmp_path / "absent.yaml")


@pytest.mark.parametrize("name", ["XDS_SEVER__GRPC__PORT", "XDS_SERVER__GPRC__PORT"])
def test_unknown_environment_key_is_an_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(SettingsError, match="did you mean"):
        load_settings()


def test_client_variables_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDS_ADDR", "http://127.0.0.1:1")
    monkeypatch.setenv("XDS_TOKEN", "secret")
    load_settings()


@pytest.mark.parametrize("door", ["grpc", "http"])
def test_open_bind_needs_tls_and_credentials(door: str) -> None:
    with pytest.raises(SettingsError, match=r"server\.insecure: true"):
        load_settings(None, {"server": {door: {"host": "0.0.0.0"}}})
    load_settings(None, {"server": {door: {"host": "0.0.0.0"}, "insecure": True}})


def test_open_bind_with_tls_and_token_is_allowed() -> None:
    tls = {"certificate": "a.pem", "private_key": "a.key"}
    flags = {"server": {"grpc": {"host": "0.0.0.0", "tls": tls}}}
    with pytest.raises(SettingsError):
        load_settings(None, flags)
    load_settings(None, {**flags, "auth": {"token_sha256": [TOKEN_DIGEST]}})


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("[::1]", True), ("localhost", True), ("0.0.0.0", False), ("example", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


SCOPED = {"name": "ci", "sha256": TOKEN_DIGEST, "scopes": ["read", "write:group/edge-*"]}


def test_tokens_with_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = load_settings(None, {"auth": {"tokens": [SCOPED]}}).auth.accepted()
    assert tokens
    flags = {"server": {"grpc": {"host": "0.0.0.0", "tls": {"certificate": "c", "private_key": "k"}}}}
    with pytest.raises(SettingsError, match=r"auth\.tokens"):
        load_settings(None, flags)
    load_settings(None, {**flags, "auth": {"tokens": [SCOPED]}})


@pytest.mark.parametrize(
    "wrong",
    [{"scopes": ["write"]}, {"scopes": []}, {"sha256": "hunter2"}, {"name": ""}, {"token": "hunter2"}],
)
def test_wrong_tokens_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"auth\.tokens"):
        load_settings(None, {"auth": {"tokens": [{**SCOPED, **wrong}]}})


def test_a_value_can_stand_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    digests, tokens = tmp_path / "digests", tmp_path / "tokens.json"
    digests.write_text(f"{'1' * 64}\n{'0' * 64}\n")
    tokens.write_text(json.dumps([SCOPED]))
    monkeypatch.setenv("XDS_AUTH__TOKEN_SHA256_FILE", str(digests))
    monkeypatch.setenv("XDS_AUTH__TOKENS_FILE", str(tokens))
    settings = load_settings()
    assert settings.auth.token_sha256 == ("1" * 64, "0" * 64)
    assert settings.auth.tokens[0].name == "ci"
    monkeypatch.setenv("XDS_AUTH__TOKENS_FILE", str(tmp_path / "absent"))
    with pytest.raises(SettingsError, match="absent"):
        load_settings()


def test_the_envoy_to_ask_must_run(tmp_path: Path) -> None:
    envoy = tmp_path / "envoy"
    for mode in (None, 0o644):
        if mode is not None:
            envoy.write_text("#!/bin/sh\n")
            envoy.chmod(mode)
        with pytest.raises(SettingsError, match=r"codec\.envoy.*not an executable file"):
            load_settings(None, {"codec": {"envoy": str(envoy)}})
    envoy.chmod(0o755)
    assert load_settings(None, {"codec": {"envoy": str(envoy)}}).codec.envoy == envoy


def test_a_token_given_in_clear_is_not_repeated(tmp_path: Path) -> None:
    file = config(tmp_path, "auth: {token_sha256: [hunter2-secret]}")
    with pytest.raises(SettingsError) as caught:
        load_settings(file)
    assert "auth.token_sha256" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("XDS_AUTH__TOKEN_SHA256", "hunter2"),
        ("XDS_AUTH__TOKENS", '[{"name": hunter2'),
        ("XDS_AUTH", "hunter2"),
        ("XDS_SERVER__GRPC", "127.0.0.1:18000"),
        ("xds_codec__descriptor_sets", "types.pb"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDS_SERVER__DRAIN_S", "1")
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load_settings()
    assert str(caught.value).startswith(f"{name.upper()}: expected JSON")
    assert value not in str(caught.value)
    assert "DRAIN" not in str(caught.value)


def test_all_variables_that_cannot_be_read_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDS_AUTH__TOKENS", "XDS_SERVER__HTTP"):
        monkeypatch.setenv(name, "[")
    with pytest.raises(SettingsError, match=r"XDS_AUTH__TOKENS: .*\nXDS_SERVER__HTTP: |XDS_SERVER__HTTP: .*\nXDS_AUTH"):
        load_settings()


# -- who may do what


CA = {"certificate": "s.pem", "private_key": "s.key", "client_ca": "ca.pem"}


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("insecure", [False, True])
def test_a_credential_with_admin_is_required(host: str, insecure: bool) -> None:
    """A certificate alone gives no rights, so nobody could push. The message shows what to add."""
    server = {"http": {"host": host, "tls": CA}, "insecure": insecure}
    for auth in ({}, {"certificates": [{"uri": "spiffe://a/*", "name": "x", "scopes": ["read"]}]}):
        with pytest.raises(SettingsError, match="none of them has the scope admin") as raised:
            load_settings(flags={"server": server, "auth": auth})
    lines = str(raised.value).partition("by a name in it:\n")[2].partition("or a token:")[0]
    added = yaml.safe_load(lines)["auth"]
    for entry in added["certificates"]:
        assert load_settings(flags={"server": server, "auth": {"certificates": [entry]}}).auth.has_administrator()
    assert load_settings(flags={"server": server, "auth": {"token_sha256": ["0" * 64]}}).auth.accepted()


def test_rules_of_nodes_are_enforced_unless_it_is_said_otherwise() -> None:
    rules = [{"principal": "cn:{id}", "node": {"id": "{id}"}, "groups": ["{id}-*"], "where": 'node.cluster == "a"'}]
    assert Settings().auth.nodes.node_rules().mode is NodeAuthMode.OFF
    assert (
        load_settings(flags={"auth": {"nodes": {"rules": rules}}}).auth.nodes.node_rules().mode is NodeAuthMode.ENFORCE
    )
    for mode in NodeAuthMode:
        found = load_settings(flags={"auth": {"nodes": {"rules": rules, "mode": mode.value}}})
        assert found.auth.access().nodes.mode is mode


def test_off_is_a_word_in_yaml(tmp_path: Path) -> None:
    (tmp_path / "xds.yaml").write_text("auth: {nodes: {mode: off}}\n")
    assert load_settings(tmp_path / "xds.yaml").auth.nodes.mode == "off"


@pytest.mark.parametrize(
    ("auth", "says"),
    [
        ({"nodes": {"mode": "audit"}}, "auth.nodes: mode audit needs rules"),
        ({"nodes": {"rules": [{"principal": "edge"}]}}, r"auth\.nodes\.rules\.0: .*'edge': expected a URI"),
        ({"nodes": {"rules": [{"principal": "cn:a", "node": {"id": "{x}"}}]}}, r"captures no \{x\}"),
        ({"nodes": {"rules": [{"principal": "cn:a", "where": "node.ide == a"}]}}, "where: .*no field 'ide'"),
        ({"nodes": {"rules": [{"principal": "cn:a", "where": "("}]}}, "where: "),
        ({"nodes": {"rules": [{"principal": "cn:a", "node": {"ids": "a"}}]}}, "did you mean 'id'|unknown setting"),
        ({"certificates": [{"name": "a", "scopes": ["xds"]}]}, "give exactly one of uri, dns and cn"),
        ({"certificates": [{"uri": "a", "cn": "a", "name": "a", "scopes": ["xds"]}]}, "one of uri, dns and cn"),
        ({"certificates": [{"cn": "{a}{b}", "name": "a", "scopes": ["xds"]}]}, "has one {name} at most"),
        ({"certificates": [{"cn": "a", "name": "a", "scopes": ["root"]}]}, "unknown scope: 'root'"),
        ({"tokens": [{"name": "a", "sha256": "0" * 64, "scopes": ["xds:node/"]}]}, "unknown scope: 'xds:node/'"),
    ],
)
def test_rules_that_cannot_be_meant(auth: dict[str, object], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load_settings(flags={"auth": auth})


def test_optional_certificates_need_an_authority_and_our_transport() -> None:
    tls = {**CA, "client_cert": "optional"}
    assert load_settings(flags={"server": {"grpc": {"tls": tls}}}).server.grpc.tls
    with pytest.raises(SettingsError, match=r"server\.grpc\.tls\.client_cert: optional needs"):
        load_settings(flags={"server": {"grpc": {"tls": {**tls, "client_ca": None}}}})
    with pytest.raises(SettingsError, match="grpcio's transport supports only required"):
        load_settings(flags={"server": {"grpc": {"tls": tls, "transport": "grpcio"}}})


def test_entries_are_shown_without_secrets() -> None:
    entry = {"uri": "spiffe://a/*", "name": "ops", "scopes": ["read", "admin"]}
    shown = shown_settings(load_settings(flags={"auth": {"certificates": [entry]}}))["auth"]["certificates"]
    assert shown == [{**entry, "dns": "", "cn": "", "scopes": ["admin", "read"]}]


def test_files_that_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDS_AUTH__TOKENS_FILE", "/run/tokens")
    monkeypatch.setenv("XDS_TOKEN_FILE", "/run/mine")
    assert auth_files(tmp_path) == (tmp_path, Path("/run/tokens"))
    assert auth_files(None) == (Path("/run/tokens"),)


def test_a_setting_that_has_moved_is_accepted_in_its_old_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = ("server.order: this setting is now 'order.enabled'; the old name still works",)
    settings = load_settings(config(tmp_path, "server: {order: off, drain_s: 1}"))
    assert (settings.order.enabled, settings.server.drain_s, settings.moved) == (False, 1, sentences)
    both = load_settings(config(tmp_path, "server: {order: off}\norder: {enabled: on, linger_max: 3}"))
    assert (both.order.enabled, both.order.linger_max, both.moved) == (True, 3, sentences)
    with pytest.raises(SettingsError, match=r"order\.enabled: Input should be"):
        load_settings(config(tmp_path, "server: {order: 7}"))
    with pytest.raises(SettingsError, match="order: Input should be"):
        load_settings(config(tmp_path, "server: {order: off}\norder: 7"))
    monkeypatch.setenv("XDS_SERVER__ORDER", "off")
    assert load_settings().moved == sentences
    assert not load_settings().order.enabled
    monkeypatch.delenv("XDS_SERVER__ORDER")
    assert load_settings().moved == ()


def test_where_chains_are_seen_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chain_context(load_settings().chains) == ChainContext("dc1", "consul")
    monkeypatch.setenv("XDS_CHAINS__TRUST_DOMAIN", "corp.example")
    chains = load_settings(config(tmp_path, "chains: {datacenter: eu-1, partitions: false}")).chains
    assert chain_context(chains) == ChainContext("eu-1", "corp.example", has_partitions=False)
    monkeypatch.delenv("XDS_CHAINS__TRUST_DOMAIN")
    for wrong in ("{datacenter: ''}", "{trust_domain: 'A b'}", "{region: eu}"):
        with pytest.raises(SettingsError, match=r"chains\."):
            load_settings(config(tmp_path, f"chains: {wrong}"))


POSTGRES = {"kind": "postgres", "url": "postgresql://xds@db/xds"}


@pytest.mark.parametrize(
    ("server", "complaint"),
    [
        ({"advertise": "10.0.0.5:18080"}, "expected http://HOST:PORT or https://HOST:PORT"),
        ({"advertise": "https://10.0.0.5:18080/api"}, "expected http://HOST:PORT or https://HOST:PORT"),
        ({"advertise": "http://10.0.0.5:18080"}, "use https, or server.insecure: true"),
        ({"http": {"host": "0.0.0.0"}, "insecure": True}, "server.advertise: server.http.host 0.0.0.0 is no address"),
    ],
)
def test_an_address_that_other_servers_cannot_use_is_refused(server: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(complaint)):
        make_settings({"server": server, "store": POSTGRES})


@pytest.mark.parametrize(
    "server",
    [
        {},
        {"advertise": "https://10.0.0.5:18080"},
        {"advertise": "http://localhost:18080"},
        {"advertise": "http://10.0.0.5:18080", "insecure": True},
        {"advertise": "https://10.0.0.5:18080", "http": {"host": "0.0.0.0"}, "insecure": True},
    ],
)
def test_an_address_that_other_servers_can_use_is_accepted(server: dict[str, Any]) -> None:
    make_settings({"server": server, "store": POSTGRES})
