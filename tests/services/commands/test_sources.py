"""``xds sources``, and its point of ``xds check``, with a server that reads files."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import yaml

from tests.cli.conftest import Remote
from tests.support.process import wait_until
from tests.support.server import ServerProcess
from tests.support.server_forks import serve_to_end


def start(directory: Path, running: ExitStack, sources: dict[str, object]) -> Remote:
    """A server with these sources, with its store in memory."""
    file = directory / "xds.yaml"
    file.write_text(yaml.safe_dump({"sources": sources}))
    server = ServerProcess(directory, ["--store", "memory", "--config", str(file)])
    return Remote(running.enter_context(server))


def checked(remote: Remote) -> tuple[str, str]:
    """State and detail of the point."""
    items = remote.xds("check", "-o", "json").json()["items"]
    return next((item["state"], item["detail"]) for item in items if item["check"] == "sources")


def rows(remote: Remote) -> list[list[str]]:
    """Name, kind, state and counts of each source."""
    return [row.split()[:5] for row in remote.xds("sources", "--no-headers").out.splitlines()]


def test_a_source_that_is_read_and_one_with_an_error(tmp_path: Path, running: ExitStack) -> None:
    targets = tmp_path / "targets"
    targets.mkdir()
    (targets / "web.json").write_text(json.dumps({"services": {"web": ["127.0.0.1:80", "127.0.0.2:80"]}}))
    remote = start(tmp_path, running, {"targets": {"kind": "files", "paths": [str(targets)], "rescan_s": 0.2}})
    wait_until(lambda: checked(remote) == ("ok", "1 can be read"), "the file is read")
    expected = [["registration", "registration", "reading", "0", "0"], ["targets", "files", "reading", "1", "2"]]
    wait_until(lambda: rows(remote) == expected, "what it has is counted", detail=lambda: rows(remote))
    (targets / "api.json").write_text('{"services": {"api": ["api.test:80"]}}')
    wait_until(lambda: checked(remote)[0] == "warning", "the error is seen")
    assert "targets 1 left out, first " in checked(remote)[1]
    assert "api.json:1:23" in checked(remote)[1]
    shown = remote.xds("sources", "targets").out
    assert "'api.test' is not an IP address" in shown
    assert remote.xds("sources", "targets", "-o", "json").json()["findings_n"] == 1
    missing = remote.xds("sources", "none")
    assert (missing.code, "no source named 'none'" in missing.err) == (4, True)
    (targets / "api.json").unlink()
    wait_until(lambda: checked(remote)[0] == "ok", "the file is gone")


def test_a_source_that_cannot_be_read(tmp_path: Path, running: ExitStack) -> None:
    remote = start(tmp_path, running, {"targets": {"kind": "files", "paths": [str(tmp_path / "none")]}})
    wait_until(lambda: checked(remote)[0] == "warning", "the failure is seen")
    wait_until(lambda: "cannot be read for" in checked(remote)[1], "the source has looked")
    assert "no such file" in checked(remote)[1]


def test_without_sources(remote: Remote) -> None:
    assert checked(remote) == ("ok", "no source is configured")
    assert remote.xds("sources", "-o", "name").out.splitlines() == ["registration"]


def test_a_source_that_cannot_be_built_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "xds.yaml"
    file.write_text("sources: {mine: {kind: python, object: 'no_such_module_here:make'}}")
    code, log = serve_to_end(tmp_path, "--store", "memory", "--config", file)
    assert code != 0
    assert "sources.mine: no_such_module_here:make: ModuleNotFoundError" in log
