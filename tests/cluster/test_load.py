"""The load that clients report to several servers, as if all reported to one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.admin.test_load import endpoint
from tests.cluster.conftest import Site
from tests.lrs.reports import HERE, T0, THERE, Books, row, stats
from tests.support.resources import static_cluster
from xds.admin.load_view import LoadView
from xds.admin.other_servers import NoOthers
from xds.store.member_register import Member

ZONES = {1: HERE, 2: THERE, 3: HERE}
SERVERS = {1: "a", 2: "b", 3: "b"}


def tell(books: Books, stream: int, at: int) -> None:
    """A report of one node."""
    served = row(HERE, 60 * stream, 3, 63 * stream, 2, upstream_endpoint_stats=[endpoint(80, 15), endpoint(81, 5)])
    web = stats("web", served, row(THERE, 30, 10, 40, 1), dropped=5, drops={"lb": 3})
    books.tell(stream, at, web, stats(f"only{stream}", row(HERE, 1, 0, 1)))


@pytest.fixture
async def split(site: Site) -> Site:
    """Three nodes that report to `a` and `b`, and all of them to `one`, which stands alone."""
    books = {"a": Books(), "b": Books(), "one": Books()}
    for stream, server in SERVERS.items():
        for each in (server, "one"):
            books[each].open(stream, locality=ZONES[stream])
    for at in (10, 20):
        for stream, server in SERVERS.items():
            for each in (server, "one"):
                tell(books[each], stream, at)
    await site.add("one")
    del site.rows[-1]
    site["one"].services.others = NoOthers()
    for server, made in books.items():
        site[server].services.load = LoadView(made, clock=lambda: T0 + 20)
    return site


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/load", {}),
        ("/load/web", {"by": "locality"}),
        ("/load/web", {"by": "endpoint"}),
        ("/load/web", {"by": "node"}),
        ("/load/only3", {}),
        ("/load/web/series", {"step": "5"}),
        ("/load/web/series", {"step": "1", "by": "locality"}),
        ("/load/web/series", {"step": "10", "by": "endpoint"}),
    ],
)
async def test_it_is_what_one_server_would_show(split: Site, path: str, query: dict[str, str]) -> None:
    wanted = await split.get("one", path, window="20", **query)
    for server in ("a", "b"):
        found = await split.get(server, path, window="20", **query)
        assert found == about(wanted), server


def about(value: Any) -> Any:
    """The value, or one to which roundings have added up."""
    if isinstance(value, dict):
        return {name: about(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(about, value))
    return pytest.approx(value, abs=2e-5, rel=1e-4) if isinstance(value, float) else value


@pytest.mark.parametrize(
    ("path", "query", "items"),
    [
        ("/load", {}, "items"),
        ("/load/web", {"by": "locality"}, "localities"),
        ("/load/web", {"by": "node"}, "reporters"),
        ("/load/web/series", {"by": "locality"}, "items"),
    ],
)
async def test_pages_miss_and_repeat_nothing(split: Site, path: str, query: dict[str, str], items: str) -> None:
    whole = await split.get("a", path, window="20", **query)
    found, token = [], ""
    while True:
        page = await split.get("b", path, window="20", limit=1, page_token=token, **query)
        assert len(page[items]) == 1
        found += page[items]
        token = page.get("next_page_token", "")
        if not token:
            break
    assert found == about(whole[items]) and len(found) > 1


async def test_a_silent_server_is_named(split: Site, silent: str) -> None:
    split.rows.append(Member("c", silent))
    for path in ("/load", "/load/web", "/load/web/series"):
        assert (await split.get("a", path, window="20"))["partial"] == ["c"]
    answer = await split["a"].client.get("/api/v1/load/other")
    assert answer.status_code == 503 and answer.json()["partial"] == ["c"]
    split.rows.pop()
    assert (await split["a"].client.get("/api/v1/load/other")).status_code == 404


async def test_a_cluster_that_fails_at_another_server_is_found(split: Site) -> None:
    """The check shows it, whichever server is asked."""
    await split["b"].put("edge", static_cluster("web"))
    books = Books()
    books.open(1, locality=HERE)
    books.tell(1, 10, stats("broken", row(HERE, 0, 500, 500)))
    split["b"].services.load = LoadView(books, clock=lambda: T0 + 20)
    rows = {each["check"]: each for each in (await split.get("a", "/check"))["items"]}
    assert rows["load"]["state"] != "ok" and rows["load"]["detail"].startswith("b: ")
