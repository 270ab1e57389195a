"""A full or read-only disk stops pushes with a clear error, and nothing else. Pushes work again once there is room."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support import resources as r
from tests.support.process import wait_until
from tests.support.server import ServerProcess

Json = dict[str, Any]

GROUP = "test"
ROOM_BYTES = 64 * 1024


NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def _is_mounting_forbidden() -> bool:
    """Some systems and containers forbid user namespaces. Without the command the tests fail with its name."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return tried.returncode != 0


# CONTRIBUTING.md#rules: the rights of the machine are the only reason to skip a test.
mounting = pytest.mark.skipif(
    _is_mounting_forbidden(), reason="this system lets nobody mount a file system of their own"
)


def _without_privileges() -> list[str]:
    """Root may write whatever the mode says, unless it has no capabilities."""
    return ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []


def big(name: str) -> list[Json]:
    """About half a megabyte of random content, which cannot be deduplicated."""
    return [r.static_cluster(f"{name}-{n}", 1_000, alt_stat_name=os.urandom(64_000).hex()) for n in range(4)]


def push(server: ServerProcess, resources: Sequence[Json], key: str = "") -> httpx.Response:
    headers = {"idempotency-key": key} if key else {}
    return server.request(
        "PUT", f"/api/v1/groups/{GROUP}/snapshot", json={"resources": list(resources)}, headers=headers
    )


def check_serving(server: ServerProcess, first: Json) -> None:
    """The pushed content is read and served as before."""
    assert server.request("GET", "/readyz").status_code == 200
    held = server.get(f"/groups/{GROUP}/snapshot")
    assert (held["revision"], held["etag"]) == (first["revision"], first["etag"])
    rest = server.request(
        "POST", "/v3/discovery:clusters", json={"node": {"id": "n", "cluster": GROUP}, "type_url": r.CLUSTER_TYPE}
    )
    assert rest.json()["version_info"] == first["versions"]["clusters"]


def limit_files(server: ServerProcess, room_bytes: int | None) -> None:
    """Limit the growth of the server's files; None removes the limit. The kernel fails the write (EFBIG)."""
    largest = max(path.stat().st_size for path in server.data.iterdir())
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    soft = hard if room_bytes is None else largest + room_bytes
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (soft, hard))


def test_writes_that_fail_stop_pushes_only(server: ServerProcess) -> None:
    first = push(server, [r.static_cluster("a", 1_000)]).json()
    limit_files(server, ROOM_BYTES)
    for _ in range(2):
        refused = push(server, big("b"), "k")
        assert refused.status_code == 503
        assert "disk" in refused.json()["detail"] and "tries again" in refused.json()["detail"]
        check_serving(server, first)
    limit_files(server, None)
    done = push(server, big("b"), "k")
    assert (done.status_code, done.json()["revision"]) == (200, 2)
    server.kill()
    server.start()
    check_serving(server, done.json())


def test_a_folder_that_turns_read_only_stops_pushes_only(tmp_path: Path) -> None:
    """While the file is open the server can still write; after an error closes it, the mode counts."""
    with ServerProcess(tmp_path, prefix=_without_privileges()) as server:
        first = push(server, [r.static_cluster("a", 1_000)]).json()
        files = list(server.data.iterdir())
        for path in (*files, server.data):
            path.chmod(0o500 if path.is_dir() else 0o400)
        limit_files(server, ROOM_BYTES)
        assert push(server, big("b"), "k").status_code == 503
        limit_files(server, None)
        refused = push(server, big("b"), "k")
        assert refused.status_code == 503
        assert "cannot be written" in refused.json()["detail"]
        check_serving(server, first)
        for path in (server.data, *files):
            path.chmod(0o700 if path.is_dir() else 0o600)
        done = push(server, big("b"), "k")
        assert (done.status_code, done.json()["revision"]) == (200, 2)


def test_a_store_at_its_limit_has_room_again_after_a_collection(tmp_path: Path) -> None:
    limits = {"MAX_BYTES": str(6 << 20), "KEEP_DAYS": "0", "COLLECT_EVERY_S": "0.2"}
    with ServerProcess(tmp_path, environment={f"XDS_STORE__{name}": value for name, value in limits.items()}) as server:
        first = push(server, [r.static_cluster("a", 1_000)]).json()
        server.push("old", [resource for name in "abcdefg" for resource in big(name)])
        wanted = [resource for name in "hijklm" for resource in big(name)]
        refused = push(server, wanted, "k")
        assert refused.status_code == 507, refused.text
        assert "its limit of 6291456 bytes is reached" in refused.json()["detail"]
        check_serving(server, first)
        assert server.request("DELETE", "/api/v1/groups/old").status_code == 200
        wait_until(lambda: push(server, wanted, "k").status_code == 200, "room", detail=server.process.log_tail)
        assert server.get(f"/groups/{GROUP}")["revision"] == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose data lies on a file system of 8 MiB of its own, which only its processes see."""
    mount = 'mkdir -p "$0" && mount -t tmpfs -o size=8m,mode=700 none "$0" && exec "$@"'
    prefix = [*NAMESPACE, "sh", "-c", mount, str(tmp_path / "data")]
    with ServerProcess(tmp_path, prefix=prefix) as server:
        yield server


@mounting
def test_a_full_disk_stops_pushes_until_there_is_room(small_disk: ServerProcess) -> None:
    seen = Path(f"/proc/{small_disk.process.pid}/root{small_disk.data}")
    first = push(small_disk, [r.static_cluster("a", 1_000)]).json()
    filler = seen / "filler"
    free = shutil.disk_usage(seen).free
    filler.write_bytes(bytes(free - ROOM_BYTES))
    for _ in range(2):
        refused = push(small_disk, big("b"), "k")
        assert refused.status_code == 507, refused.text
        assert "Free or add space, then push again" in refused.json()["detail"]
        check_serving(small_disk, first)
    filler.unlink()
    done = push(small_disk, big("b"), "k")
    assert (done.status_code, done.json()["revision"]) == (200, 2)
