"""A restored backup of a running server serves the same versions, and revision numbers continue."""

from __future__ import annotations

import hashlib
import json
import random
import tarfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from stat import S_IMODE
from typing import Any

import httpx
import pytest

from tests.support import resources as r
from tests.support.commands import FinishedCommand, address, xds
from tests.support.http import plain_client
from tests.support.process import LOOPBACK, free_port, wait_until
from tests.support.server import ServerProcess

from .test_durability import Pushes, check_all_there, check_retries, start_pushes

Json = dict[str, Any]

pytestmark = pytest.mark.xdist_group("backup")  # they share two servers

KEY = "-----BEGIN PRIVATE KEY-----\nMIIBVQ==\n-----END PRIVATE KEY-----\n"
POLICY = {"capacity": {"rates": [{"per_locality_rps": 100}]}}
SOAK_ROUNDS = 30


def secret(name: str) -> Json:
    return {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        "name": name,
        "tls_certificate": {
            "certificate_chain": {"inline_string": r.CERTIFICATE_PEM},
            "private_key": {"inline_string": KEY},
        },
    }


def run(server: ServerProcess, *arguments: str | Path, **environment: str) -> FinishedCommand:
    return xds(*arguments, environment={**address(server.http_port), **environment})


def fill(server: ServerProcess) -> None:
    """Groups with history, labels, settings, a policy, one deleted and one with settings alone."""
    server.push("edge", [r.static_cluster("a", 1_000), secret("s")], version="first")
    server.push("edge", [r.static_cluster("b", 1_000), r.static_cluster("a", 1_001), secret("s")])
    server.push("edge", [r.static_cluster("b", 1_000), secret("s")])
    server.push("web", [r.steered_cluster("web"), r.zoned_load_assignment("web", {"za": [1], "zb": [2]})])
    server.push("gone", [r.static_cluster("a", 1_000)])
    assert server.request("DELETE", "/api/v1/groups/gone").is_success
    settings = {"selector": 'node.id == "edge-1"', "priority": 7, "on_nack": "proceed", "removal_delay_s": 3}
    assert server.request("PUT", "/api/v1/groups/edge", json=settings).is_success
    assert server.request("PUT", "/api/v1/groups/later", json={"selector": 'node.id == "x"'}).is_success
    assert server.request("PUT", "/api/v1/groups/web/assignments/web", json=POLICY).is_success


def picture(server: ServerProcess, history: bool = True) -> Json:
    """All desired state, as the API shows it."""
    groups = server.get("/groups")["items"]
    seen: Json = {"groups": groups, "policy": server.get("/groups/web/assignments/web")["policy"]}
    for name in ("edge", "web"):
        seen[name] = server.get(f"/groups/{name}/snapshot", show_secrets="true")
        lines = server.get(f"/groups/{name}/revisions")["items"]
        seen[f"{name} history"] = lines if history else lines[:1]
        for line in lines if history else ():
            path = f"/groups/{name}/revisions/{line['revision']}"
            seen[f"{name} {line['revision']}"] = server.get(path, show_secrets="true")
    served = server.request("POST", "/v3/discovery:clusters", json={"node": {"id": "edge-1"}})
    seen["served"] = served.json()
    return seen


Source = tuple[ServerProcess, Path]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """A filled server that no test changes, and its backup."""
    folder = tmp_path_factory.mktemp("source")
    with ServerProcess(folder) as server:
        fill(server)
        assert run(server, "backup", folder / "xds.tar").code == 0
        yield server, folder / "xds.tar"


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """Another server, and the backup that was made of it when it was new."""
    folder = tmp_path_factory.mktemp("target")
    with ServerProcess(folder) as server:
        (folder / "empty.tar").write_bytes(server.request("GET", "/api/v1/backup").content)
        yield server, folder / "empty.tar"


@pytest.fixture
def second(target: Source) -> ServerProcess:
    """An empty server."""
    server, empty = target
    emptied = server.request("POST", "/api/v1/restore", params={"replace": "true"}, content=empty.read_bytes())
    assert emptied.is_success, emptied.text
    return server


