"""Target files as a source: real files in a real directory, written as people and programs write them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.recording_sink import RecordingSink, running_source
from xds.codec import regular_file
from xds.codec.regular_file import FileContent
from xds.services.core.source import Instances
from xds.services.sources import file_source
from xds.services.sources.file_source import STABLE_S, FilesSource

RESCAN_S = 0.3


@asynccontextmanager
async def running(*paths: Path, rescan_s: float = RESCAN_S) -> AsyncIterator[RecordingSink]:
    sink = RecordingSink()
    async with running_source(FilesSource("files", paths, rescan_s=rescan_s), sink):
        yield sink


def targets(**services: list[str]) -> str:
    """A target file: the last number of each address."""
    return json.dumps({"services": {name: [f"10.0.0.{n}:80" for n in last] for name, last in services.items()}})


def has(sink: RecordingSink, service: str, *last: str) -> Callable[[], bool]:
    return lambda: service in sink.services and sink.places(service) == {f"10.0.0.{n}:80" for n in last}


def replace(path: Path, text: str) -> None:
    """As programs write that know how to."""
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


async def looks(sink: RecordingSink, number: int = 2) -> None:
    """The source looks at the files so many times more."""
    seen = len(sink.calls)
    await sink.wait_until(lambda: sum(method != "rejected" for method, _ in sink.calls[seen:]) >= number)


@pytest.mark.parametrize("write", [Path.write_text, replace])
async def test_a_change_of_a_file_is_seen(tmp_path: Path, write: Callable[[Path, str], object]) -> None:
    file = tmp_path / "web.json"
    file.write_text(targets(web=["1", "2"], api=["5"]))
    async with running(file, rescan_s=60) as sink:
        await sink.wait_until(has(sink, "web", "1", "2"))
        began = asyncio.get_running_loop().time()
        write(file, targets(web=["2", "3"], api=["5"]))
        await sink.wait_until(has(sink, "web", "2", "3"))
        assert asyncio.get_running_loop().time() - began < 5, "the file system reports it"
        assert sink.calls.count(("put", "api")) == 0, "what has not changed is not put"


async def test_a_change_is_seen_without_reports_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_watches(*paths: Path, **options: object) -> None:
        raise OSError("inotify watch limit reached")

    monkeypatch.setattr(file_source, "awatch", no_watches)
    file = tmp_path / "web.json"
    file.write_text(targets(web=["1"]))
    async with running(file) as sink:
        await sink.wait_until(has(sink, "web", "1"))
        replace(file, targets(web=["2"]))
        await sink.wait_until(has(sink, "web", "2"))


async def test_a_directory_with_files_of_both_forms_that_come_and_go(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("services: {web: [10.0.0.1:80]}")
    (tmp_path / "two.yml").write_text("- {targets: [10.0.0.2:80], labels: {job: web}}")
    (tmp_path / ".hidden.json").write_text("{")
    (tmp_path / "README").write_text("nothing")
    async with running(tmp_path) as sink:
        await sink.wait_until(has(sink, "web", "1", "2"))
        (tmp_path / "three.json").write_text(targets(web=["3"], api=["9"]))
        await sink.wait_until(has(sink, "web", "1", "2", "3"))
        assert sink.places("api") == {"10.0.0.9:80"}
        (tmp_path / "three.json").unlink()
        await sink.wait_until(lambda: "api" not in sink.services)
        await sink.wait_until(has(sink, "web", "1", "2"))


async def test_a_glob_over_directories(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "targets.json").write_text(targets(**{name: ["1"]}))
    async with running(tmp_path / "*" / "targets.json") as sink:
        await sink.wait_until(lambda: sink.services.keys() == {"a", "b"})
        (tmp_path / "c").mkdir()
        (tmp_path / "c" / "targets.json").write_text(targets(c=["1"]))
        await sink.wait_until(lambda: sink.services.keys() == {"a", "b", "c"})


async def test_a_mounted_config_map_is_followed(tmp_path: Path) -> None:
    """Kubernetes replaces the link ..data to a new directory; the files are links through it."""
    (tmp_path / "..1").mkdir()
    (tmp_path / "..1" / "web.json").write_text(targets(web=["1"]))
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "web.json").symlink_to("..data/web.json")
    async with running(tmp_path) as sink:
        await sink.wait_until(has(sink, "web", "1"))
        (tmp_path / "..2").mkdir()
        (tmp_path / "..2" / "web.json").write_text(targets(web=["2"]))
        (tmp_path / "..data_tmp").symlink_to("..2")
        (tmp_path / "..data_tmp").rename(tmp_path / "..data")
        await sink.wait_until(has(sink, "web", "2"))


# What keeps the last good set


async def test_a_file_with_an_error_keeps_its_last_instances(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.yaml"
    good.write_text(targets(web=["1"]))
    bad.write_text("services: {api: [10.0.0.5:80, 10.0.0.6:80]}")
    async with running(tmp_path) as sink:
        await sink.wait_until(lambda: sink.services.keys() == {"web", "api"})
        bad.write_text("services: {api: [10.0.0.5:80, 10.0.0:80]}")
        await sink.wait_until(lambda: bool(sink.findings))
        good.write_text(targets(web=["2"]))
        await sink.wait_until(has(sink, "web", "2"))
        assert sink.places("api") == {"10.0.0.5:80", "10.0.0.6:80"}
        assert f"{bad}:1:" in sink.findings[-1].source
        assert not sink.failures, "the source as a whole can be read"
        bad.write_text("services: {api: [10.0.0.6:80]}")
        await sink.wait_until(has(sink, "api", "6"))
        await sink.wait_until(lambda: not sink.rejected_now)


async def test_a_link_out_of_the_directory_is_not_read(tmp_path: Path) -> None:
    """Its words stood in the finding, which every reader of the API sees. The other files count meanwhile."""
    secret, watched = tmp_path / "secret", tmp_path / "watched"
    secret.write_text("root:*:20228:0:99999:7:::")
    watched.mkdir()
    (watched / "web.json").write_text(targets(web=["1"]))
    (watched / "out.yaml").symlink_to(secret)
    async with running(watched) as sink:
        await sink.wait_until(lambda: [one.code for one in sink.rejected_now] == ["unreadable"])
        assert "outside" in sink.rejected_now[0].detail
        assert "20228" not in str(sink.rejected_now)
        (watched / "out.yaml").unlink()
        await sink.wait_until(has(sink, "web", "1"))


async def test_a_file_is_read_once_its_reader_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Granting the right changes neither the content of a file nor its time.

    The refusal is simulated: tests may run as root, who may read every file.
    """
    forbidden = True
    contents = regular_file.read_regular

    def read(path: Path, *others: Any) -> FileContent:
        if forbidden:
            raise PermissionError(13, "Permission denied")
        return contents(path, *others)

    monkeypatch.setattr(file_source, "read_regular", read)
    file = tmp_path / "web.json"
    file.write_text(targets(web=["1"]))
    async with running(tmp_path) as sink:
        await sink.wait_until(lambda: [one.code for one in sink.rejected_now] == ["unreadable"])
        forbidden = False
        await sink.wait_until(has(sink, "web", "1"))
        assert not sink.rejected_now


