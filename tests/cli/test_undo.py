"""``rollout undo``, ``rollout history`` and ``audit`` with tokens: by two people, twice, and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Remote
from tests.cli.proxy import Proxy
from tests.cli.test_terminal import terminal
from tests.support.commands import FinishedCommand, xds
from tests.support.process import LOOPBACK
from tests.support.resources import (
    cluster_load_assignment,
    eds_cluster,
    static_cluster,
    steered_cluster,
    zoned_load_assignment,
)
from tests.support.server import ServerProcess

TOKENS = {"ops": ["admin"], "team-edge": ["read", "write:group/edge*"]}


@dataclass(frozen=True)
class Team:
    """The server and its users."""

    server: ServerProcess
    directory: Path

    def xds(self, *arguments: str, token: str = "team-edge", user: str = "root") -> FinishedCommand:
        file = self.directory / f"{token}.token"
        file.write_text(token)
        flags = ["--server", f"http://{LOOPBACK}:{self.server.http_port}", "--token-file", str(file)]
        return xds(*arguments, *flags, environment={"LOGNAME": user})

    def push(self, group: str, *resources: object, user: str = "root") -> None:
        file = self.directory / "snapshot.json"
        file.write_text(json.dumps({"resources": resources}))
        done = self.xds("apply", "-g", group, "-f", str(file), user=user)
        assert done.code == 0, done.err

    def entries(self, *arguments: str) -> list[dict[str, Any]]:
        """The audit list."""
        items: list[dict[str, Any]] = self.xds("audit", *arguments, "-o", "json").json()["items"]
        return items

    def names(self, group: str) -> list[str]:
        return self.xds("get", "clusters", "-g", group, "-o", "name").out.split()


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    directory = tmp_path_factory.mktemp("team")
    tokens = [
        {"name": name, "sha256": sha256(name.encode()).hexdigest(), "scopes": scopes} for name, scopes in TOKENS.items()
    ]
    with ExitStack() as running:
        server = ServerProcess(directory, [], {"XDS_AUTH__TOKENS": json.dumps(tokens)}, token="ops")
        yield Team(running.enter_context(server), directory)


def test_history_shows_author_and_changes(team: Team) -> None:
    team.push("edge-1", static_cluster("a", 80))
    team.push("edge-1", static_cluster("a", 81), user="ceo")
    assert team.xds("rollout", "undo", "edge-1", "-m", "503s").code == 0
    columns = ("--columns", "revision,author,what,message", "--no-headers")
    lines = team.xds("rollout", "history", "edge-1", *columns).out.splitlines()
    assert [line.split(None, 1) for line in lines] == [
        ["3", "team-edge (root)  rollback to 1       503s"],
        ["2", "team-edge (ceo)   push (undone by 3)  -"],
        ["1", "team-edge (root)  push                -"],
    ]
    assert "team-edge (root)" in team.xds("get", "groups", "-o", "wide").out
    assert "by team-edge (root)" in team.xds("describe", "group", "edge-1").out


def test_undo_twice_then_nothing(team: Team) -> None:
    for name in ("first", "second", "bad"):
        team.push("edge-2", static_cluster(name, 80))
    undone = team.xds("rollout", "undo", "edge-2")
    assert "undoes revision 3 by team-edge (root): revision 2 again" in undone.err
    assert team.names("edge-2") == ["second"]
    assert team.xds("rollout", "undo", "edge-2").code == 0
    assert team.names("edge-2") == ["first"]
    assert team.xds("rollout", "undo", "edge-2").code == 4


def test_two_people_undo_at_once(team: Team) -> None:
    for name in ("first", "second", "bad"):
        team.push("edge-3", static_cluster(name, 80))
    with ThreadPoolExecutor(4) as people:
        done = list(people.map(lambda user: team.xds("rollout", "undo", "edge-3", user=user), ("ann", "bob")))
    assert sorted(each.code for each in done) == [0, 5]
    assert team.names("edge-3") == ["second"]
    (late,) = [each for each in done if each.code == 5]
    # Both planned at once and one was first, or one planned after the other was done.
    assert "the group was changed in the meantime" in late.err or "nothing was changed" in late.err
    kinds = [item["kind"] for item in team.server.get("/groups/edge-3/revisions")["items"]]
    assert kinds == ["rollback", "push", "push", "push"]


def test_an_undo_after_one_of_another_user_asks_first(team: Team) -> None:
    """A second person undoes some seconds later, and means the same push."""
    group = "edge-11"
    for name in ("first", "second", "bad"):
        team.push(group, static_cluster(name, 80))
    assert team.xds("rollout", "undo", group, user="ann").code == 0
    late = team.xds("rollout", "undo", group, user="bob")
    assert late.code == 5
    assert f"group {group}: team-edge (ann) went back to revision 2 " in late.err
    assert "in revision 4: nothing was changed; to go further back, pass --if-match 4" in late.err
    assert team.names(group) == ["second"]
    assert team.xds("rollout", "undo", group, "--if-match", "4", user="bob").code == 0
    assert team.names(group) == ["first"]
    what = team.xds("rollout", "history", group, "--columns", "author,what", "--no-headers").out.splitlines()
    assert what[:2] == ["team-edge (bob)   rollback to 1", "team-edge (ann)   rollback to 2 (undone by 5)"]


def test_an_undo_of_a_shown_plan_fails_if_another_user_pushed(team: Team) -> None:
    for name in ("first", "second", "bad"):
        team.push("edge-4", static_cluster(name, 80))
    assert team.xds("rollout", "undo", "edge-4", "--if-match", "3", user="ann").code == 0
    late = team.xds("rollout", "undo", "edge-4", "--if-match", "3", user="bob")
    assert (late.code, "the group was changed in the meantime" in late.err) == (5, True)
    assert team.names("edge-4") == ["second"]


def test_undo_keeps_the_endpoints_of_now(team: Team) -> None:
    group = "edge-5"
    team.push(group, eds_cluster("a"), cluster_load_assignment("a", 81))
    team.push(group, eds_cluster("a"), cluster_load_assignment("a", 81), static_cluster("bad", 80))
    team.push(group, eds_cluster("a"), cluster_load_assignment("a", 82), static_cluster("bad", 80))
    undone = team.xds("rollout", "undo", group)
    assert (undone.out, "with the current endpoints" in undone.err) == (
        f"group {group}: revision 4: -1 clusters\n",
        True,
    )
    assert "port_value: 82" in team.xds("get", "endpoint", "a", "-g", group).out
    columns = ("--columns", "revision,what", "--no-headers")
    lines = team.xds("rollout", "history", group, *columns).out.splitlines()
    assert [line.split(None, 1)[1] for line in lines] == ["rollback to 1", "endpoints", "push (undone by 4)", "push"]
    assert len(team.xds("rollout", "history", group, "--no-endpoints", "--no-headers").out.splitlines()) == 3
    assert team.xds("rollout", "undo", group, "--to", "1", "--endpoints").code == 0
    assert "port_value: 81" in team.xds("get", "endpoint", "a", "-g", group).out


def test_an_undone_revision_that_is_restored_counts_as_good(team: Team) -> None:
    group = "edge-6"
    for name in ("first", "second"):
        team.push(group, static_cluster(name, 80))
    assert team.xds("rollout", "undo", group).code == 0  # to the first
    team.push(group, static_cluster("third", 80))
    assert team.xds("rollout", "undo", group, "--to", "2").code == 0
    assert team.names(group) == ["second"]
    assert team.xds("rollout", "undo", group).code == 0
    assert team.names(group) == ["first"]


def test_undo_is_refused_when_all_earlier_revisions_were_rejected(remote: Remote) -> None:
    group = "refusing"
    with Proxy(remote.server.grpc_port, "proxy-1", group) as proxy:
        proxy.nack = "no, thanks"
        remote.server.push(group, [static_cluster("first", 80)], message="one")
        proxy.answer()
        remote.server.wait_nack("proxy-1", "clusters")
        remote.server.push(group, [static_cluster("second", 80)])
        undone = remote.xds("rollout", "undo", group)
    assert undone.code == 5
    assert "every earlier revision was undone or rejected:\n  1  " in undone.err
    assert "one  (rejected by 1 of 1 nodes)\nchoose one with --to" in undone.err
    what = remote.xds("rollout", "history", group, "--columns", "what", "--no-headers").out.splitlines()
    assert what == ["push", "push (rejected by 1 of 1)"]
    with terminal(remote, "rollout", "undo", group) as asked:
        asked.shows("go back to which revision?")
        asked.type("7\n")
        assert asked.code() == 1
    assert "nothing was changed" in asked.text
    with terminal(remote, "rollout", "undo", group) as asked:
        asked.shows("go back to which revision?")
        asked.type("1\n")
        assert asked.code() == 0
    assert remote.xds("get", "clusters", "-g", group, "-o", "name").out.split() == ["first"]


def test_audit_lists_writes_and_refused_writes(team: Team) -> None:
    group = "edge-7"
    team.push(group, static_cluster("a", 80))
    forbidden = team.xds("delete", "core", "--allow-empty")
    assert (forbidden.code, "the token 'team-edge' lacks the scope write:group/core" in forbidden.err) == (6, True)
    listed = team.entries("--since", "10m")
    pushed = [item for item in listed if item.get("group") == group]
    assert [(item["action"], item["actor"], item["author"]) for item in pushed] == [("push", "team-edge", "root")]
    assert pushed[0]["peer"].startswith(f"{LOOPBACK}:")
    (refused,) = team.entries("--refused", "-g", "core")
    assert (refused["actor"], refused["reason"].split()[0], refused["subject"]) == (
        "team-edge",
        "403",
        "DELETE /groups/{group}",
    )
    table = team.xds("audit", "-g", group)
    assert "team-edge (root)" in table.out and "revision 1" in table.out
    cursor = table.err.split("--cursor ")[1].strip()
    assert team.xds("audit", "--cursor", cursor, "-o", "name").out == ""
    team.push(group, static_cluster("a", 81))
    team.push(group, static_cluster("a", 82))
    revisions = [item["revision"] for item in team.entries("-g", group)]
    assert revisions == [3, 2, 1], "the latest first, as in history"
    assert [item["revision"] for item in team.entries("-g", group, "--limit", "2")] == [3, 2]
    assert [item["revision"] for item in team.entries("-g", group, "--cursor", cursor)] == [2, 3]
    assert team.xds("audit", "--cursor", "nonsense").code == 2
    assert team.xds("audit", "--since", "yesterday").code == 2


def test_audit_of_writes_and_refusals_survives_kill_9(team: Team) -> None:
    group = "edge-8"
    team.push(group, static_cluster("a", 80))
    assert team.server.request("PUT", f"/api/v1/groups/{group}", json={"selector": "node.id == x"}).is_success
    stale = team.server.request("DELETE", f"/api/v1/groups/{group}", headers={"if-match": "r9"})
    assert stale.status_code == 412
    before = team.entries("-g", group)
    cursor = team.xds("audit", "-o", "name").err.split("--cursor ")[1].strip()
    team.server.kill()
    team.server.start()
    after = team.entries("-g", group)
    assert [item["action"] for item in after] == ["refused", "group.configured", "push"]
    assert after == before
    team.push(group, static_cluster("a", 81))
    later = team.entries("--cursor", cursor)
    assert [(item["action"], item["revision"]) for item in later] == [("push", 2)]
    lines = team.server.get(f"/groups/{group}/revisions")["items"]
    assert {(line["actor"], line["author"]) for line in lines} == {("team-edge", "root")}


def test_settings_and_policies_have_an_author(team: Team, tmp_path: Path) -> None:
    group = "edge-10"
    team.push(group, steered_cluster("web"), zoned_load_assignment("web", {"za": [1], "zb": [2]}))
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"capacity": {"rates": [{"per_locality_rps": 100}]}}))
    for command in (
        ("group", "set", group, "--priority", "3"),
        ("assignment", "set", "web", "-g", group, "-f", str(policy)),
        ("assignment", "delete", "web", "-g", group, "-y"),
    ):
        ran = team.xds(*command, user="ceo", token="ops")
        assert ran.code == 0, ran.err
    written = [(item["action"], item["actor"], item["author"]) for item in team.entries("-g", group)]
    assert written[:-1] == [(action, "ops", "ceo") for action in ("policy.deleted", "policy.put", "group.configured")]


def test_events_show_actor_and_author_in_one_text(team: Team) -> None:
    team.push("edge-9", static_cluster("a", 80), user="ceo")
    line = team.xds("watch", "-g", "edge-9", "--kinds", "push", "--since", "0", "--limit", "1").out
    assert "by=team-edge (ceo)" in line