def test_a_restored_server_serves_the_same(source: Source, second: ServerProcess, tmp_path: Path) -> None:
    server, _ = source
    archive = tmp_path / "xds.tar"
    taken = run(server, "backup", archive)
    assert (taken.code, taken.out) == (0, ""), taken.err
    assert S_IMODE(archive.stat().st_mode) == 0o600
    assert list(tmp_path.glob(".xds.tar*")) == [], "nothing is left beside it"

    restored = run(second, "restore", archive)
    assert restored.code == 0, restored.err
    assert picture(second) == picture(server)
    assert second.push("edge", [r.static_cluster("c", 1)])["revision"] == 4
    assert second.push("gone", [r.static_cluster("c", 1)])["revision"] == 3
    second.kill()
    second.start()
    assert second.get("/groups/web/snapshot") == server.get("/groups/web/snapshot")
    undone = second.request("POST", "/api/v1/groups/edge/rollback", json={"to": 1}).json()
    assert undone["revision"] == 5
    assert second.get("/groups/edge/snapshot")["resources"] == server.get("/groups/edge/revisions/1")["resources"]


def test_a_backup_without_history_has_the_served_content(source: Source, second: ServerProcess, tmp_path: Path) -> None:
    server, _ = source
    assert run(server, "backup", tmp_path / "brief.tar", "--no-history").code == 0
    assert run(second, "restore", tmp_path / "brief.tar").code == 0
    assert picture(second, history=False) == picture(server, history=False)
    assert second.push("edge", [r.static_cluster("c", 1)])["revision"] == 4
    assert second.push("gone", [r.static_cluster("c", 1)])["revision"] == 3


def test_a_store_with_content_is_replaced_only_with_an_option(source: Source, second: ServerProcess) -> None:
    server, archive = source
    second.push("edge", [r.static_cluster("other", 1)])
    second.push("extra", [r.static_cluster("other", 1)])
    before = second.get("/groups")
    refused = run(second, "restore", archive)
    assert refused.code == 5 and "not empty" in refused.err and "pass --replace" in refused.err
    assert second.get("/groups") == before
    assert run(second, "restore", archive, "--replace", "--dry-run", "-y").code == 0
    assert second.get("/groups") == before
    assert run(second, "restore", archive, "--replace", "-y").code == 0
    assert picture(second) == picture(server)
    assert second.request("GET", "/api/v1/groups/extra").status_code == 404


def test_a_damaged_archive_is_reported_by_command_and_server(source: Source, tmp_path: Path) -> None:
    server, archive = source
    (tmp_path / "bad.tar").write_bytes(archive.read_bytes()[:-4_000])
    before = picture(server)
    for arguments in (("--check",), ("--replace", "-y")):
        refused = run(server, "restore", tmp_path / "bad.tar", *arguments)
        assert refused.code == 3 and refused.err.strip() and "Traceback" not in refused.err
    assert picture(server) == before
    assert run(server, "restore", archive, "--check").code == 0


def test_a_watched_folder_is_applied_over_restored_content(tmp_path: Path, running: ExitStack) -> None:
    """The files decide. They were once applied again only when they changed, so the group kept old content."""
    folder = tmp_path / "folder"
    folder.mkdir()
    file = folder / "edge.yaml"
    file.write_text(json.dumps({"resources": [r.static_cluster("old")]}))
    server = running.enter_context(ServerProcess(tmp_path, ["--watch", str(folder)]))
    server.push("other", [r.static_cluster("kept")])
    archive = tmp_path / "backup.tar"
    archive.write_bytes(server.request("GET", "/api/v1/backup").content)
    file.write_text(json.dumps({"resources": [r.static_cluster("new")]}))

    def held(group: str) -> list[str]:
        return [each["name"] for each in server.get(f"/groups/{group}/snapshot")["resources"]]

    wait_until(lambda: held("edge") == ["new"], "the file is applied")
    server.push("other", [r.static_cluster("gone")])
    tried = xds("restore", archive, "--replace", "--dry-run", environment=address(server.http_port))
    assert (tried.code, "will be applied over it: groups edge" in tried.err) == (0, True)
    done = xds("restore", archive, "--replace", "--yes", environment=address(server.http_port))
    assert (done.code, "are applied again now: groups edge" in done.err) == (0, True)
    wait_until(lambda: held("edge") == ["new"], "the folder is applied again")
    assert held("other") == ["kept"]
    assert "directory.applied_again" in server.process.log()
    [line] = [item for item in server.get("/groups/edge/revisions")["items"] if item["revision"] == 2]
    assert (line["actor"], line["author"]) == ("server", "watch")


def test_backups_are_counted(tmp_path: Path, running: ExitStack) -> None:
    """The time of the last backup is exported only if there was one: a restart is not a failure."""
    server = running.enter_context(ServerProcess(tmp_path))
    last = "xds_server_backup_last_success_timestamp_seconds"
    assert last not in server.metrics()
    server.push("edge", [r.static_cluster("a")])
    archive = server.request("GET", "/api/v1/backup").content
    counted = server.metrics()
    assert (counted['xds_server_backups_total{result="made"}'], counted["xds_server_restores_total"]) == (1, 0)
    assert counted["xds_server_backup_last_bytes"] == len(archive)
    assert abs(counted[last] - time.time()) < 60
    assert server.request("POST", "/api/v1/restore", content=archive, params={"replace": "true"}).is_success
    counted = server.metrics()
    assert counted["xds_server_restores_total"] == 1
    assert counted['xds_server_backups_total{result="failed"}'] == 0