async def test_nothing_is_removed_as_long_as_a_file_was_never_read(tmp_path: Path) -> None:
    """After a restart, the catalog has the last good set of a file that is broken meanwhile."""
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(targets(web=["1"]))
    bad.write_text("{")
    async with running(tmp_path) as sink:
        await sink.wait_until(has(sink, "web", "1"))
        good.write_text(targets(api=["2"]))
        await sink.wait_until(has(sink, "api", "2"))
        assert {method for method, _ in sink.calls}.isdisjoint({"replace", "remove"})
        bad.write_text(targets(more=["3"]))
        await sink.wait_until(lambda: sink.services.keys() == {"api", "more"})
        assert ("replace", "") in sink.calls


@pytest.mark.parametrize("text", ["", "{", "services: {web: [10.0.0.1:80, 10.0"])
async def test_a_truncated_file_keeps_its_last_instances(tmp_path: Path, text: str) -> None:
    file = tmp_path / "web.yaml"
    file.write_text(targets(web=["1", "2"]))
    async with running(file) as sink:
        await sink.wait_until(has(sink, "web", "1", "2"))
        file.write_text(text)
        await sink.wait_until(lambda: bool(sink.failures))
        assert sink.places("web") == {"10.0.0.1:80", "10.0.0.2:80"}
        assert str(file) in sink.failures[-1]


async def test_a_file_is_not_read_while_it_is_written(tmp_path: Path) -> None:
    """Each prefix is a valid document with fewer instances."""
    file = tmp_path / "web.yaml"
    file.write_text("services:\n  web:\n" + "".join(f"  - 10.0.0.{n}:80\n" for n in range(1, 21)))
    async with running(file) as sink:
        await sink.wait_until(lambda: len(sink.places("web")) == 20)
        with file.open("w") as stream:
            stream.write("services:\n  web:\n")
            for n in range(31, 51):
                stream.write(f"  - 10.0.0.{n}:80\n")
                stream.flush()
                await asyncio.sleep(STABLE_S / 4)
        await sink.wait_until(has(sink, "web", *(str(n) for n in range(31, 51))))
        assert sink.calls.count(("put", "web")) == 1


async def test_a_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "web.json"
    file.write_text(targets(web=["1", "2"]))
    read = regular_file.read_regular
    cut: list[int] = []

    def read_in_the_middle(path: Path, *others: Any) -> FileContent:
        if not cut:  # a program begins to write right before the file is opened, and ends after it was read
            cut.append(path.write_text(targets(web=["1"])))
        return read(path, *others)

    monkeypatch.setattr(file_source, "read_regular", read_in_the_middle)
    async with running(file) as sink:
        while not cut:
            await asyncio.sleep(0.005)
        file.write_text(targets(web=["1", "2", "3"]))
        await sink.wait_until(has(sink, "web", "1", "2", "3"))
        assert [method for method, _ in sink.calls if method in ("put", "replace")] == ["replace"]


