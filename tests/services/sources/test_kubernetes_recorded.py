"""The fake of the Kubernetes API beside a real one: the same requests and writes, and its recorded answers.

To record anew, with Go and etcd: ``python -m tests.services.sources.test_kubernetes_recorded``.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.kubernetes_api import FakeKubernetes
from tests.support.kubernetes_cluster import ADMIN, STRANGER, KubernetesCluster
from tests.support.kubernetes_exchange import SERVICES_PATH, SLICES_PATH, play
from xds.services.sources.kubernetes_list_watch import ApiError, Deleted, Listed, ListWatch, Present
from xds.services.sources.kubernetes_objects import SERVICES, SLICES

Json = dict[str, Any]

RECORDED = Path(__file__).parent / "recorded" / "kubernetes-1.34.1.json"
GO_TIMEOUT_S = 3_000  # the first run builds the API server, on whatever machine
NOBODY = "nobody"


async def play_real(folder: Path) -> list[Json]:
    with KubernetesCluster(folder) as cluster:
        cluster.namespace("shop")

        async def do(write: Callable[[], None]) -> None:
            await asyncio.to_thread(write)

        def forget() -> None:  # a watch cache that begins anew has no events of before
            cluster.kill_api()
            cluster.start_api()

        return await play(cluster.url, cluster.context(), cluster, do, forget, (ADMIN, STRANGER, NOBODY))


async def play_fake() -> list[Json]:
    fake = FakeKubernetes(tokens={ADMIN, STRANGER})
    fake.without_rights = {STRANGER}
    fake.bookmark_s = 0.5

    async def do(write: Callable[[], None]) -> None:
        write()
        await asyncio.sleep(0.05)

    async with fake:
        return await play(
            fake.url, False, fake, do, fake.compact, (ADMIN, STRANGER, NOBODY), watch_s=2, short_watch_s=1
        )


def recorded() -> list[Json]:
    told: list[Json] = json.loads(RECORDED.read_text())
    return told


def compare(real: list[Json], ours: list[Json]) -> None:
    assert len(real) == len(ours)
    for theirs, own in zip(real, ours, strict=True):
        # A server sends bookmarks when it likes.
        assert {**own, "bookmarks": True} == {**theirs, "bookmarks": True}


async def test_the_fake_answers_as_the_api_server_did() -> None:
    compare(recorded(), await play_fake())


@pytest.mark.soak
@pytest.mark.timeout(GO_TIMEOUT_S)
@pytest.mark.xdist_group("kubernetes")
async def test_the_fake_answers_as_the_api_server_does(tmp_path: Path) -> None:
    compare(await play_real(tmp_path), await play_fake())


# What the source makes of the recorded answers


def bodies(path: str) -> list[Json]:
    """The recorded lists, as answers."""
    lists = [one["body"] for one in recorded() if one.get("ask") == path and one["status"] == 200 and not one["query"]]
    return [{**one, "metadata": {"resourceVersion": "7"}} for one in lists]


def lines(position: int) -> list[bytes]:
    """A recorded watch, with versions."""
    watch = [one for one in recorded() if "watch" in one][position]
    told = []
    for number, line in enumerate(watch["lines"], 10):
        if line["type"] != "ERROR":
            line["object"]["metadata"]["resourceVersion"] = str(number)
        told.append(json.dumps(line).encode())
    return told


def test_recorded_lists_are_read() -> None:
    services, slices = ListWatch(SERVICES, "shop"), ListWatch(SLICES, "shop")
    *objects, listed = services.receive_page(bodies(SERVICES_PATH)[0])
    read = {one.object.key.name: one.object for one in objects if isinstance(one, Present)}
    assert isinstance(listed, Listed)
    assert {key.name for key in listed.keys} == read.keys() == {"web", "db", "mail"}
    assert (read["web"].ports, read["web"].families) == (("http",), ("IPv4",))
    assert [each.code for each in read["mail"].findings] == ["external_name"]
    *parts, _ = slices.receive_page(bodies(SLICES_PATH)[0])
    (six, four) = (one.object for one in parts if isinstance(one, Present))
    assert (six.family, six.endpoints[0].hostname, six.ports[0].name) == ("IPv6", "h", "http")
    (one,) = four.endpoints
    assert (one.pod, one.zone, one.hints, one.node, one.is_ready) == ("p1", "z1", ("z2",), "n1", True)
    assert four.service == "web"


def test_recorded_events_are_read() -> None:
    followed = ListWatch(SLICES, "shop")
    followed.version = "7"
    changes = [followed.receive_line(line) for line in lines(0)]
    told = [
        (one.object.key.name, [each.is_terminating for each in one.object.endpoints])
        if isinstance(one, Present)
        else one.key.name
        for one in changes
        if isinstance(one, Present | Deleted)
    ]
    assert told == [("db-a", [False]), ("web-a", [True]), ("web-a", []), "db-a"]
    assert followed.version == "13"


def test_a_recorded_410_asks_for_a_list() -> None:
    followed = ListWatch(SLICES, "shop")
    followed.version = "7"
    (line,) = lines(-1)
    with pytest.raises(ApiError, match="410 Expired"):
        followed.receive_line(line)
    assert followed.needs_list


def test_the_real_server_says_nothing_of_a_version_of_the_future() -> None:
    """So a watch alone never finds out that an etcd was restored."""
    watch = [one for one in recorded() if "watch" in one][-2]
    assert (watch["status"], watch["lines"]) == (200, [])


async def record() -> None:
    """Play the exchange with a real API server, and keep what it says."""
    RECORDED.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        told = await play_real(Path(folder))
    RECORDED.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    asyncio.run(record())