def test_the_archive_is_a_tar_with_the_files_of_its_manifest(source: Source) -> None:
    with tarfile.open(source[1]) as tar:
        names = tar.getnames()
        contents = {name: (tar.extractfile(name) or pytest.fail(name)).read() for name in names}
    assert (names[0], names[-1]) == ("xds-backup.json", "manifest.json")
    manifest = httpx.Response(200, content=contents["manifest.json"]).json()
    said = {part["name"]: part["sha256"] for part in manifest["parts"]}
    assert said == {name: hashlib.sha256(contents[name]).hexdigest() for name in names[:-1]}


def test_a_redacted_archive_has_no_key_and_is_not_restored(source: Source, tmp_path: Path) -> None:
    server, _ = source
    redacted = tmp_path / "shown.tar"
    assert run(server, "backup", redacted, "--redact").code == 0
    assert b"[redacted]" in redacted.read_bytes() and b"static_resources" not in redacted.read_bytes()
    assert b"PRIVATE KEY" not in redacted.read_bytes()
    assert b"TUlJQlZRPT0" not in redacted.read_bytes(), "nor in base64"
    checked = run(server, "restore", redacted, "--check", "-o", "json")
    assert (checked.code, checked.json()["restorable"]) == (0, False)
    refused = run(server, "restore", redacted, "--replace", "-y")
    assert refused.code == 3 and "redacted" in refused.err


def test_a_failed_backup_leaves_the_last_one(tmp_path: Path) -> None:
    archive = tmp_path / "xds.tar"
    archive.write_bytes(b"the last one")
    assert xds("backup", archive, environment=address(free_port())).code == 7
    assert archive.read_bytes() == b"the last one"
    assert sorted(path.name for path in tmp_path.glob("*.tar*")) == ["xds.tar"]


def test_one_backup_at_a_time_and_a_reader_that_goes_frees_it(second: ServerProcess) -> None:
    bodies = (random.randbytes(50_000).hex() for _ in range(200))
    second.push("large", [r.static_cluster(f"c{n}", 1, alt_stat_name=body) for n, body in enumerate(bodies)])
    before = len(second.process.log())
    with plain_client(base_url=f"http://{LOOPBACK}:{second.http_port}", timeout=30) as client:
        with client.stream("GET", "/api/v1/backup") as held:
            pieces = held.iter_raw()
            next(pieces)
            assert client.get("/api/v1/backup").status_code == 503
        wait_until(lambda: client.get("/api/v1/backup").status_code == 200, "the backup is free")
    lines = map(json.loads, second.process.log()[before:].splitlines())
    told = [line for line in lines if line["event"].startswith("backup.")]
    assert [(line["level"], line["event"]) for line in told] == [("info", "backup.failed"), ("info", "backup.made")]
    assert told[0]["error_message"].startswith("its reader has gone")


def _kills_with_backups(server: ServerProcess, restored: ServerProcess, folder: Path, rounds: int) -> None:
    first = 1
    for _ in range(rounds):
        pushes: Pushes = start_pushes(server, first)
        pushes.wait_acknowledged(random.randint(3, 20))
        acknowledged = max(pushes.answers.values(), key=lambda answer: int(answer["revision"]))
        taken = [run(server, "backup", folder / f"{n}.tar") for n in range(2)]
        assert [each.code for each in taken] == [0, 0], taken
        server.kill()
        pushes.wait_end()
        server.start()
        check_all_there(server, pushes)
        check_retries(server, pushes)
        assert run(restored, "restore", folder / "0.tar", "--replace", "-y").code == 0
        held = restored.get("/groups/test/snapshot")
        assert held["revision"] >= acknowledged["revision"]
        answers = {answer["revision"]: answer for answer in pushes.answers.values()}
        if held["revision"] in answers:
            assert held["etag"] == answers[held["revision"]]["etag"]
        assert len({item["alt_stat_name"] for item in held["resources"]}) == 1, "a backup holds no half of a push"
        first = pushes.tried + 1


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_kills_amid_pushes_with_a_backup_beside(server: ServerProcess, second: ServerProcess, tmp_path: Path) -> None:
    _kills_with_backups(server, second, tmp_path, SOAK_ROUNDS)
