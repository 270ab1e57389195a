"""The mistakes of a first hour: each is recognised, and the message says what is meant."""

from __future__ import annotations

import json
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Remote
from tests.support.commands import FinishedCommand, xds
from tests.support.process import LOOPBACK, REPOSITORY
from tests.support.resources import (
    CLUSTER_TYPE,
    cluster_load_assignment,
    eds_cluster,
    inline_routes,
    listener,
    route,
    static_cluster,
)

BOOTSTRAP = {
    "admin": {"address": {"socket_address": {"address": LOOPBACK, "port_value": 9901}}},
    "static_resources": {"clusters": [static_cluster("a", 80)]},
}
DUMP = {"configs": [{"@type": "type.googleapis.com/envoy.admin.v3.BootstrapConfigDump", "bootstrap": BOOTSTRAP}]}
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
ENTRY = {"Kind": "service-router", "Name": "web"}
CONSUL_OBJECT = {
    "apiVersion": "consul.hashicorp.com/v1alpha1",
    "kind": "ServiceRouter",
    "metadata": {"name": "web"},
    "spec": {"routes": [{"match": {"http": {"pathPrefix": "/admin"}}, "destination": {"service": "admin"}}]},
}


def written(path: Path, document: object) -> Path:
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def pushed(path: Path, *resources: object) -> Path:
    return written(path, {"resources": list(resources)})


def cluster(**fields: object) -> dict[str, object]:
    return {"@type": CLUSTER_TYPE, "name": "a", **fields}


# Documents of other kinds


@pytest.mark.parametrize("command", ["validate", "apply"])
@pytest.mark.parametrize(
    ("document", "told"),
    [
        (BOOTSTRAP, "this is an Envoy bootstrap, not a snapshot (xds convert FILE"),
        (DUMP, "this is a config dump of Envoy (/config_dump), not a snapshot (xds convert FILE"),
        (SERVICE, "this is a Kubernetes object of kind 'Service', not a snapshot"),
        (CONSUL_OBJECT, "Kind: service-router and Name: web beside them in place of apiVersion, metadata and spec"),
        (ENTRY, "this is a config entry of kind 'service-router', not a snapshot (xds config-entry write -f FILE"),
    ],
    ids=["bootstrap", "config dump", "Kubernetes object", "Consul object", "config entry"],
)
def test_a_document_of_another_kind(remote: Remote, tmp_path: Path, command: str, document: object, told: str) -> None:
    ran = remote.xds(command, "-f", written(tmp_path / "given.yaml", document))
    assert ran.code == 3
    assert told in ran.out + ran.err
    assert "did you mean" not in ran.out + ran.err


def test_convert_of_a_snapshot(tmp_path: Path) -> None:
    ran = xds("convert", pushed(tmp_path / "edge.yaml", static_cluster("a", 80)))
    assert (ran.code, "a snapshot already" in ran.err) == (3, True)


@pytest.mark.parametrize("document", [{}, {"a": 1}, SERVICE], ids=["nothing", "something else", "Kubernetes object"])
def test_convert_of_a_file_that_is_no_bootstrap(tmp_path: Path, document: object) -> None:
    ran = xds("convert", written(tmp_path / "given.yaml", json.dumps(document)))
    assert (ran.code, ran.out) == (3, "")
    assert "not an Envoy bootstrap" in ran.err or "Kubernetes object" in ran.err


# The wrong server


def test_the_grpc_port_in_place_of_the_admin_api(remote: Remote) -> None:
    ran = xds("nodes", "--server", f"http://{LOOPBACK}:{remote.server.grpc_port}")
    assert ran.code == 7
    assert "this is a gRPC port (HTTP/2), perhaps that of xDS; the admin API is at http://127.0.0.1:18080" in ran.err
    assert "\\x00" not in ran.err


def test_https_to_plain_http(remote: Remote) -> None:
    ran = xds("nodes", "--server", f"https://{LOOPBACK}:{remote.server.http_port}")
    assert (ran.code, "the server speaks plain HTTP there; use http://" in ran.err) == (7, True)


def test_no_server_listens() -> None:
    with socket.socket() as held:
        held.bind((LOOPBACK, 0))
        ran = xds("nodes", "--server", f"http://{LOOPBACK}:{held.getsockname()[1]}")
    assert (ran.code, "cannot reach" in ran.err and "refused" in ran.err.lower()) == (7, True)


# Text


def test_syntax_has_the_line_and_a_caret(tmp_path: Path) -> None:
    text = 'resources:\n- "@type": type.googleapis.com/envoy.config.cluster.v3.Cluster\n  name: [a\n  type: STATIC\n'
    ran = xds("validate", "-f", written(tmp_path / "edge.yaml", text))
    assert ran.code == 3
    assert ran.out.splitlines()[1:3] == ["      type: STATIC", "          ^"]


