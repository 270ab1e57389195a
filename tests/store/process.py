"""A process with a store, to be killed, refused or run out of space: ``python -m tests.store.process``.

Verbs: ``commit STORE`` pushes without end and prints each revision once it is acknowledged; ``collect STORE`` collects
until its input ends, and prints how many blobs it deleted; ``open PATH`` opens, prints ``open`` or the error, and waits
for the end of its input; ``file-limit PATH`` meets a file size limit and recovers; ``vanish PATH`` has its directory
removed. STORE is the path of a SQLite file or the URL of a database.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path
from shutil import rmtree

import structlog

from tests.store.contract import Content, cluster, contents, delta, full, push, replayed, start, take, watch_items
from xds.settings.sections import DATABASE_SCHEMES
from xds.store.base import Commit, GroupPush, Head, Store, StoredContent, StoreError, UnavailableError
from xds.store.postgres.engine import PostgresStore
from xds.store.retention import Retention
from xds.store.sql import collection
from xds.store.sqlite.engine import SqliteStore

GROUP = "g"
SET_SIZE = 8


def content_at(revision: int) -> list[Content]:
    """What revision n of the group holds: one push replaces all, so a torn one would show."""
    return [cluster(f"c{n}", b"%d/%d" % (revision, n)) for n in range(SET_SIZE)]


def store_at(place: str) -> Store:
    if place.startswith(DATABASE_SCHEMES):
        return PostgresStore(place)
    return SqliteStore(Path(place))


async def commit_without_end(place: str) -> None:
    store = store_at(place)
    await store.open()
    head = await store.head(GROUP)
    revision = head.revision if head is not None else 0
    while True:
        revision += 1
        before = full(*content_at(revision - 1)).entries if revision > 1 else ()
        known = StoredContent(revision - 1, {(url, name): blob for url, name, blob in before})
        pushed = GroupPush(GROUP, full(*content_at(revision)), head_content=known)
        commit = await committed(store, pushed, f"p{revision}")
        assert commit.revision == revision
        print(revision, flush=True)


async def committed(store: Store, pushed: GroupPush, push_id: str) -> Commit:
    """Push until the store answers, as a caller does who keeps the id."""
    while True:
        try:
            (commit,) = await store.commit_all([pushed], push_id=push_id)
        except UnavailableError:
            await asyncio.sleep(0.1)
        else:
            return commit


async def collect_until_told(place: str) -> None:
    collection.ROWS_PER_STEP, collection.ROWS_PER_SCAN = 2, 3
    store = store_at(place)
    await store.open()
    deleted = 0
    told = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while not told.done():
        deleted += (await store.collect(Retention(revisions=1, age_s=-1.0), 0.0)).blobs
    await store.close()
    print(deleted, flush=True)


async def hold_open(path: str) -> None:
    store = SqliteStore(Path(path))
    try:
        await store.open()
    except StoreError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return
    print("open", flush=True)
    sys.stdin.read()


async def meet_file_limit(place: str) -> None:
    """A write beyond RLIMIT_FSIZE fails with EFBIG, which SQLite takes for an I/O error."""
    path = Path(place)
    store = SqliteStore(path)
    await store.open()
    watch = watch_items(store)
    await start(watch)
    await push(store, full(cluster("small")), GROUP)
    await take(watch, 1)
    wal = path.with_name(path.name + "-wal")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + 8192, hard))
    big = delta(cluster("big", bytes(1 << 20)))
    try:
        await push(store, big, GROUP, push_id="big")
    except StoreError as error:
        print(f"{type(error).__name__}: {error}")
    assert await contents(store, await store.manifest(GROUP)) == [cluster("small")]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert await replayed(store, big, "big", GROUP) is None
    reset = await start(watch)  # the commit that failed might have been done and gone untold
    assert reset.groups == (Head(GROUP, 1),)
    await push(store, big, GROUP, push_id="big")
    assert await store.groups() == [Head(GROUP, 2)]
    await store.close()
    print("recovered", flush=True)


async def vanish(place: str) -> None:
    """The directory is removed under a running store, and an I/O error makes it open the file anew."""
    path = Path(place)
    store = SqliteStore(path)
    await store.open()
    await push(store, full(cluster("small")), GROUP)
    while path.parent.exists():
        rmtree(path.parent, ignore_errors=True)  # the store may make a file there meanwhile
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    for _ in range(2):
        try:
            await push(store, delta(cluster("big", bytes(1 << 20))), GROUP)
        except StoreError as error:
            print(f"{type(error).__name__}: {error}", flush=True)


VERBS = {
    "collect": collect_until_told,
    "commit": commit_without_end,
    "file-limit": meet_file_limit,
    "open": hold_open,
    "vanish": vanish,
}

if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # standard output is for the answers
    asyncio.run(VERBS[sys.argv[1]](sys.argv[2]))
