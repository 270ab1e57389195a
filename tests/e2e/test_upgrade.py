"""A data directory and a configuration of an earlier release: the server starts, migrates, serves the same versions.

``earlier_release`` was made by the server of commit 8dd8ead, the last one before authorship and the audit list. It was
ended by SIGKILL, so most of its data is in the write-ahead log. ``expected.json`` is what that server answered.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import resources as r
from tests.support.commands import FinishedCommand, address, xds
from tests.support.server import ServerProcess

Json = dict[str, Any]

EARLIER = Path(__file__).parent / "earlier_release"
GROUPS = ("edge", "web")


@pytest.fixture
def upgraded(tmp_path: Path) -> Iterator[ServerProcess]:
    """The server of today on the data and the configuration of then."""
    server = ServerProcess(tmp_path, ["--config", str(EARLIER / "xds.yaml")], token="root")
    server.data.mkdir(mode=0o700)
    with tarfile.open(EARLIER / "data.tar.xz") as archive:
        archive.extractall(server.data, filter="data")
    with server:
        yield server


def expected() -> Json:
    read: Json = json.loads((EARLIER / "expected.json").read_text())
    return read


def as_then(item: Json, then: Json) -> Json:
    """What is answered today, without what was not answered then."""
    return {name: value for name, value in item.items() if name in then}


def check_same(server: ServerProcess) -> None:
    """It serves what was served then, under the same versions, and knows the same history."""
    then = expected()
    for group in GROUPS:
        snapshot = server.get(f"/groups/{group}/snapshot", show_secrets="true")
        assert as_then(snapshot, then[group]) == then[group]
        past = then[f"{group} history"]
        lines = server.get(f"/groups/{group}/revisions")["items"][-len(past) :]
        assert [as_then(line, old) for line, old in zip(lines, past, strict=True)] == past
    served = server.request("POST", "/v3/discovery:clusters", json={"node": {"id": "edge-1"}})
    assert served.json() == then["served"]


def run(server: ServerProcess, *arguments: str) -> FinishedCommand:
    return xds(*arguments, environment={**address(server.http_port), "XDS_TOKEN": "root"})


def test_everything_is_as_it_was(upgraded: ServerProcess) -> None:
    check_same(upgraded)
    groups = {item["group"]: item for item in upgraded.get("/groups")["items"]}
    assert sorted(groups) == [*GROUPS]
    edge = groups["edge"]
    assert (edge["selector"], edge["priority"], edge["on_nack"]) == ('node.id == "edge-1"', 7, "proceed")
    policy = upgraded.get("/groups/web/assignments/web")["policy"]
    assert policy["capacity"] == {"rates": [{"per_locality_rps": 100.0}]}
    assert upgraded.get("/audit")["items"] == []
    assert run(upgraded, "check").code == 0
    upgraded.kill()
    upgraded.start()
    check_same(upgraded)


def test_it_goes_on_where_it_was(upgraded: ServerProcess) -> None:
    undone = run(upgraded, "rollout", "undo", "edge")
    assert (undone.code, "revision 4 again" in undone.err) == (0, True), undone.err
    line, *_ = upgraded.get("/groups/edge/revisions")["items"]
    assert (line["revision"], line["kind"], line["content_of"]) == (6, "rollback", 4)
    assert upgraded.push("edge", [r.static_cluster("a", 1)])["revision"] == 7
    assert upgraded.push("gone", [r.static_cluster("a", 1)])["revision"] == 3, "behind its first push and its deletion"
    assert [item["action"] for item in upgraded.get("/audit")["items"]] == ["rollback", "push", "push"]


def test_tokens_keep_their_rights(upgraded: ServerProcess) -> None:
    snapshot = {"resources": [r.static_cluster("a", 1)]}
    for group, status in (("edge-2", 200), ("web", 403)):
        headers = {"authorization": "Bearer secret"}
        answer = upgraded.request("PUT", f"/api/v1/groups/{group}/snapshot", json=snapshot, headers=headers)
        assert answer.status_code == status


def test_a_setting_that_has_moved_is_told(upgraded: ServerProcess) -> None:
    log = upgraded.process.log()
    assert "server.order: this setting is now 'order.enabled'; the old name still works" in log
    assert upgraded.get("/config")["order"]["enabled"] is True