def test_syntax_of_json_has_the_line_and_a_caret(tmp_path: Path) -> None:
    ran = xds("validate", "-f", written(tmp_path / "edge.json", '{"resources": [}'))
    assert (ran.code, ran.out.splitlines()[-1].strip()) == (3, "^")


def test_a_duplicate_names_the_place_of_the_other(tmp_path: Path) -> None:
    file = pushed(tmp_path / "edge.yaml", static_cluster("a", 80), static_cluster("a", 81))
    ran = xds("validate", "-f", file)
    assert ran.code == 3
    assert f"(the other one is {file}:2:3)" in ran.out


def test_a_duplicate_in_another_file_names_that(remote: Remote, tmp_path: Path) -> None:
    first = pushed(tmp_path / "1.yaml", static_cluster("b", 80), static_cluster("a", 80))
    second = pushed(tmp_path / "2.yaml", static_cluster("a", 81))
    place = next(n for n, line in enumerate(first.read_text().splitlines(), 1) if "name: a" in line and n > 5)
    for command in ("validate", "apply"):
        ran = remote.xds(command, "-g", "edge", "-f", first, "-f", second)
        assert ran.code == 3
        told = ran.out + ran.err
        assert str(second) in told.split("the other one is")[0]
        other = told.split("the other one is ")[1].split(")")[0]
        assert other.startswith(f"{first}:")
        assert int(other.split(":")[1]) <= place


# Values: each with its file, line and column


@pytest.mark.parametrize(
    ("resource", "told"),
    [
        (cluster(clutser_name="x"), "no field 'clutser_name'"),
        (cluster(conect_timeout="1s"), 'did you mean "connect_timeout"?'),
        ({"@type": CLUSTER_TYPE.replace("Cluster", "Clutser"), "name": "a"}, f'did you mean "{CLUSTER_TYPE}"?'),
        (cluster(type="STRICTDNS"), "STRICT_DNS"),
        (cluster(type="Strict-DNS"), 'did you mean "STRICT_DNS"?'),
        (cluster(connect_timeout="1000ms"), 'write "1s"'),
        (cluster(connect_timeout=True), "a duration in seconds"),
        (cluster(per_connection_buffer_limit_bytes="many"), "many"),
        (cluster(per_connection_buffer_limit_bytes=-1), "-1"),
        (cluster(type="STATIC", cluster_type={"name": "x"}), "only one of cluster_type and type can be set"),
        (
            cluster_load_assignment("a", 65536),
            "port_value must be at most 65535",
        ),
        ({"@type": CLUSTER_TYPE}, "a resource needs a name"),
        ({"name": "a"}, "a resource needs an @type"),
        (
            {"@type": "type.googleapis.com/my.own.Type", "name": "a"},
            "a type of your own, or of an Envoy with extensions of its own, needs its descriptor set (--descriptor-set",
        ),
        (cluster(hosts=[]), "use load_assignment"),
    ],
)
def test_a_wrong_value(tmp_path: Path, resource: object, told: str) -> None:
    file = pushed(tmp_path / "edge.yaml", resource)
    ran = xds("validate", "-f", file)
    assert ran.code == 3
    assert told in ran.out
    assert all(line.startswith(f"{file}:") for line in ran.out.splitlines())


def test_an_enum_in_lower_case_is_a_warning(tmp_path: Path) -> None:
    ran = xds("validate", "-f", pushed(tmp_path / "edge.yaml", cluster(type="strict_dns")))
    said(ran, 0, "'strict_dns' is read as STRICT_DNS (write STRICT_DNS)")


def test_a_dangling_reference_is_a_warning_with_a_hint(tmp_path: Path) -> None:
    web = listener("l", inline_routes("r", route("shpo")))
    file = pushed(tmp_path / "edge.yaml", web, static_cluster("shop", 80))
    assert "did you mean 'shop'?" in xds("validate", "-f", file).out
    assert xds("validate", "-f", file).code == 0
    assert xds("validate", "-f", file, "--failure-threshold", "warning").code == 3


# Commands and options


def said(ran: FinishedCommand, code: int, *parts: str) -> None:
    told = ran.out + ran.err
    assert ran.code == code, told
    assert all(part in told for part in parts), told


