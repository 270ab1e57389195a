"""Data, backups and configurations of earlier releases: the server starts, migrates, serves the same versions.

The folders of ``earlier_releases`` are named after commits; ``expected.json`` is what the server of that commit
answered. 8dd8ead is the last one before authorship and the audit list. It was ended by SIGKILL, so most of its data is
in the write-ahead log. `release_state` made the others.
"""

from __future__ import annotations

import json
import lzma
import sqlite3
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.release_state import METADATA, TOKEN, WEB, lost, picture, served
from tests.support import resources as r
from tests.support.bootstrap import EnvoyBootstrap, Variant
from tests.support.commands import FinishedCommand, address, xds
from tests.support.envoy import EnvoyProcess
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.recorded_xds import RecordedXds
from tests.support.server import ServerProcess
from tests.support.server_forks import serve_to_end
from xds.store.sql.tables import SCHEMA_VERSION

Json = dict[str, Any]

EARLIER = Path(__file__).parent / "earlier_releases"
FIRST, LATEST = EARLIER / "8dd8ead", EARLIER / "3582321c"
GROUPS = ("edge", "web")
TOUCHED = r"(added|modified|removed|updated|config_reload|update_rejected|update_empty)$"
ANSWERS = r"^(cluster\.(c1|bound|hand)|http\.web\.rds\.web)\.update_success$"


def prepared(directory: Path, release: Path) -> ServerProcess:
    """A server with the configuration of a release, and no data yet."""
    server = ServerProcess(directory, ["--config", str(release / "xds.yaml")], token=TOKEN)
    server.data.mkdir(mode=0o700)
    return server


def with_data(directory: Path, release: Path) -> ServerProcess:
    """The server of today on the data and the configuration of a release, not started yet."""
    server = prepared(directory, release)
    with tarfile.open(release / "data.tar.xz") as archive:
        archive.extractall(server.data, filter="data")
    return server


@pytest.fixture
def upgraded(tmp_path: Path) -> Iterator[ServerProcess]:
    """The server of today on the data and the configuration of the first release."""
    with with_data(tmp_path, FIRST) as server:
        yield server


def expected(release: Path = FIRST) -> Json:
    read: Json = json.loads((release / "expected.json").read_text())
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


def run(server: ServerProcess, *arguments: str | Path) -> FinishedCommand:
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


def test_an_upgraded_server_continues_with_the_older_data(upgraded: ServerProcess) -> None:
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


def test_a_moved_setting_is_reported(upgraded: ServerProcess) -> None:
    log = upgraded.process.log()
    assert "server.order: this setting is now 'order.enabled'; the old name still works" in log
    assert upgraded.get("/config")["order"]["enabled"] is True


# Everything that the latest release stored


def check_state(server: ServerProcess, without: tuple[str, ...] = ()) -> None:
    """The API answers what it answered then, but for these paths. The audit list may go on."""
    then, now = expected(LATEST)["state"], picture(server)
    now["/audit"] = now["/audit"][: len(then["/audit"])]
    gone = list(lost({path: then[path] for path in then if path not in without}, now))
    assert not gone, "\n".join(gone)


def wait_served(server: ServerProcess, without: tuple[str, ...] = ()) -> None:
    """REST xDS answers what it answered then, but for these types."""
    then = {what: answer for what, answer in expected(LATEST)["served"].items() if not what.endswith(without)}

    def changes() -> list[str]:
        return list(lost(then, served(server)))

    wait_until(lambda: not changes(), "the same is served", detail=changes)


def test_state_of_every_kind_is_kept(tmp_path: Path) -> None:
    with with_data(tmp_path, LATEST) as server:
        check_state(server)
        wait_served(server)
        assert "unreadable" not in server.process.log()
        server.kill()
        server.start()
        check_state(server)
        wait_served(server)


def test_a_backup_of_the_older_version_is_restored(tmp_path: Path) -> None:
    """It has no observed state: instances, NACKs, and endpoints that drain since a binding changed."""
    archive = tmp_path / "backup.tar"
    archive.write_bytes(lzma.decompress((LATEST / "backup.tar.xz").read_bytes()))
    with prepared(tmp_path, LATEST) as server:
        restored = run(server, "restore", archive)
        assert restored.code == 0, restored.err
        check_state(server, without=("/registrations", "/nacks", "/endpoints"))
        wait_served(server, without=(" endpoints",))


@pytest.mark.parametrize("variant", [Variant.ADS_SOTW, Variant.ADS_DELTA])
def test_a_connected_envoy_notices_nothing(tmp_path: Path, variant: Variant) -> None:
    """It got its configuration from the server of then, and reconnects to the server of today."""
    server = with_data(tmp_path, LATEST)
    bootstrap = EnvoyBootstrap(server.grpc_port, variant, node_id=WEB, node_cluster="web", initial_metadata=METADATA)
    with EnvoyProcess(tmp_path, bootstrap) as envoy:
        with RecordedXds(server.grpc_port, expected(LATEST)["sent"]):
            envoy.wait_live().wait_listener("web")
            before, answers = envoy_state(envoy), envoy.stats(ANSWERS)
        with server:
            server.wait_synced("web", WEB)
            assert envoy_state(envoy) == before
            assert set(answers.values()) == {1}
            if variant is Variant.ADS_DELTA:
                # Assignments are answered whatever it shows: their clusters may be warming.
                after = envoy.stats(ANSWERS)
                kept = {name for name in answers if not name.startswith("cluster.")}
                assert kept and all(after[name] == answers[name] for name in kept), "it has the versions of today"


def envoy_state(envoy: EnvoyProcess) -> Json:
    """What an Envoy has, in which version and since when, and how often it changed."""
    dump = [each for each in envoy.config_dump(include_eds="true") if "Bootstrap" not in each["@type"]]
    return {"dump": dump, "touched": envoy.stats(TOUCHED)}


def test_a_newer_directory_is_refused_with_a_sentence(tmp_path: Path) -> None:
    """An older server on it would not know what it must keep. It changes nothing."""
    server = with_data(tmp_path, LATEST)
    path = server.data / "xds.sqlite3"
    newer = SCHEMA_VERSION + 1
    with closing(sqlite3.connect(path)) as store:
        store.execute("UPDATE meta SET v = ? WHERE k = 'schema'", (str(newer),))
        store.commit()
        before = list(store.iterdump())
    ports = [f"--{port}={LOOPBACK}:{free_port()}" for port in ("grpc", "http")]
    code, log = serve_to_end(tmp_path, "--data", server.data, "--config", LATEST / "xds.yaml", *ports)
    told = f"the data has schema {newer}, this release supports {SCHEMA_VERSION}; use a newer release"
    assert (code, told in log, "Traceback" in log) == (1, True, False), log
    with closing(sqlite3.connect(path)) as store:
        assert list(store.iterdump()) == before
