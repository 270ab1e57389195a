"""A watched directory: groups hold what its files say; invalid or missing files change nothing by accident."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from structlog.testing import capture_logs

from tests.mesh.test_lowered_groups import (
    HTTP,
    RESOLVER,
    V1,
    V2,
    WEB,
    put_entries,
    put_upstreams,
    served,
    splitter,
)
from tests.support.connected import Client
from tests.support.plane import Plane
from tests.support.process import DEADLINE_S
from tests.support.resources import static_cluster
from xds.access.caller import Caller
from xds.codec.resources import ResourceDecoder
from xds.fleet.event_log import EventFilter, EventKind
from xds.mesh.entry_records import DeleteEntry
from xds.model.errors import ValidationError
from xds.model.node import Node
from xds.model.resource_type import CLUSTER
from xds.push import directory as watched_directory
from xds.push.directory import WatchedDirectory, scan
from xds.push.groups import GroupSettings
from xds.rollouts.plan import read_plan
from xds.rollouts.rollout import RolloutAction
from xds.store.audit_entries import AuditFilter, AuditLane

Logs = Sequence[MutableMapping[str, Any]]


class Watched:
    """A plane whose groups follow the files of ``root``."""

    def __init__(self, plane: Plane, root: Path, prune: bool = False) -> None:
        self.plane = plane
        self.root = root
        self.directory = WatchedDirectory(plane.publisher, root, prune=prune, decoder=ResourceDecoder(1 << 20))

    def put(self, name: str, *clusters: str, port: int = 80) -> Path:
        file = self.root / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.safe_dump({"resources": [static_cluster(cluster, port) for cluster in clusters]}))
        return file

    def held(self) -> dict[str, list[str]]:
        """Names of the clusters of every group."""
        return {
            content.group: [resource.name for resource in content.resources()]
            for content in self.plane.publisher.groups.all()
        }

    async def wait(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S * 2):
            while not condition():
                await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests write a file in one step, so that nothing more needs to be waited for."""
    monkeypatch.setattr(watched_directory, "DEBOUNCE_MS", 50)
    monkeypatch.setattr(watched_directory, "RESCAN_MS", 200)


@pytest.fixture
async def watched(plane: Plane, tmp_path: Path) -> AsyncIterator[Watched]:
    made = Watched(plane, tmp_path)
    yield made
    await made.directory.close()


@pytest.fixture
async def pruned(plane: Plane, tmp_path: Path) -> AsyncIterator[Watched]:
    made = Watched(plane, tmp_path, prune=True)
    yield made
    await made.directory.close()


def logged(logs: Logs, event: str) -> list[MutableMapping[str, Any]]:
    return [line for line in logs if line["event"] == event]


