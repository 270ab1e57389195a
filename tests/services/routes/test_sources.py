"""GET /sources: how each source is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from tests.admin.conftest import Api
from tests.services.test_source_runs import Scripted, eventually, one, settings
from xds.model.errors import Violation
from xds.services.catalog import ServiceCatalog
from xds.services.core.source import Sink
from xds.services.source_runs import Sources


@pytest.fixture
async def sourced(api: Api) -> AsyncIterator[Api]:
    async def good(sink: Sink) -> None:
        sink.replace({"web": [one(1), one(2)], "api": [one(3)]})
        sink.rejected([Violation("syntax", "expected ','", pointer="/web", source="/etc/t.json:3:1", hint="add one")])
        await asyncio.sleep(100)

    async def bad(sink: Sink) -> None:
        raise RuntimeError("no route")

    async def silent(sink: Sink) -> None:
        await asyncio.sleep(100)

    async def flood(sink: Sink) -> None:
        for number in range(500):
            sink.put(f"f{number}", [one(number)])
        await asyncio.sleep(100)

    api.served.catalog = ServiceCatalog()  # with the time of day
    api.served.sources = Sources(
        [
            (Scripted(good, "good"), settings()),
            (Scripted(bad, "bad"), settings(5, 5)),
            (Scripted(silent, "silent"), settings()),
            (Scripted(flood, "flood"), settings(changes_per_s=1)),
        ],
        api.served.catalog.sink,
    )
    api.served.catalog.start()
    api.served.sources.start()
    await eventually(lambda: "web" in api.served.catalog.names())
    yield api
    await api.served.sources.close()
    await api.served.catalog.close()


async def test_sources_are_listed_with_their_state(sourced: Api) -> None:
    items = (await sourced.client.get("/api/v1/sources")).json()["items"]
    assert [(item["name"], item["kind"], item["state"]) for item in items] == [
        ("bad", "python", "failing"),
        ("flood", "python", "reading"),
        ("good", "python", "reading"),
        ("silent", "python", "starting"),
    ]
    bad, flood, good, silent = items
    assert (bad["message"], bad["restarts_n"], bad["failures_n"]) == ("RuntimeError: no route", 1, 1)
    assert bad["failing_since"] and bad["retry_at"] > bad["failing_since"]
    assert (good["services_n"], good["instances_n"], good["failing_since"]) == (2, 3, None)
    assert good["read_age_s"] < 10
    assert good["findings"] == [
        {
            "service": "",
            "code": "syntax",
            "detail": "expected ','",
            "pointer": "/web",
            "source": "/etc/t.json:3:1",
            "hint": "add one",
        }
    ]
    assert flood["waiting_n"] > 400
    assert flood["waiting_s"] >= 0
    assert (silent["read_at"], silent["read_age_s"]) == (None, None)


async def test_pages_and_single_sources(sourced: Api) -> None:
    first = (await sourced.client.get("/api/v1/sources?limit=3")).json()
    assert [item["name"] for item in first["items"]] == ["bad", "flood", "good"]
    rest = await sourced.client.get("/api/v1/sources", params={"page_token": first["next_page_token"]})
    assert [item["name"] for item in rest.json()["items"]] == ["silent"]
    found = (await sourced.client.get("/api/v1/sources/good")).json()
    assert (found["name"], found["findings_n"]) == ("good", 1)
    missing = await sourced.client.get("/api/v1/sources/none")
    assert (missing.status_code, "no source named 'none'" in missing.text) == (404, True)


async def test_instances_that_cannot_be_used_are_found_by_service(sourced: Api) -> None:
    sink = sourced.served.catalog.sink("good", "python")
    sink.put("web", [one(1), one(2), replace(one(4), address="web.example.org")])
    await eventually(lambda: bool(_findings(sourced)))
    found = (await sourced.client.get("/api/v1/sources/good")).json()
    assert [(each["service"], each["code"]) for each in found["findings"]] == [
        ("", "syntax"),
        ("web", "invalid_address"),
    ]
    assert found["instances_n"] == 3


def _findings(api: Api) -> dict[str, tuple[Violation, ...]]:
    return next(each.findings for each in api.served.catalog.holdings() if each.name == "good")


async def test_without_sources_there_is_registration_alone(api: Api) -> None:
    items = (await api.client.get("/api/v1/sources")).json()["items"]
    assert [item["name"] for item in items] == ["registration"]
