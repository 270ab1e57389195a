"""The lock of a data directory, also where files cannot be written."""

from __future__ import annotations

import errno
import fcntl
import shutil
from pathlib import Path

import pytest

from xds.store.base import Delta, OutOfSpaceError, UnavailableError
from xds.store.sqlite import database
from xds.store.sqlite.directory_lock import DirectoryLock
from xds.store.sqlite.engine import SqliteStore

FILE = "xds.sqlite3"


def test_one_holds_it_alone_or_many_share_it(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    shared, other = DirectoryLock(tmp_path, shared=True), DirectoryLock(tmp_path, shared=True)
    first.take()
    first.take()
    for late in (second, shared):
        with pytest.raises(UnavailableError, match="in use by another process"):
            late.take()
        assert not late.is_held
    first.release()
    first.release()
    shared.take()
    other.take()
    with pytest.raises(UnavailableError):
        second.take()


def test_a_directory_that_was_replaced_has_a_lock_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    first, second = DirectoryLock(folder), DirectoryLock(folder)
    first.take()
    shutil.rmtree(folder)
    second.take()
    assert not second.is_held, "there is nothing to lock"
    folder.mkdir()
    second.take()
    assert second.is_held


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Opening the file for writing fails with EROFS, until the patch is undone."""

    def refuse(path: Path) -> bool:
        raise UnavailableError("cannot keep data") from OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(database, "prepare_file", refuse)
    return monkeypatch


async def filled(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    await store.commit("a", Delta((), (), {}), push_id="1")
    await store.close()


async def test_a_store_that_can_only_be_read_is_locked(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    path = tmp_path / FILE
    await filled(path)
    request.getfixturevalue("read_only")
    first, second = SqliteStore(path), SqliteStore(path)
    await first.open()
    assert "can only be read" in first.condition().read_only
    with pytest.raises(UnavailableError, match="in use by another process"):
        await second.open()
    await first.commit("a", Delta((), (), {}), push_id="2")  # it can be written now
    assert not first.condition().read_only
    with pytest.raises(UnavailableError, match="in use by another process"):
        await second.open()
    await first.close()
    await second.open()
    await second.close()


async def test_without_such_locks_it_is_not_written_before_a_restart(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Nobody knows then who else serves it."""
    path = tmp_path / FILE
    await filled(path)
    patch: pytest.MonkeyPatch = request.getfixturevalue("read_only")

    def none(descriptor: int, mode: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    patch.setattr(fcntl, "flock", none)
    store = SqliteStore(path)
    await store.open()
    with pytest.raises(OutOfSpaceError, match="restart the server when it can be written"):
        await store.commit("a", Delta((), (), {}), push_id="2")
    await store.close()
    patch.undo()
    await store.open()
    await store.commit("a", Delta((), (), {}), push_id="2")
    await store.close()


async def test_content_that_another_program_wrote_meanwhile_is_served(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A server of an earlier release does not know the lock."""
    path = tmp_path / FILE
    await filled(path)
    patch: pytest.MonkeyPatch = request.getfixturevalue("read_only")
    store = SqliteStore(path)
    await store.open()
    watch = store.watch()
    await anext(watch)
    patch.undo()
    with pytest.MonkeyPatch.context() as without:
        without.setattr(DirectoryLock, "take", lambda lock: None)
        earlier = SqliteStore(path)
        await earlier.open()
        await earlier.commit("theirs", Delta((), (), {}), push_id="3")
        await earlier.close()
    await store.commit("ours", Delta((), (), {}), push_id="4")
    assert {head.group for head in await store.groups()} == {"a", "theirs", "ours"}
    (seen,) = await anext(watch)
    assert type(seen).__name__ == "Reset", seen
    await store.close()
