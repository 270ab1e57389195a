"""``group``: settings and deletion; ``put``; ``whoami``; flags named in refusals."""

from __future__ import annotations

import json
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.support.process import LOOPBACK
from tests.support.resources import static_cluster
from tests.support.server import ServerProcess
from xds.calls.call import ApiCall
from xds.cli.client import Client
from xds.cli.commands import group as group_settings


def settings(remote: Remote, group: str) -> tuple[object, ...]:
    item = remote.server.get(f"/groups/{group}")
    return tuple(item[name] for name in ("selector", "priority", "on_nack", "removal_delay_s", "listener_drain_s"))


def test_settings_that_are_not_given_stay(remote: Remote, group: str) -> None:
    ran = remote.xds("group", "set", group, "--selector", "node.id == x", "--priority", "5", "--removal-delay", "0")
    expected = "selector - -> 'node.id == x', priority 0 -> 5, removal-delay - -> 0"
    assert (ran.code, ran.out) == (0, f"group {group}: {expected}\n")
    assert remote.xds("group", "set", group, "--on-nack", "proceed", "--listener-drain", "2m").code == 0
    assert settings(remote, group) == ("node.id == x", 5, "proceed", 0, 120)
    ran = remote.xds("group", "set", group, "--selector", "", "--on-nack", "default", "--removal-delay", "default")
    assert ran.out == f"group {group}: selector 'node.id == x' -> -, on-nack 'proceed' -> -, removal-delay 0 -> -\n"
    assert settings(remote, group) == ("", 5, "", None, 120)
    assert remote.xds("group", "set", group, "--priority", "5").out == f"group {group}: unchanged\n"