class Watched(RecordingSink):
    """A sink that keeps every set of the service ``web`` that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.sets: list[set[str]] = []

    def put(self, service: str, instances: Instances) -> None:
        super().put(service, instances)
        self.sets.append(self.places("web"))


async def test_an_instance_that_moves_from_file_to_file_is_never_gone(tmp_path: Path) -> None:
    """It is written to the other file first. That file is written again while the first one rests."""
    old, new = tmp_path / "a.json", tmp_path / "b.json"
    old.write_text(targets(web=["1", "2"]))
    new.write_text(targets(web=["3"]))
    sink = Watched()
    async with running_source(FilesSource("files", [tmp_path], rescan_s=RESCAN_S), sink):
        await sink.wait_until(has(sink, "web", "1", "2", "3"))
        new.write_text(targets(web=["2", "3"]))
        old.write_text(targets(web=["1"]))
        for _ in range(8):
            await asyncio.sleep(STABLE_S * 0.6)
            new.write_text(targets(web=["2", "3"]) + " " * len(sink.calls))
            new.touch()
        new.write_text(targets(web=["2", "3", "4"]))
        await sink.wait_until(has(sink, "web", "1", "2", "3", "4"))
    assert all("10.0.0.2:80" in each for each in sink.sets), sink.sets


async def test_a_file_that_changes_all_the_time_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "UNSTABLE_S", 0.5)
    good, file = tmp_path / "good.json", tmp_path / "web.yaml"
    good.write_text(targets(web=["1"]))
    file.write_text("services: {}\n")
    async with running(tmp_path) as sink:
        await sink.wait_until(has(sink, "web", "1"))
        with file.open("a") as stream:
            while not any(one.code == "restless" for one in sink.findings):
                stream.write("# more\n")
                stream.flush()
                await asyncio.sleep(STABLE_S / 5)
            replace(good, targets(web=["2"]))
            while not has(sink, "web", "2")():
                stream.write("# more\n")
                stream.flush()
                await asyncio.sleep(STABLE_S / 5)


async def test_a_named_file_that_is_missing_keeps_its_last_instances(tmp_path: Path) -> None:
    named, other = tmp_path / "named.json", tmp_path / "other"
    other.mkdir()
    named.write_text(targets(web=["1"]))
    (other / "api.json").write_text(targets(api=["2"]))
    async with running(named, other) as sink:
        await sink.wait_until(lambda: sink.services.keys() == {"web", "api"})
        named.unlink()
        await sink.wait_until(lambda: any("no such file" in one.detail for one in sink.findings))
        await looks(sink)
        assert sink.places("web") == {"10.0.0.1:80"}
        named.write_text(targets(web=["3"]))
        await sink.wait_until(has(sink, "web", "3"))


@pytest.mark.parametrize("entry", [".", "*.json"])
async def test_a_directory_without_any_file_is_probably_not_mounted(tmp_path: Path, entry: str) -> None:
    mount, away = tmp_path / "mount", tmp_path / "away"
    mount.mkdir()
    (mount / "web.json").write_text(targets(web=["1"]))
    (mount / "api.json").write_text(targets(api=["1"]))
    async with running(mount / entry if entry != "." else mount) as sink:
        await sink.wait_until(lambda: sink.services.keys() == {"web", "api"})
        mount.rename(away)
        await sink.wait_until(lambda: bool(sink.failures))
        mount.mkdir()
        await looks(sink)
        assert sink.services.keys() == {"web", "api"}
        (away / "web.json").rename(mount / "web.json")
        await sink.wait_until(lambda: sink.services.keys() == {"web"})


async def test_a_source_that_starts_before_its_files(tmp_path: Path) -> None:
    async with running(tmp_path / "later" / "web.json") as sink:
        await sink.wait_until(lambda: bool(sink.failures))
        (tmp_path / "later").mkdir()
        (tmp_path / "later" / "web.json").write_text(targets(web=["1"]))
        await sink.wait_until(has(sink, "web", "1"))


async def test_a_directory_that_is_a_loop_of_links(tmp_path: Path) -> None:
    (tmp_path / "web.json").symlink_to("web.json")
    async with running(tmp_path) as sink:
        await sink.wait_until(lambda: bool(sink.failures))


async def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_source, "FILES_LIMIT", 3)
    for n in range(4):
        (tmp_path / f"{n}.json").write_text(targets(**{f"s{n}": ["1"]}))
    async with running(tmp_path) as sink:
        await sink.wait_until(lambda: any("more than 3 files" in each for each in sink.failures))
        (tmp_path / "0.json").unlink()
        await sink.wait_until(lambda: len(sink.services) == 3)


async def test_the_first_of_two_instances_with_one_id_counts(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(targets(web=["1"]))
    (tmp_path / "b.json").write_text(targets(web=["1", "2"]))
    async with running(tmp_path) as sink:
        await sink.wait_until(has(sink, "web", "1", "2"))
        assert len(sink.services["web"]) == 2
