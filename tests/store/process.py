"""A process that owns a SQLite store, to be killed, refused or run out of space: ``python -m tests.store.process``.

Verbs: ``commit PATH`` pushes without end and prints each revision once it is acknowledged; ``open PATH`` opens, prints
``open`` or the error, and waits for the end of its input; ``file-limit PATH`` meets a file size limit and recovers;
``vanish PATH`` has its directory removed.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from pathlib import Path
from shutil import rmtree

import structlog

from tests.store.contract import Content, cluster, contents, delta, full, push, start, take
from xds.store.base import GroupPush, Head, StoredContent, StoreError
from xds.store.sqlite.engine import SqliteStore

GROUP = "g"
SET_SIZE = 8


def content_at(revision: int) -> list[Content]:
    """What revision n of the group holds: one push replaces all, so a torn one would show."""
    return [cluster(f"c{n}", b"%d/%d" % (revision, n)) for n in range(SET_SIZE)]


async def commit_without_end(path: Path) -> None:
    store = SqliteStore(path)
    await store.open()
    head = await store.head(GROUP)
    revision = head.revision if head is not None else 0
    while True:
        revision += 1
        before = full(*content_at(revision - 1)).entries if revision > 1 else ()
        known = StoredContent(revision - 1, {(url, name): blob for url, name, blob in before})
        pushed = GroupPush(GROUP, full(*content_at(revision)), head_content=known)
        (commit,) = await store.commit_all([pushed], push_id=f"p{revision}")
        assert commit.revision == revision
        print(revision, flush=True)


async def hold_open(path: Path) -> None:
    store = SqliteStore(path)
    try:
        await store.open()
    except StoreError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return
    print("open", flush=True)
    sys.stdin.read()


async def meet_file_limit(path: Path) -> None:
    """A write beyond RLIMIT_FSIZE fails with EFBIG, which SQLite takes for an I/O error."""
    store = SqliteStore(path)
    await store.open()
    watch = store.watch()
    await start(watch)
    await push(store, full(cluster("small")), GROUP)
    await take(watch, 1)
    wal = path.with_name(path.name + "-wal")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size + 8192, hard))
    try:
        await push(store, delta(cluster("big", bytes(1 << 20))), GROUP, push_id="big")
    except StoreError as error:
        print(f"{type(error).__name__}: {error}")
    assert await contents(store, await store.manifest(GROUP)) == [cluster("small")]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert await store.commit_status(GROUP, "big") is None
    reset = await start(watch)  # the commit that failed might have been done and gone untold
    assert reset.groups == (Head(GROUP, 1),)
    await push(store, delta(cluster("big", bytes(1 << 20))), GROUP, push_id="big")
    assert await store.groups() == [Head(GROUP, 2)]
    await store.close()
    print("recovered", flush=True)


async def vanish(path: Path) -> None:
    """The directory is removed under a running store, and an I/O error makes it open the file anew."""
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


VERBS = {"commit": commit_without_end, "open": hold_open, "file-limit": meet_file_limit, "vanish": vanish}

if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))  # standard output is for the answers
    asyncio.run(VERBS[sys.argv[1]](Path(sys.argv[2])))
