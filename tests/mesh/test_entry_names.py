"""Names of config entries are compared without case, and shown as they were written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.mesh.test_config_entries import CONTEXT, entries, entry, published, put, resolver, splitter, store
from tests.support.chains import entries_of, request_of
from xds.mesh.config_entries import EntryTable
from xds.mesh.core.chain.chain import ChainError, RouterNode, SplitterNode
from xds.mesh.core.chain.compile import compile_chain
from xds.mesh.core.chain.index import ChainIndex
from xds.mesh.core.entries.entry import entry_key, read_entries
from xds.mesh.entry_records import LINE, DeleteEntry, EntryConflictError, record_of
from xds.model.errors import NotFoundError, ValidationError
from xds.store.base import Delta, Entry, Store, blob_id

__all__ = ["entries", "store"]  # fixtures

WEB_HTTP: dict[str, Any] = {"Kind": "service-defaults", "Name": "Web", "Protocol": "http"}


async def stored_names(store: Store) -> list[tuple[str, str]]:
    return [(one.type_url, one.name) for one in (await store.manifest(LINE)).entries]


async def store_three_cases(store: Store) -> None:
    """As an earlier release stored names that differ in case only; ``web`` was modified last."""
    for revision, (name, timeout) in enumerate((("Web", "1s"), ("wEB", "3s"), ("web", "2s")), 1):
        record = record_of(entry(resolver(name, ConnectTimeout=timeout)), revision, revision)
        body = record.body()
        line = Entry(*record.written, blob_id(body))
        await store.commit(LINE, Delta((line,), (), {line.blob_id: body}), push_id=name)


class TestWriting:
    async def test_a_splitter_has_the_protocol_of_defaults_in_another_case(self, entries: EntryTable) -> None:
        await entries.apply([put(WEB_HTTP)])
        result = await entries.apply([put(splitter("WEB", "v1")), put(resolver("web", Subsets={"v1": {}}))])
        assert result.chains == ("WEB",)
        chain = entries.chain("web")
        assert (chain.service, chain.protocol, chain.start_node) == ("web", "http", "splitter:web.default.default")
        assert list(entries.index.services) == ["WEB"]

    async def test_a_write_in_another_case_replaces_the_entry(self, entries: EntryTable, store: Store) -> None:
        await entries.apply([put(WEB_HTTP)])
        result = await entries.apply([put({**WEB_HTTP, "Name": "WEB"})])
        assert [(one.written, one.change) for one in result.changes] == [(("service-defaults", "WEB"), "changed")]
        record = entries.record("service-defaults", "web")
        assert record is not None
        assert (record.entry.name, record.created_revision, record.modified_revision) == ("WEB", 1, 2)
        assert len(entries.records()) == 1
        assert await stored_names(store) == [("service-defaults", "WEB")]
        again = await published(store)
        assert again.records() == entries.records()
        assert list(again.index.services) == ["WEB"]

    async def test_undo_and_history_show_the_name_of_their_time(self, entries: EntryTable, store: Store) -> None:
        await entries.apply([put(WEB_HTTP)])
        await entries.apply([put({**WEB_HTTP, "Name": "WEB"})])
        (change,) = await entries.history.changes(1, 2)
        assert (change.before and change.before.entry.name, change.after and change.after.entry.name) == ("Web", "WEB")
        await entries.roll_back(1)
        assert await stored_names(store) == [("service-defaults", "Web")]
        assert [one.entry.name for one in entries.records()] == ["Web"]

    async def test_a_deletion_names_the_entry_in_any_case(self, entries: EntryTable, store: Store) -> None:
        await entries.apply([put(WEB_HTTP)])
        with pytest.raises(EntryConflictError, match="service-defaults/WEB is at revision 1"):
            await entries.apply([DeleteEntry("service-defaults", "WEB", cas=7)])
        with pytest.raises(NotFoundError, match="Service-Defaults/web"):
            await entries.apply([DeleteEntry("Service-Defaults", "web")])
        result = await entries.apply([DeleteEntry("service-defaults", "wEB")])
        assert [(one.written, one.change) for one in result.changes] == [(("service-defaults", "Web"), "removed")]
        assert result.chains == ("Web",)
        assert entries.records() == []
        assert (await published(store)).records() == []

    async def test_two_cases_of_one_name_in_a_write_are_refused(self, entries: EntryTable) -> None:
        with pytest.raises(ValidationError, match="each entry once"):
            await entries.apply([put(WEB_HTTP), put({**WEB_HTTP, "Name": "web"})])
        with pytest.raises(ValidationError, match="a second service-resolver"):
            read_entries("[{Kind: service-resolver, Name: web}, {Kind: service-resolver, Name: Web}]", "yaml")

    async def test_a_waiting_reader_in_another_case_is_woken(self, entries: EntryTable) -> None:
        await entries.apply([put(WEB_HTTP)])
        waits: list[tuple[str, str, Callable[[], int]]] = [
            ("service-defaults", "WEB", lambda: entries.entry_revision("service-defaults", "WEB")),
            ("service-resolver", "web", lambda: entries.chain_revision("wEB")),
        ]
        for kind, name, current in waits:
            before = current()
            waiting = asyncio.create_task(entries.wait(before, current, 20))
            await asyncio.sleep(0)
            await entries.apply([put({"Kind": kind, "Name": name, "Meta": {"at": str(before)}})])
            await asyncio.wait_for(waiting, 15)
            assert current() == entries.revision > before

    async def test_the_revision_of_a_chain_never_goes_back(self, entries: EntryTable) -> None:
        await entries.apply([put(resolver("Web", ConnectTimeout="9s"))])
        seen = {name: entries.chain_revision(name) for name in ("Web", "web", "WEB")}
        for value in ({**WEB_HTTP, "Name": "WEB", "Protocol": "tcp"}, resolver("WEB", ConnectTimeout="9s"), WEB_HTTP):
            await entries.apply([put(value)])
            now = {name: entries.chain_revision(name) for name in seen}
            assert all(now[name] >= seen[name] for name in seen)
            assert entries.chain_revision("web") == entries.revision
            seen = now


class TestStoredTwice:
    @pytest.fixture
    async def twice(self, store: Store) -> EntryTable:
        await store_three_cases(store)
        return await published(store)

    async def test_the_one_modified_last_counts_and_the_others_are_logged(self, store: Store) -> None:
        with capture_logs() as logs:
            await store_three_cases(store)
            made = await published(store)
        record = made.record("service-resolver", "WEB")
        assert record is not None
        assert record.entry.name == "web"
        assert {target.connect_timeout_ns for target in made.chain("Web").targets.values()} == {2 * 10**9}
        told = [(one["name"], one["counts"]) for one in logs if one["event"] == "config_entry.replaced"]
        assert told == [("Web", "web"), ("wEB", "web")]
        assert sorted(await stored_names(store)) == [("service-resolver", name) for name in ("Web", "wEB", "web")]

    async def test_a_write_of_the_entry_deletes_the_others(self, twice: EntryTable, store: Store) -> None:
        await twice.apply([put(resolver("more"))])
        assert len(await stored_names(store)) == 4
        await twice.apply([put(resolver("web", ConnectTimeout="2s"))])  # the content that counts already
        assert await stored_names(store) == [("service-resolver", "web"), ("service-resolver", "more")]

    async def test_a_deletion_deletes_all_spellings(self, twice: EntryTable, store: Store) -> None:
        await twice.apply([DeleteEntry("service-resolver", "WEB")])
        assert (await store.manifest(LINE)).entries == ()
        assert (await published(store)).records() == []

    async def test_earlier_revisions_have_the_one_that_counted(self, twice: EntryTable) -> None:
        first = twice.revision
        await twice.apply([DeleteEntry("service-resolver", "WEB")])
        content = await twice.history.content(first)
        assert [one.entry.name for one in content.values()] == ["web"]
        await twice.roll_back(first)
        assert [one.entry.name for one in twice.records()] == ["web"]


class TestChains:
    def test_a_route_without_a_destination_splits_whatever_the_case_of_the_router(self) -> None:
        text = """
        - {Kind: service-defaults, Name: web, Protocol: http}
        - {Kind: service-router, Name: Web, Routes: [{Match: {HTTP: {PathPrefix: /a}}}]}
        - {Kind: service-splitter, Name: WEB, Splits: [{Weight: 90}, {Weight: 10, Service: web-next}]}
        - {Kind: service-defaults, Name: Web-Next, Protocol: http}
        """
        chain = compile_chain(request_of(text))
        router = chain.nodes[chain.start_node]
        assert isinstance(router, RouterNode)
        assert [route.next_node for route in router.routes] == [
            "splitter:web.default.default",
            "splitter:Web.default.default",
        ]
        assert all(isinstance(chain.nodes[route.next_node], SplitterNode) for route in router.routes)

    @pytest.mark.parametrize(
        "text",
        [
            "[{Kind: service-resolver, Name: web, Redirect: {Service: Web}}]",
            "[{Kind: service-resolver, Name: Web, Failover: {'*': {Service: web}}}]",
            "[{Kind: service-defaults, Name: web, Protocol: http},"
            " {Kind: service-splitter, Name: Web, Splits: [{Weight: 50, Service: web}, {Weight: 50, Service: WEB}]}]",
        ],
    )
    def test_a_chain_compiles_under_all_cases_or_under_none(self, text: str) -> None:
        index = ChainIndex(CONTEXT, entries_of(text))
        is_broken = bool(index.broken())
        for name in ("web", "Web", "WEB", "wEB"):
            if is_broken:
                with pytest.raises(ChainError):
                    index.chain(name)
            else:
                assert index.chain(name).service == name

    def test_dependents_of_an_entry_are_found_in_any_case(self) -> None:
        index = ChainIndex(CONTEXT, entries_of("[{Kind: service-resolver, Name: Api, Redirect: {Service: DB}}]"))
        assert index.depending_on([entry_key("service-resolver", "db")]) == {"api"}
        proposal = index.propose({entry_key("service-defaults", "Db"): entry({**WEB_HTTP, "Name": "Db"})})
        assert proposal.changed_services() == ("Api", "Db")
