"""Names in a watched directory that are not those of its files: none stops the server or shows another file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import yaml

from tests.attack.conftest import resident
from tests.support import resources as r
from tests.support.process import wait_until
from tests.support.server import ServerProcess

SECRET = "root:*:20228:0:99999:7:::"
MIB = 1 << 20


def _put(file: Path, cluster: str) -> None:
    file.write_text(yaml.safe_dump({"resources": [r.static_cluster(cluster)]}))


def test_hostile_names_in_a_watched_directory(tmp_path: Path, serve: Callable[..., ServerProcess]) -> None:
    """A named pipe stopped the watch and the end of the process, a device took all memory, a link showed a file."""
    watched = tmp_path / "watched"
    watched.mkdir()
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    _put(watched / "web.yaml", "first")
    os.mkfifo(watched / "pipe.yaml")
    (watched / "endless.yaml").symlink_to("/dev/zero")
    (watched / "out.yaml").symlink_to("../secret")
    (watched / "up").symlink_to("..")
    with (watched / "large.json").open("wb") as large:
        large.truncate(1 << 40)
    server = serve("--watch", str(watched))
    before = resident(server)
    refused = {each["group"]: each for each in server.get("/watch")["refused"]}
    assert refused.keys() >= {"pipe", "endless", "out", "large", "up"}
    assert "not a regular file" in refused["pipe"]["detail"]
    assert "outside" in refused["out"]["detail"]
    assert SECRET[7:12] not in str(server.get("/watch"))
    _put(watched / "web.yaml", "second")
    wait_until(
        lambda: server.get("/groups/web/resources/clusters")["items"][0]["name"] == "second",
        "a change beside them is applied",
    )
    assert resident(server) - before < 100 * MIB
    assert SECRET[7:12] not in server.process.log()
    assert server.process.stop() == 0