async def test_a_reload_applies_all_files_again(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is requested during a push: what was pushed is replaced."""
    watched.put("edge.yaml", "a")
    watched.put("core.yaml", "b")
    await watched.directory.start()
    publisher = watched.plane.publisher
    assert watched.directory.groups == ("core", "edge")
    await publisher.push("edge", [])
    watched.directory.apply_again()
    await watched.wait(lambda: watched.held() == {"core": ["b"], "edge": ["a"]})
    push = publisher.push

    async def restored_meanwhile(*arguments: Any, **options: Any) -> object:
        result = await push(*arguments, **options)
        monkeypatch.setattr(publisher, "push", push)
        watched.directory.apply_again()
        await push("edge", [])
        return result

    monkeypatch.setattr(publisher, "push", restored_meanwhile)
    watched.put("edge.yaml", "c")
    await watched.wait(lambda: watched.held()["edge"] == ["c"] and publisher.groups.content("edge").revision >= 5)


async def test_files_that_a_rollout_has_taken_back_are_refused_and_do_not_come_again(watched: Watched) -> None:
    """The group has a plan, which files follow too."""
    plane = watched.plane
    watched.put("edge.yaml", "a")
    await plane.publisher.configure("edge", GroupSettings(rollout=read_plan("1")))
    await watched.directory.start()
    nodes = [Client(plane.fleet, Node(name, "edge"), "edge") for name in ("n1", "n2")]
    for each in nodes:
        each.subscribe(CLUSTER)
    watched.put("edge.yaml", "b")
    await watched.wait(lambda: bool(plane.publisher.rollouts.open()))
    await plane.publisher.rollouts.change("edge", RolloutAction.ABORT, Caller("ops"), "no")
    revision = plane.publisher.groups.content("edge").revision
    (watched.root / "edge.yaml").touch()
    await watched.wait(lambda: len(watched.directory.refused) == 1)
    (refused,) = watched.directory.refused
    assert "taken back" in refused.detail and refused.detail.endswith("aborted: no")
    watched.directory.apply_again()
    await asyncio.sleep(1.0)
    assert plane.publisher.groups.content("edge").revision == revision
    watched.put("edge.yaml", "c")
    await watched.wait(lambda: bool(plane.publisher.rollouts.open()) and not len(watched.directory.refused))


async def test_files_and_directories_are_groups(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    watched.put("core/one.yaml", "b")
    watched.put("core/two.json", "c")
    watched.put("core/notes.txt", "d")
    watched.put(".hidden.yaml", "e")
    await watched.directory.start()
    assert watched.held() == {"core": ["b", "c"], "edge": ["a"]}
    assert watched.plane.publisher.groups.content("edge").meta.author == "watch"


async def test_changes_are_applied(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    await watched.directory.start()
    watched.put("edge.yaml", "a", "b")
    await watched.wait(lambda: watched.held() == {"edge": ["a", "b"]})
    watched.put("core/one.yaml", "c")
    await watched.wait(lambda: watched.held().get("core") == ["c"])
    watched.put("core/two.yaml", "d")
    await watched.wait(lambda: watched.held().get("core") == ["c", "d"])
    assert watched.plane.publisher.groups.content("edge").revision == 2


async def test_a_directory_that_is_swapped_by_a_link_is_followed(watched: Watched) -> None:
    """As Kubernetes updates mounted ConfigMaps."""
    for turn, cluster in enumerate("ab"):
        watched.put(f"..{turn}/edge.yaml", cluster)
    (watched.root / "..data").symlink_to("..0")
    (watched.root / "edge.yaml").symlink_to("..data/edge.yaml")
    await watched.directory.start()
    assert watched.held() == {"edge": ["a"]}
    (watched.root / "..new").symlink_to("..1")
    (watched.root / "..new").rename(watched.root / "..data")
    await watched.wait(lambda: watched.held() == {"edge": ["b"]})


async def test_a_broken_file_is_reported_with_its_place_and_changes_nothing(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    await watched.directory.start()
    with capture_logs() as logs:
        (watched.root / "edge.yaml").write_text("resources:\n- '@type': type.googleapis.com/x\n  a: {\n")
        await watched.wait(lambda: bool(logged(logs, "directory.refused")))
    assert logged(logs, "directory.refused")[0]["source"].startswith(f"{watched.root}/edge.yaml:")
    assert watched.held() == {"edge": ["a"]}
    watched.put("edge.yaml", "b")
    await watched.wait(lambda: watched.held() == {"edge": ["b"]})


async def test_a_file_that_cannot_be_applied_is_reported_until_it_can(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    (watched.root / "bad.yaml").write_text("resources:\n- '@type': 5\n")
    await watched.directory.start()
    refused = watched.directory.refused
    (found,) = refused
    assert (found.group, found.files) == ("bad", ("bad.yaml",))
    assert found.source.startswith(f"{watched.root}/bad.yaml:2:")
    since_s = found.since_s
    (watched.root / "bad.yaml").write_text("[")
    await watched.wait(lambda: next(iter(refused)).detail != found.detail)
    assert next(iter(refused)).since_s == since_s
    watched.put("bad.yaml", "b")
    await watched.wait(lambda: not len(refused))
    page = watched.plane.fleet.events.after(0, EventFilter(frozenset({EventKind.WATCH})), 10)
    assert [(event.action, event.group) for event in page.events] == [
        ("refused", "bad"),
        ("refused", "bad"),
        ("applied", "bad"),
    ]
    assert page.events[0].details["source"] == found.source
    refusals = AuditFilter(lanes=frozenset({AuditLane.REFUSED}))
    notes = [each.note for each in (await watched.plane.publisher.audit.read("", 10, refusals)).entries]
    assert {(note.actor, note.author, note.group) for note in notes} == {("server", "watch", "bad")}
    assert {note.reason for note in notes} == {"missing_type", "syntax"}


async def test_a_file_whose_name_is_no_text_is_in_the_audit_list(watched: Watched) -> None:
    (watched.root / os.fsdecode(b"\xff.yaml")).write_text("[")
    watched.put("edge.yaml", "a")
    await watched.directory.start()
    refusals = AuditFilter(lanes=frozenset({AuditLane.REFUSED}))
    notes = [each.note for each in (await watched.plane.publisher.audit.read("", 10, refusals)).entries]
    assert [note.group for note in notes] == ["\\udcff"]


async def test_files_that_are_gone_are_refused_no_more(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    (watched.root / "bad.yaml").write_text("[")
    await watched.directory.start()
    (watched.root / "bad.yaml").unlink()
    await watched.wait(lambda: not len(watched.directory.refused))


async def test_a_directory_that_vanishes_is_known_and_followed_when_it_is_back(watched: Watched) -> None:
    watched.root = watched.root / "below"
    watched.root.mkdir()
    watched.directory = WatchedDirectory(
        watched.plane.publisher, watched.root, prune=False, decoder=ResourceDecoder(1 << 20)
    )
    watched.put("edge.yaml", "a")
    await watched.directory.start()
    shutil.rmtree(watched.root)
    await watched.wait(lambda: bool(len(watched.directory.refused)))
    assert [each.group for each in watched.directory.refused] == [""]
    watched.root.mkdir()
    watched.put("edge.yaml", "b")
    await watched.wait(lambda: watched.held() == {"edge": ["b"]})
    await watched.wait(lambda: not len(watched.directory.refused))


async def test_the_next_holder_of_the_lease_applies_all_files(watched: Watched) -> None:
    holds = False
    watched.directory.holds_lease = lambda: holds
    watched.put("edge.yaml", "a")
    (watched.root / "bad.yaml").write_text("[")
    await watched.directory.start()
    await asyncio.sleep(0.5)
    assert watched.held() == {} and not len(watched.directory.refused)
    holds = True
    await watched.wait(lambda: watched.held() == {"edge": ["a"]})
    await watched.wait(lambda: len(watched.directory.refused) == 1)
    holds = False
    await watched.wait(lambda: not len(watched.directory.refused))
    watched.put("edge.yaml", "b")
    await asyncio.sleep(0.5)
    assert watched.held() == {"edge": ["a"]}
    holds = True
    await watched.wait(lambda: watched.held() == {"edge": ["b"]})
    await watched.wait(lambda: len(watched.directory.refused) == 1)


async def test_a_server_that_has_lost_the_lease_amid_its_work_writes_nothing(pruned: Watched) -> None:
    """It was stopped for a while, for instance; files of the next holder may be newer."""
    pruned.put("edge.yaml", "a")
    pruned.put("shop.yaml", "a")
    await pruned.directory.start()
    asked: list[None] = []

    def holds() -> bool:
        asked.append(None)
        return len(asked) == 1  # when the work begins

    pruned.put("edge.yaml", "b")
    (pruned.root / "shop.yaml").unlink()
    pruned.directory.holds_lease = holds
    await pruned.wait(lambda: len(asked) > 4)
    assert pruned.held() == {"edge": ["a"], "shop": ["a"]} and not len(pruned.directory.refused)


async def test_a_store_that_is_down_is_known_until_it_is_back(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    await watched.plane.store.close()
    await watched.directory.start()
    assert ["not open" in each.detail for each in watched.directory.refused] == [True]
    await watched.plane.store.open()
    await watched.wait(lambda: not len(watched.directory.refused))
    assert watched.held() == {"edge": ["a"]}


async def test_a_broken_file_at_the_start_does_not_stop_the_others(watched: Watched) -> None:
    watched.put("good.yaml", "a")
    (watched.root / "bad.yaml").write_text("[")
    await watched.directory.start()
    assert watched.held() == {"good": ["a"]}


async def test_a_name_in_two_files_of_a_group_is_refused(watched: Watched) -> None:
    watched.put("edge/one.yaml", "a")
    watched.put("edge/two.yaml", "a", port=81)
    with capture_logs() as logs:
        await watched.directory.start()
    assert [line["error_code"] for line in logged(logs, "directory.refused")] == ["duplicate_name"]
    assert watched.held() == {}


async def test_a_removed_file_stays_served_and_is_reported(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    watched.put("core.yaml", "b")
    await watched.directory.start()
    with capture_logs() as logs:
        (watched.root / "edge.yaml").unlink()
        await watched.wait(lambda: bool(logged(logs, "directory.group_kept")))
    assert watched.held() == {"core": ["b"], "edge": ["a"]}


async def test_prune_takes_the_group_along(pruned: Watched) -> None:
    pruned.put("edge.yaml", "a")
    pruned.put("core.yaml", "b")
    await pruned.directory.start()
    (pruned.root / "edge.yaml").unlink()
    await pruned.wait(lambda: pruned.held() == {"core": ["b"]})


async def test_an_empty_directory_prunes_nothing(pruned: Watched) -> None:
    pruned.put("edge.yaml", "a")
    await pruned.directory.start()
    with capture_logs() as logs:
        (pruned.root / "edge.yaml").unlink()
        await pruned.wait(lambda: bool(logged(logs, "directory.group_kept")))
    assert logged(logs, "directory.group_kept")[0]["is_empty"]
    assert pruned.held() == {"edge": ["a"]}


async def test_connected_nodes_do_not_lose_everything_to_an_empty_file(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    await watched.directory.start()
    Client(watched.plane.fleet, Node("n", "edge"), "edge")
    with capture_logs() as logs:
        watched.put("edge.yaml")
        await watched.wait(lambda: bool(logged(logs, "directory.refused")))
    assert watched.held() == {"edge": ["a"]}


async def test_the_last_writer_wins(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    await watched.directory.start()
    await watched.plane.publisher.push("edge", [])
    watched.put("core.yaml", "b")
    await watched.wait(lambda: "core" in watched.held())
    assert watched.held()["edge"] == []  # its file did not change
    watched.put("edge.yaml", "c")
    await watched.wait(lambda: watched.held()["edge"] == ["c"])


async def test_a_directory_that_goes_and_comes_back(watched: Watched) -> None:
    watched.put("edge.yaml", "a")
    await watched.directory.start()
    with capture_logs() as logs:
        shutil.rmtree(watched.root)
        await watched.wait(lambda: bool(logged(logs, "directory.unreadable")))
        watched.root.mkdir()
        watched.put("edge.yaml", "b")
        await watched.wait(lambda: watched.held() == {"edge": ["b"]})


async def test_no_directory_at_the_start(plane: Plane, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="absent"):
        await WatchedDirectory(plane.publisher, tmp_path / "absent", prune=False, decoder=ResourceDecoder(1)).start()


def test_a_file_and_a_directory_of_one_name_are_one_group(tmp_path: Path) -> None:
    (tmp_path / "edge").mkdir()
    files = [tmp_path / "edge" / "a.yaml", tmp_path / "edge.yaml"]
    for file in files:
        file.touch()
    assert {group: list(found.files) for group, found in scan(tmp_path).items()} == {"edge": files}


class TestBesideLowered:
    """A group whose pushed part comes from files, and that has upstreams."""

    @pytest.fixture
    async def shop(self, watched: Watched) -> Watched:
        watched.put("shop.yaml", "pushed")
        await watched.directory.start()
        await put_entries(watched.plane, HTTP, RESOLVER, splitter(90))
        await put_upstreams(watched.plane, "web")
        return watched

    def refusals(self, shop: Watched) -> list[str]:
        return [refused.detail for refused in shop.directory.refused]

    async def test_files_replace_only_content_of_files(self, shop: Watched) -> None:
        shop.put("shop.yaml", "other")
        await shop.wait(lambda: "other" in shop.held()["shop"])
        assert set(served(shop.plane, CLUSTER)) == {"other", V1, V2}
        shop.directory.apply_again()
        await put_entries(shop.plane, splitter(50))
        assert set(served(shop.plane, CLUSTER)) == {"other", V1, V2}

    async def test_a_file_with_a_lowered_name_is_refused_until_it_is_mended(self, shop: Watched) -> None:
        shop.put("shop.yaml", "pushed", V1)
        await shop.wait(lambda: bool(self.refusals(shop)))
        (detail,) = self.refusals(shop)
        assert "is lowered from upstream 'web' by" in detail
        assert set(served(shop.plane, CLUSTER)) == {"pushed", V1, V2}
        shop.put("shop.yaml", "pushed", "new")
        await shop.wait(lambda: not self.refusals(shop))
        assert set(served(shop.plane, CLUSTER)) == {"pushed", "new", V1, V2}

    async def test_an_entry_with_a_name_of_a_file_is_refused_with_both_owners(self, shop: Watched) -> None:
        shop.put("shop.yaml", "pushed", WEB)
        await shop.wait(lambda: WEB in shop.held()["shop"])
        deleted = shop.plane.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        with pytest.raises(ValidationError, match=f"clusters/{WEB}, which is pushed to this group, .* upstream 'web'"):
            await deleted
        shop.put("shop.yaml", "pushed")
        await shop.wait(lambda: WEB not in shop.held()["shop"])
        await shop.plane.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        assert set(served(shop.plane, CLUSTER)) == {"pushed", WEB}

    async def test_undo_reverts_content_of_files_until_they_change(self, shop: Watched) -> None:
        shop.put("shop.yaml", "bad")
        await shop.wait(lambda: "bad" in shop.held()["shop"])
        await put_entries(shop.plane, splitter(50))
        plan = await shop.plane.publisher.undo.plan("shop")
        assert plan.to is not None
        await shop.plane.publisher.rollback("shop", plan.to.revision)
        assert set(served(shop.plane, CLUSTER)) == {"pushed", V1, V2}
        shop.put("shop.yaml", "good")
        await shop.wait(lambda: "good" in shop.held()["shop"])
        assert set(served(shop.plane, CLUSTER)) == {"good", V1, V2}

    async def test_pruned_files_take_the_upstreams_with_the_group(self, plane: Plane, tmp_path: Path) -> None:
        pruned = Watched(plane, tmp_path, prune=True)
        pruned.put("other.yaml", "a")
        file = pruned.put("shop.yaml", "pushed")
        await pruned.directory.start()
        await put_upstreams(plane, "web")
        file.unlink()
        await pruned.wait(lambda: "shop" not in pruned.held())
        assert list(plane.mesh.lowered) == []
        await pruned.directory.close()
