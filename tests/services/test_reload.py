"""Settings of sources are reloaded while the server runs; what proxies are served stays as long as it is shown."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.process import wait_until
from tests.support.server import ServerProcess

FAILED = 'xds_server_auth_reloads_total{result="failed"}'


class Site:
    """A server, its settings file, and a target file for each source."""

    def __init__(self, directory: Path, running: ExitStack) -> None:
        self._directory = directory
        self.file = directory / "xds.json"
        self.targets("one", {"web": ["10.0.0.1:80"]})
        self.targets("two", {"web": ["10.0.0.2:80"], "api": ["10.0.0.3:80"]})
        self.write(one=self.section("one"))
        self.server = running.enter_context(ServerProcess(directory, ["--config", str(self.file)]))
        self.wait("web", ["10.0.0.1"])

    def section(self, name: str, **fields: Any) -> dict[str, Any]:
        return {"kind": "files", "paths": [str(self._directory / f"{name}.json")], "rescan_s": 0.2, **fields}

    def targets(self, name: str, services: dict[str, list[str]]) -> None:
        """Write a target file as a deployment does: another file, renamed."""
        draft = self._directory / f"{name}.new"
        draft.write_text(json.dumps({"services": services}))
        draft.replace(self._directory / f"{name}.json")

    def write(self, **sources: dict[str, Any]) -> None:
        draft = self.file.with_suffix(".new")
        draft.write_text(json.dumps({"sources": sources, "order": {"endpoint_drain_s": 1}}))
        draft.replace(self.file)

    def addresses(self, service: str) -> list[str]:
        """The instances of a service that do not drain."""
        answer = self.server.request("GET", f"/v1/catalog/service/{service}")
        return [each["ServiceAddress"] for each in answer.json()]

    def wait(self, service: str, wanted: list[str]) -> None:
        wait_until(lambda: self.addresses(service) == wanted, f"{wanted}", detail=lambda: self.addresses(service))

    def wait_failure(self, says: str) -> None:
        before = self.server.metrics().get(FAILED, 0)
        wait_until(lambda: self.server.metrics().get(FAILED, 0) > before, says, 15)
        assert says in self.server.process.log()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as running:
        yield Site(tmp_path, running)


def test_sources_come_change_and_go_without_a_restart(site: Site) -> None:
    site.write(one=site.section("one"), two=site.section("two"))
    site.wait("web", ["10.0.0.1", "10.0.0.2"])
    site.wait("api", ["10.0.0.3"])
    site.write(one=site.section("one"), two=site.section("two", hold_share=1, changes_per_s=500))
    site.targets("two", {"web": ["10.0.0.4:80"]})
    site.wait("web", ["10.0.0.1", "10.0.0.4"])
    site.wait("api", [])
    site.write(two=site.section("two", hold_share=1))
    site.wait("web", ["10.0.0.4"])
    names = [each["name"] for each in site.server.get("/sources")["items"]]
    assert "two" in names and "registration" in names
    wait_until(lambda: "one" not in [each["name"] for each in site.server.get("/sources")["items"]], "one is gone")
    entries = [each for each in site.server.get("/audit")["items"] if each["action"] == "sources.reloaded"]
    assert [(sorted(each["old"]), sorted(each["new"])) for each in entries] == [
        ([], ["two"]),
        (["two"], ["two"]),
        (["one", "two"], ["two"]),
    ]
    assert "settings.need_restart" not in site.server.process.log()
    assert list(site.server.get("/config")["sources"]) == ["two"]


def test_a_source_that_is_changed_keeps_its_last_good_set_until_it_is_read(site: Site) -> None:
    """Another path that is not there yet: nothing is shown anew, so nothing goes."""
    site.write(one=site.section("later"))
    wait_until(lambda: "sources.reloaded" in site.server.process.log(), "the reload", 15)
    wait_until(lambda: site.server.get("/sources/one")["state"] == "failing", "the missing file is told", 15)
    assert site.addresses("web") == ["10.0.0.1"]
    site.targets("later", {"web": ["10.0.0.9:80"]})
    site.wait("web", ["10.0.0.9"])


def test_settings_that_cannot_be_applied_change_nothing(site: Site) -> None:
    site.write(one={"kind": "files", "paths": []})
    site.wait_failure("sources.one")
    site.write(two=site.section("two"), mine={"kind": "python", "object": "nowhere:make"})
    site.wait_failure("sources.mine: nowhere:make: ModuleNotFoundError")
    site.write()
    site.wait_failure("would remove all sources")
    assert site.addresses("web") == ["10.0.0.1"]
    assert [each["name"] for each in site.server.get("/sources")["items"]] == ["one", "registration"]
    site.targets("one", {"web": ["10.0.0.1:80", "10.0.0.5:80"]})
    site.wait("web", ["10.0.0.1", "10.0.0.5"])
