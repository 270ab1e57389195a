"""`GET /members`: the servers as one of them knows them, and what each says of itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from time import time

import pytest

from tests.cluster.conftest import Site
from xds.store.member_register import KnownMembers, Member


def tell(site: Site, problem: str = "", ahead_s: float = 0.0) -> None:
    """Let each server know all of them; `a` holds the lease, and `b` has the problem.

    The clock of the database is ``ahead_s`` before that of the servers.
    """
    now_s = time() + ahead_s
    rows = [Member(row.id, row.url, "1.0", number, now_s - 100.0, now_s - 1.0) for number, row in enumerate(site.rows)]
    for me in rows:
        others = [row for row in rows if row.id != me.id]
        known = KnownMembers(me, others, "a", problem if me.id == "b" else "", now_s, is_shared=True)
        site[me.id].services.members = partial(replace, known)


async def test_each_server_says_what_only_it_knows(site: Site) -> None:
    tell(site, "the database is away")
    site.connect("b", "n1")
    for asked in ("a", "b"):
        answer = await site.get(asked, "/members")
        assert "partial" not in answer
        assert [(each["id"], each["streams"], each["problem"]) for each in answer["items"]] == [
            ("a", 0, ""),
            ("b", 1, "the database is away"),
        ]
        assert [each["id"] for each in answer["items"] if each["is_asked"]] == [asked]
        assert [each["id"] for each in answer["items"] if each["is_holder"]] == ["a"]
        assert [(each["silent_s"], each["lag_s"]) for each in answer["items"]] == [(1.0, 0.0)] * 2


async def test_a_server_that_does_not_answer_is_listed_and_named(site: Site, silent: str) -> None:
    site.rows[1] = type(site.rows[1])("b", silent)
    tell(site)
    answer = await site.get("a", "/members")
    assert answer["partial"] == ["b"]
    assert [(each["id"], each["streams"], each["problem"]) for each in answer["items"]] == [
        ("a", 0, ""),
        ("b", None, None),
    ]


async def test_a_server_whose_address_another_one_has_is_no_holder_and_was_never_seen(site: Site) -> None:
    holder = Member("a", "", "1.0", 0, 900.0, 999.0)
    known = KnownMembers(Member("a", "", "1.0"), (holder,), "a", "the address", 1_000.0, is_shared=True)
    site["a"].services.members = partial(replace, known)
    items = (await site.get("a", "/members"))["items"]
    assert [(each["silent_s"], each["is_holder"]) for each in items] == [(0.0, False), (1.0, True)]


async def test_the_check_has_a_row_where_several_servers_may_share_the_store(site: Site) -> None:
    assert "members" not in [row["check"] for row in (await site.get("a", "/check"))["items"]]
    tell(site)
    rows = {row["check"]: (row["state"], row["detail"]) for row in (await site.get("a", "/check"))["items"]}
    assert rows["members"][0] == "ok" and "a holds the lease" in rows["members"][1]
    tell(site, "another server has the address")
    rows = {row["check"]: (row["state"], row["detail"]) for row in (await site.get("b", "/check"))["items"]}
    assert rows["members"][0] == "failed" and "another server has the address" in rows["members"][1]


@pytest.mark.parametrize(("ahead_s", "text"), [(-3600.0, "s ahead of that"), (3600.0, "s behind that")])
async def test_the_check_warns_of_a_clock_that_is_wrong(site: Site, ahead_s: float, text: str) -> None:
    tell(site, ahead_s=ahead_s)
    rows = {row["check"]: (row["state"], row["detail"]) for row in (await site.get("a", "/check"))["items"]}
    assert rows["members"][0] == "warning" and text in rows["members"][1]