def test_two_concurrent_changes_of_settings_are_both_kept(
    remote: Remote, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    present = Client.find
    others = iter(({"priority": 5}, {"priority": 5, "on_nack": "proceed"}))

    def read_before_another(client: Client, call: ApiCall[Any]) -> dict[str, Any] | None:
        found = present(client, call)
        if (change := next(others, None)) is not None:
            assert remote.server.request("PUT", f"/api/v1/groups/{group}", json=change).is_success
        return found

    monkeypatch.setattr(Client, "find", read_before_another)
    client = Client(f"{LOOPBACK}:{remote.server.http_port}")
    group_settings.set_group(client, group, {"removal_delay_s": 5.0}, {})
    assert settings(remote, group) == ("", 5, "proceed", 5, None)


def test_a_change_is_refused_if_the_settings_changed_since_they_were_read(remote: Remote, group: str) -> None:
    assert remote.xds("group", "set", group, "--priority", "5", "--if-match", "none").code == 0
    etag = remote.xds("group", "show", group, "-o", "json").json()["settings_etag"]
    assert etag in remote.xds("group", "show", group).out
    assert remote.xds("group", "set", group, "--priority", "6", "--if-match", etag).code == 0
    for stale in (etag, "none"):
        refused = remote.xds("group", "set", group, "--priority", "7", "--if-match", stale)
        assert (refused.code, f"group {group!r} has the settings s-" in refused.err) == (5, True)
    assert settings(remote, group)[1] == 6


def test_a_dry_run_and_a_failed_change_change_nothing(remote: Remote, group: str) -> None:
    dry = remote.xds("group", "set", group, "--priority", "7", "--dry-run")
    assert (dry.code, dry.out, "nothing was changed" in dry.err) == (0, f"group {group}: priority 0 -> 7\n", True)
    wrong = remote.xds("group", "set", group, "--selector", "node.id == edge-1", "--priority", "99999999")
    assert wrong.code == 3
    assert "--selector: selector, column " in wrong.err
    assert "--priority: priority must be between" in wrong.err
    assert "/selector" not in wrong.err
    assert remote.xds("group", "set", group, "--on-nack", "maybe").code == 3
    nothing = remote.xds("group", "set", group)
    assert (nothing.code, "--selector, --priority" in nothing.err) == (2, True)
    assert remote.xds("group", "set", group, "--removal-delay", "soon").code == 2
    assert settings(remote, group) == ("", 0, "", None, None)


def test_groups_are_listed_and_shown(remote: Remote, group: str) -> None:
    remote.xds("group", "set", group, "--selector", "node.id == x", "--priority", "3")
    listed = remote.xds("group", "list", "-o", "json").json()["items"]
    assert [item["selector"] for item in listed if item["group"] == group] == ["node.id == x"]
    (row,) = (line for line in remote.xds("group", "list").out.splitlines() if line.split()[0] == group)
    assert row.split()[1:4] == ["0", "1", "3"]
    shown = remote.xds("group", "show", group).out
    assert "selector:" in shown
    assert "node.id == x" in shown
    assert remote.xds("group", "show", group, "-o", "json").json()["priority"] == 3
    assert remote.xds("group", "show", "none").code == 4


def test_a_group_can_be_made_before_its_snapshot(remote: Remote) -> None:
    made = remote.xds("group", "set", "early", "--selector", "node.id == early")
    assert "no nodes belong to it until one is pushed (xds apply -g early -f ...)" in made.err
    assert "none: no nodes belong to it yet" in remote.xds("group", "show", "early").out
    assert remote.xds("group", "delete", "early").code == 0


def test_names_of_new_groups_are_plain(remote: Remote, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({"resources": [static_cluster("a", 80)]}))
    for arguments in (("apply", "-g", "a b", "-f", file), ("group", "set", "a b", "--priority", "1")):
        refused = remote.xds(*arguments)
        assert (refused.code, "the name of a new group has 1 to 256 of A-Z a-z 0-9" in refused.err) == (3, True)


@pytest.mark.parametrize("command", [("delete",), ("group", "delete")], ids=" ".join)
def test_a_canary_ends(remote: Remote, command: tuple[str, ...]) -> None:
    """Deleting needs no flag while every node moves to another group; a refusal names a flag that the command has."""
    server, names = remote.server, [f"canary-{number}" for number in range(2)]
    server.push("edge", [static_cluster("a", 80)])
    server.push("canary", [static_cluster("a", 81)])
    remote.xds("group", "set", "canary", "--selector", 'node.id matches "^canary-"', "--priority", "10")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(Proxy(server.grpc_port, name, "edge")).answer()
            server.wait_synced("canary", name)
        dry = remote.xds(*command, "canary", "--dry-run")
        assert (dry.code, "2 nodes would move to edge" in dry.err) == (0, True)
        done = remote.xds(*command, "canary")
        assert (done.code, "2 nodes move to edge" in done.err) == (0, True)
        assert "allow" not in done.err
        assert {server.nodes()[name]["group"] for name in names} == {"edge"}
        last = remote.xds(*command, "edge")
        assert last.code == 5
        assert "2 nodes would match no group" in last.err
        assert "pass --allow-empty to do it anyway" in last.err
        assert "allow_empty" not in last.err
        gone = remote.xds(*command, "edge", "--allow-empty")
        assert (gone.code, "2 nodes belong to no group any more, and keep the current configuration" in gone.err) == (
            0,
            True,
        )


def test_emptying_names_the_flag_of_the_command(remote: Remote, group: str, tmp_path: Path) -> None:
    """However it is emptied: alone, with other groups, by an undo."""
    empty, other = tmp_path / f"{group}.yaml", tmp_path / "other.yaml"
    for file in (empty, other):
        file.write_text("resources: []\n")
    remote.server.push(group, [])
    remote.server.push(group, [static_cluster("a", 80)])
    with Proxy(remote.server.grpc_port, f"{group}-1", group) as proxy:
        proxy.answer()
        remote.server.wait_synced(group, f"{group}-1")
        for arguments in (
            ("apply", "-f", empty),
            ("apply", "-f", other, "-f", empty),
            ("delete", "cluster", "a", "-g", group),
            ("rollout", "undo", group),
        ):
            refused = remote.xds(*arguments)
            assert refused.code == 5, arguments
            assert "with 1 node connected; pass --allow-empty to do it anyway" in refused.err, arguments
            assert "allow_empty" not in refused.err, arguments
        assert remote.xds("rollout", "undo", group, "--allow-empty").code == 0


def test_single_resources_are_put_and_the_rest_stays(remote: Remote, group: str, tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    file.write_text(json.dumps(static_cluster("b", 80)))
    assert remote.xds("put", "-g", group, "-f", file).out == f"group {group}: revision 2: +1 clusters\n"
    both = [static_cluster("b", 81), static_cluster("c", 81)]
    (tmp_path / "both.json").write_text(json.dumps({"resources": both}))
    dry = remote.xds("put", "-g", group, "-f", tmp_path / "both.json", "--dry-run")
    assert dry.out == f"group {group}: would change: +1 clusters, ~1 clusters\n"
    done = remote.xds("put", "-g", group, "-f", tmp_path / "both.json", "-m", "why", "--if-match", "2", "-o", "json")
    assert done.json()["changes"]["clusters"] == {"added": ["c"], "changed": ["b"], "removed": []}
    assert remote.server.get(f"/groups/{group}/revisions")["items"][0]["message"] == "why"
    assert remote.xds("get", "clusters", "-g", group, "-o", "name").out.split() == ["a", "b", "c"]
    assert remote.xds("put", "-g", group, "-f", file, "--if-match", "2").code == 5
    taken = remote.xds("get", "cluster", "c", "-g", group, "-o", "yaml").out.replace("81", "82")
    fed = remote.xds("put", "-g", group, "-f", "-", stdin=taken)
    assert fed.out == f"group {group}: revision 4: ~1 clusters\n"
    assert remote.xds("put", "-g", group, "-f", "-").code == 3, "there is nothing on standard input"


def test_a_put_makes_no_group_by_mistake(remote: Remote, tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps(static_cluster("a", 80)))
    refused = remote.xds("put", "-g", "ghost", "-f", file)
    assert (refused.code, refused.err) == (4, "xds: there is no group 'ghost'; pass --create to make it\n")
    assert remote.xds("get", "snapshot", "-g", "ghost").code == 4
    assert remote.xds("put", "-g", "ghost", "-f", file, "--create").out == "group ghost: revision 1: +1 clusters\n"
    assert remote.xds("put", "-g", "ghost", "-f", file, "--create").out == "group ghost: revision 1, unchanged\n"


def test_errors_of_a_put_are_reported_with_their_place(remote: Remote, group: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(json.dumps([static_cluster("b", 80), {**static_cluster("c", 80), "connect_timeout": "soon"}]))
    refused = remote.xds("put", "-g", group, "-f", bad)
    assert refused.code == 3
    assert f"{bad}:1:" in refused.err
    assert " clusters/c /connect_timeout: " in refused.err
    versioned = tmp_path / "versioned.json"
    versioned.write_text(json.dumps({"version": "v1", "resources": [static_cluster("b", 80)]}))
    assert "version is for whole snapshots" in remote.xds("put", "-g", group, "-f", versioned).err
    assert remote.xds("get", "clusters", "-g", group, "-o", "name").out.split() == ["a"]


def test_whoami_without_tokens(remote: Remote) -> None:
    assert remote.xds("whoami").out.startswith("principal: none; the server requires no credentials\n")
    assert remote.xds("whoami", "-o", "json").json()["authenticated"] is False


def test_whoami_and_preconditions_of_writes(tmp_path: Path, running: ExitStack) -> None:
    scopes = ["read", "write:group/edge*"]
    tokens = json.dumps([{"name": "ci", "sha256": sha256(b"secret").hexdigest(), "scopes": scopes}])
    environment = {"XDS_AUTH__TOKENS": tokens, "XDS_SERVER__REQUIRE_IF_MATCH": "true"}
    server = running.enter_context(ServerProcess(tmp_path, ["--store", "memory"], environment, token="secret"))
    remote = Remote(server)
    (tmp_path / "token").write_text("secret")
    credentials = ("--token-file", str(tmp_path / "token"))
    assert (
        remote.xds("whoami", *credentials).out
        == "principal: token:ci\nname:      ci\nscopes:    read, write:group/edge*\n"
    )
    assert remote.xds("whoami").code == 6
    file = tmp_path / "edge.json"
    file.write_text(json.dumps({"resources": [static_cluster("a", 80)]}))
    refused = remote.xds("apply", "-f", file, *credentials)
    assert refused.code == 5
    assert "pass --if-match with the revision that you expect" in refused.err
    assert "If-None-Match" not in refused.err
    assert remote.xds("apply", "-g", "edge-new", "-f", file, "--if-match", "0", *credentials).code == 0
    assert remote.xds("group", "set", "edge-new", "--on-nack", "proceed", *credentials).code == 0
    for setting in (("--selector", "node.id == x"), ("--priority", "1")):
        assert remote.xds("group", "set", "edge-new", *setting, *credentials).code == 6
    assert remote.xds("put", "-g", "edge", "-f", file, "--create", *credentials).code == 0
    assert remote.xds("put", "-g", "edge", "-f", file, *credentials).code == 0