# What is typed, the exit code, and what the message says.
MISTYPED: list[tuple[str, int, tuple[str, ...]]] = [
    ("get nodes", 2, ("did you mean `xds nodes`?",)),
    ("get node", 2, ("did you mean `xds nodes`?",)),
    ("get revisions", 2, ("did you mean `xds rollout history`?",)),
    ("get clutsers", 2, ("did you mean 'clusters'?",)),
    ("aply", 2, ("apply",)),
    ("rollout udno edge", 2, ("Did you mean 'undo'?",)),
    ("get clusters -o yml", 2, ("'yml' is not one of", "'yaml'")),
    ("apply -f lost.yaml", 2, ("lost.yaml: No such file or directory",)),
    ("nodes --sever x", 2, ("--server",)),
    (f"serve --grpc {LOOPBACK}:99999", 2, ("between 0 and 65535",)),
    ("serve --grpc 0.0.0.0:0 --store memory", 2, ("--insecure",)),
    ("rollout undo edge --to 0x", 2, ("not a revision: '0x'; revisions are numbers",)),
    ("group set edge-1 --selector 'node.id == edge-1'", 3, ('quote the value: "edge-1"',)),
    ("group set edge-1 --selector 'nod.id == \"a\"'", 3, ('did you mean "node"?',)),
    ("nacks --state opened", 2, ("should be 'open' or 'resolved'",)),
]


@pytest.mark.parametrize(("typed", "code", "parts"), MISTYPED, ids=[typed for typed, _, _ in MISTYPED])
def test_what_is_mistyped_is_named_with_what_was_meant(
    remote: Remote, typed: str, code: int, parts: tuple[str, ...]
) -> None:
    said(remote.xds(*shlex.split(typed)), code, *parts)


def test_an_unknown_setting_in_a_file(tmp_path: Path) -> None:
    said(xds("serve", "--config", written(tmp_path / "c.yaml", {"server": {"grcp": {}}})), 2, "grcp", "grpc")


def test_an_unknown_setting_in_the_environment() -> None:
    said(xds("serve", "--store", "memory", environment={"XDS_SERVR__GRPC": "x"}), 2, "XDS_SERVR__GRPC", "'server'")
    said(xds("serve", "--store", "memory", environment={"XDS_SERVER__GRCP": "x"}), 2, "grcp", "did you mean 'grpc'?")


def test_a_setting_of_another_kind(tmp_path: Path) -> None:
    file = written(tmp_path / "c.yaml", {"server": {"drain_s": "soon"}})
    said(xds("serve", "--config", file), 2, "server.drain_s", "valid number", "got a text")


def test_a_warning_of_two_equal_endpoints(tmp_path: Path) -> None:
    twice = cluster_load_assignment("a", 80, 80)
    ran = xds("validate", "-f", pushed(tmp_path / "edge.yaml", eds_cluster("a"), twice))
    said(ran, 0, "Envoy keeps only the first of equal endpoints")


def test_files_are_arguments_too(remote: Remote, tmp_path: Path) -> None:
    file, entry = tmp_path / "positional.json", tmp_path / "entry.yaml"
    file.write_text(json.dumps({"resources": [static_cluster("a", 80)]}))
    entry.write_text("Kind: service-resolver\nName: positional\n")
    for words in ("validate", "apply", "put -g positional"):
        assert remote.xds(*words.split(), file).code == 0
    assert remote.xds("config-entry", "write", entry).code == 0
    for words in ("apply", "put", "validate", "config-entry write"):
        refused = remote.xds(*words.split())
        assert (refused.code, "give a file" in refused.err) == (2, True)


def test_a_finding_has_its_place_in_the_file(remote: Remote, tmp_path: Path) -> None:
    """As those of snapshots have: upstreams, also in the form of ``get``, and policies."""
    upstreams, wrapped, policy = (tmp_path / f"{name}.yaml" for name in ("upstreams", "wrapped", "policy"))
    upstreams.write_text("upstreams:\n  - service: web\n    bind_port: 70000\n")
    wrapped.write_text("document:\n  upstreams:\n    - service: web\n      bind_port: 70000\n")
    policy.write_text("per_locality_rps: 50\nnonsense: 1\n")
    remote.server.push("placed", [static_cluster("a", 80)])
    for file, words in ((upstreams, ["upstreams", "set", "placed"]), (wrapped, ["upstreams", "set", "placed"])):
        assert f"{file}:{3 + (file is wrapped)}:" in remote.xds(*words, "-f", file).err
    assert f"{policy}:2:1 " in remote.xds("assignment", "set", "a", "-g", "placed", "-f", policy).err


def test_a_missing_revision_of_config_entries_is_reported_in_words(remote: Remote, tmp_path: Path) -> None:
    remote.xds("config-entry", "write", "-f", "-", stdin="Kind: service-resolver\nName: undone\n")
    refused = remote.xds("config-entry", "undo", "--to", "99")
    assert refused.code == 4
    assert "%" not in refused.err


def test_python_m_xds_is_the_command() -> None:
    command = [sys.executable, "-m", "xds", "--version"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, timeout=60, check=False)
    assert (ran.returncode, ran.stdout[:10]) == (0, "xds-server")
