"""The exit codes of docs/command-line.md for bad arguments, bad files and names that nothing has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Remote
from tests.support.resources import cluster_load_assignment, eds_cluster, route, route_config, static_cluster
from xds.cli.errors import Exit

NOWHERE = "/nonexistent"
# Arguments that no server state makes right, of each kind: a selector, an age, a choice, a range, a cursor, an etag,
# a kind, an address, a number, a name of the command line, a file that is not there.
USAGE: list[list[str]] = [
    ["nodes", "-l", "node.id =="],
    ["nodes", "-l", 'node.locality == "eu"'],
    ["nodes", "--state", "nope"],
    ["nodes", "--limit", "x"],
    ["nodes", "--columns", "nope"],
    ["nodes", "-o", "nope"],
    ["nodes", "extra"],
    ["nodes", "--token-file", NOWHERE],
    ["--nonsense"],
    ["nacks", "--since", "yesterday"],
    ["nacks", "--state", "nope"],
    ["nacks", "--type", "nope"],
    ["history", "--since", "yesterday"],
    ["audit", "--since", "yesterday"],
    ["audit", "--cursor", "nonsense"],
    ["watch", "--kinds", "nonsense", "--no-follow"],
    ["watch", "--since", "yesterday", "--no-follow"],
    ["load", "--window", "99h"],
    ["load", "--window", "x"],
    ["config-entry", "list", "nope"],
    ["config-entry", "read", "nope", "x"],
    ["get", "nope"],
    ["apply", "-g", "edge", "-f", "FILE", "--if-match", "abc"],
    ["apply", "-g", "edge", "-f", "FILE", "--dry-run=nope"],
    ["apply", "-g", "edge", "-f", "FILE", "--wait=0%"],
    ["apply", "-g", "edge", "-f", NOWHERE],
    ["group", "set", "edge", "--priority", "1", "--if-match", "abc"],
    ["group", "set", "edge", "--removal-delay", "x"],
    ["diff", "-g", "edge", "--from", "x", "--to", "1"],
    ["rollout", "undo", "edge", "--to", "x"],
    ["destination", "get", "a b"],
    ["destination", "get", "web:99999"],
    ["destination", "get", "web", "--xds-addr", "nope"],
    ["destination", "explain", "linkerd.io"],
    ["chain", "web", "--path", "nopath"],
    ["serve", "--watch", NOWHERE],
    ["serve", "--config", NOWHERE],
    ["store", "check", "--data", NOWHERE],
    ["validate", NOWHERE],
]
INVALID: list[list[str]] = [
    ["apply", "-g", "edge", "-f", "BROKEN"],
    ["validate", "BROKEN"],
    ["config-entry", "write", "-f", "BROKEN"],
    ["group", "set", "edge", "--selector", "node.id =="],
    ["group", "set", "edge", "--on-nack", "nope"],
    ["endpoints", "add", "a", "nope", "-g", "edge"],
    ["explain", "--node-file", "BROKEN"],
    ["restore", "BROKEN"],
]
NOT_FOUND: list[list[str]] = [
    ["get", "clusters", "-g", "nosuch"],
    ["get", "cluster", "nosuch", "-g", "edge"],
    ["describe", "node", "nosuch"],
    ["group", "show", "nosuch"],
    ["rollout", "undo", "edge", "--to", "99"],
    ["explain", "nosuch"],
    ["diff", "-g", "edge", "--from", "1", "--to", "99"],
    ["get", "snapshot", "-g", "nosuch"],
    ["config-entry", "read", "service-defaults", "nosuch"],
    ["service", "show", "nosuch"],
    ["upstreams", "get", "nosuch"],
]
ASKED = [(code, asked) for code, rows in ((2, USAGE), (3, INVALID), (4, NOT_FOUND)) for asked in rows]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, remote: Remote) -> dict[str, str]:
    """Files by the words that stand for them; the server has the group ``edge``."""
    directory = tmp_path_factory.mktemp("files")
    remote.server.push("edge", [static_cluster("a")])
    good, broken = directory / "good.json", directory / "broken.yaml"
    good.write_text('{"resources": []}')
    broken.write_text("resources: [")
    return {"FILE": str(good), "BROKEN": str(broken)}


@pytest.mark.parametrize("code, asked", ASKED, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_findings_set_the_exit_code(remote: Remote, files: dict[str, str], code: int, asked: list[str]) -> None:
    ran = remote.xds(*(files.get(word, word) for word in asked))
    assert (Exit(ran.code), bool(ran.err or ran.out)) == (Exit(code), True), ran.err
    assert "Traceback" not in ran.err
    assert code != Exit.NOT_FOUND or "nosuch" in ran.err or "99" in ran.err, "what is not there is named"


def test_failed_commands_make_no_revision(remote: Remote, files: dict[str, str], tmp_path: Path) -> None:
    assert remote.server.get("/groups/edge")["revision"] == 1


# What the guards of the server refuse, and the option that does it all the same.
GUARDED: list[tuple[list[str], str]] = [
    (["endpoints", "drain", "web", "127.0.0.1:80", "--for", "1s"], "--allow-empty"),
    (["endpoints", "remove", "web", "127.0.0.1:80"], "--allow-empty"),
    (["delete", "cluster", "web"], "--force"),
]


@pytest.mark.parametrize("asked, option", GUARDED, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_guarded_change_is_a_conflict_and_names_its_option(remote: Remote, asked: list[str], option: str) -> None:
    resources = [eds_cluster("web"), cluster_load_assignment("web", 80), route_config("r", route("web"))]
    remote.server.push("guarded", resources)
    remote.server.request("DELETE", "/api/v1/groups/guarded/endpoints/web")
    before = remote.server.get("/groups/guarded")["etag"], remote.server.get("/groups/guarded/endpoints/web")
    ran = remote.xds(*asked, "-g", "guarded")
    assert (Exit(ran.code), f"pass {option} to do it anyway" in ran.err) == (Exit.CONFLICT, True), ran.err
    assert before == (
        remote.server.get("/groups/guarded")["etag"], remote.server.get("/groups/guarded/endpoints/web"),
    ), "nothing was changed"  # fmt: skip
    insisted = remote.xds(*asked, "-g", "guarded", option)
    assert insisted.code == 0, insisted.err


def test_a_precondition_that_fails_is_a_conflict(remote: Remote, files: dict[str, str]) -> None:
    ran = remote.xds("apply", "-g", "edge", "-f", files["FILE"], "--if-match", "99")
    assert Exit(ran.code) is Exit.CONFLICT, ran.err
    assert Exit(remote.xds("group", "set", "edge", "--priority", "1", "--if-match", "s-0").code) is Exit.CONFLICT
