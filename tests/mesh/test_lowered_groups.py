"""Upstreams of groups: lowered with config entries in one transaction, beside what is pushed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.mesh.test_config_entries import ForgetfulStore
from tests.support.connected import Client
from tests.support.plane import Plane
from tests.support.resources import cluster_load_assignment, static_cluster
from xds.access.caller import Caller
from xds.codec.resources import decode_resource
from xds.live.owners import OwnedError
from xds.mesh.core.entries.entry import read_entry
from xds.mesh.core.lower.upstreams import read_upstreams
from xds.mesh.entry_records import DeleteEntry, EntryResult, PutEntry
from xds.mesh.lowered_groups import etag_of
from xds.model.errors import ConflictError, EmptyingError, NotFoundError, ValidationError
from xds.model.node import Node
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT, LISTENER, ROUTE
from xds.model.snapshot import Change
from xds.push.groups import GroupSettings
from xds.push.request import DEFAULT_OPTIONS, ChangeError, PushOptions, PushResult, patch, replace_all
from xds.services.core.binding import Binding
from xds.services.core.instance import Instance
from xds.services.source_runs import Sources
from xds.services.source_states import check_sources
from xds.store.base import DERIVED, UnavailableError
from xds.store.sqlite.memory import MemoryStore

Json = dict[str, Any]

GROUP = "shop"
WEB, V1, V2 = (
    "web.default.dc1.internal.consul",
    "v1.web.default.dc1.internal.consul",
    "v2.web.default.dc1.internal.consul",
)
HTTP: Json = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
SUBSETS: Json = {"v1": {"Filter": "Service.Meta.version == v1"}, "v2": {"Filter": "Service.Meta.version == v2"}}
RESOLVER: Json = {"Kind": "service-resolver", "Name": "web", "Subsets": SUBSETS}
LISTENER_NAME = "web:127.0.0.1:9001"


def cluster(name: str) -> Resource:
    return decode_resource(static_cluster(name, 1))


def assignment(name: str) -> Resource:
    return decode_resource(cluster_load_assignment(name, 80))


def splitter(v1: float, name: str = "web") -> Json:
    splits = [{"Weight": v1, "ServiceSubset": "v1"}, {"Weight": 100 - v1, "ServiceSubset": "v2"}]
    return {"Kind": "service-splitter", "Name": name, "Splits": splits}


async def put_entries(plane: Plane, *entries: Json, options: PushOptions = DEFAULT_OPTIONS) -> EntryResult:
    writes = [PutEntry(entry) for each in entries for entry in read_entry(each).entries]
    return await plane.mesh.entries.apply(writes, options)


async def put_upstreams(
    plane: Plane, *services: str, group: str = GROUP, options: PushOptions = DEFAULT_OPTIONS, **own: Any
) -> PushResult:
    upstreams = [{"service": each, "bind_port": 9001 + index} for index, each in enumerate(services)]
    document = read_upstreams({"upstreams": upstreams, **own})
    return await plane.mesh.write_upstreams(group, document, options)


def served(plane: Plane, type_url: str, group: str = GROUP) -> Mapping[str, Resource]:
    snapshot = plane.cache.get(group)
    assert snapshot is not None
    return snapshot.get(type_url).resources


def bodies(plane: Plane, group: str = GROUP) -> dict[tuple[str, str], bytes]:
    content = plane.publisher.groups.content(group)
    return {(each.type_url, each.name): each.body for each in content.resources()}


def version(plane: Plane, type_url: str, group: str = GROUP) -> str:
    return plane.publisher.groups.content(group).snapshot.get(type_url).version_info


@pytest.fixture
async def shop(plane: Plane) -> Plane:
    """A group with a pushed cluster and one upstream, whose requests are split 90 to 10."""
    await plane.publisher.push(GROUP, [cluster("pushed")])
    await put_entries(plane, HTTP, RESOLVER, splitter(90))
    await put_upstreams(plane, "web")
    plane.woken.clear()
    return plane


class TestDocuments:
    async def test_upstreams_add_resources_beside_pushed_ones(self, shop: Plane) -> None:
        assert set(served(shop, CLUSTER)) == {"pushed", V1, V2}
        assert set(served(shop, LISTENER)) == {LISTENER_NAME}
        assert set(served(shop, ROUTE)) == {"web"}
        assert version(shop, ROUTE).startswith("e1+")
        lines = await shop.publisher.history.lines(GROUP)
        assert [line.kind for line in lines] == [DERIVED, "push"]

    async def test_a_document_creates_a_group_with_a_selector(self, plane: Plane) -> None:
        settings = GroupSettings(selector="node.metadata.app == shop")
        document = read_upstreams({"upstreams": [{"service": "web", "bind_port": 9001}]})
        await plane.mesh.write_upstreams(GROUP, document, PushOptions(), settings)
        match = plane.cache.match(Node(id="n", metadata={"app": "shop"}))
        assert match is not None
        assert match.group == GROUP
        assert plane.woken == [GROUP, GROUP]
        again = await plane.reloaded()
        assert again.publisher.settings.get(GROUP) == settings

    async def test_the_same_document_makes_no_revision(self, shop: Plane) -> None:
        result = await put_upstreams(shop, "web")
        assert (result.changed, result.revision) == (False, 2)
        assert shop.woken == []

    async def test_etags_guard_a_document(self, shop: Plane) -> None:
        etag = shop.mesh.lowered.etag(GROUP)
        assert etag == etag_of(shop.mesh.lowered.get(GROUP).document)
        await put_upstreams(shop, "web", "api", options=PushOptions(etag=etag))
        with pytest.raises(ConflictError, match="upstreams"):
            await put_upstreams(shop, "web", options=PushOptions(etag=etag))
        with pytest.raises(ConflictError):
            await put_upstreams(shop, "web", options=PushOptions(etag="0"))

    async def test_a_dry_run_shows_the_resources_and_changes_nothing(self, plane: Plane) -> None:
        result = await put_upstreams(plane, "web", options=PushOptions(dry_run=True))
        assert result.changes["clusters"] == Change(added=(WEB,))
        assert plane.publisher.groups.names() == []
        assert len(plane.mesh.lowered) == 0
        assert await plane.store.docs("upstreams") == []

    async def test_a_deleted_document_leaves_pushed_resources(self, shop: Plane) -> None:
        await shop.mesh.write_upstreams(GROUP, None, PushOptions())
        assert set(bodies(shop)) == {(CLUSTER, "pushed")}
        assert served(shop, ENDPOINT) == {}
        assert shop.catalog.wanted == frozenset()
        with pytest.raises(NotFoundError):
            await shop.mesh.write_upstreams(GROUP, None, PushOptions())

    async def test_a_group_that_would_be_empty_for_its_nodes_keeps_its_upstreams(self, plane: Plane) -> None:
        await put_upstreams(plane, "web")
        await plane.publisher.configure(GROUP, GroupSettings(selector="node.id == n"))
        Client(plane.fleet, Node("n"), GROUP)
        with pytest.raises(EmptyingError):
            await plane.mesh.write_upstreams(GROUP, None, PushOptions())
        await plane.mesh.write_upstreams(GROUP, None, PushOptions(allow_empty=True))

    async def test_a_deleted_group_loses_its_document(self, shop: Plane) -> None:
        await shop.publisher.delete_group(GROUP)
        assert await shop.store.docs("upstreams") == []
        assert len(shop.mesh.lowered) == 0
        await put_entries(shop, splitter(50))
        assert shop.publisher.groups.find(GROUP) is None
        # Its restored revision has what was pushed, and no upstreams.
        await shop.publisher.rollback(GROUP, 2)
        assert set(bodies(shop)) == {(CLUSTER, "pushed")}

    async def test_the_number_of_groups_is_bounded(self, shop: Plane) -> None:
        shop.mesh.lowered.limit = 1
        with pytest.raises(ValidationError, match="at most 1 groups"):
            await put_upstreams(shop, "web", group="other")
        await put_upstreams(shop, "web", "api")

    async def test_a_write_is_audited(self, shop: Plane) -> None:
        options = PushOptions(meta=Caller("ann").meta("more"), peer="10.0.0.1:1")
        await put_upstreams(shop, "web", "api", options=options)
        (note,) = [each.note for each in (await shop.store.audit()).entries if each.note.actor == "ann"]
        assert (note.action, note.group, note.message) == ("upstreams.put", GROUP, "more")
        assert '"api"' in note.new


class TestEntries:
    async def test_a_write_of_entries_changes_exactly_the_groups_that_use_their_chains(self, shop: Plane) -> None:
        await put_upstreams(shop, "api", group="other")
        shop.woken.clear()
        before = bodies(shop, "other")
        result = await put_entries(shop, splitter(50))
        assert [each.group for each in result.groups] == [GROUP]
        assert result.groups[0].changes == {"routes": Change(changed=("web",))}
        assert shop.woken == [GROUP]
        assert bodies(shop, "other") == before
        assert version(shop, ROUTE).startswith("e2+")
        assert version(shop, CLUSTER).startswith("e1+")

    async def test_undo_brings_the_very_same_bytes_back(self, shop: Plane) -> None:
        before, digest = bodies(shop), shop.publisher.groups.content(GROUP).etag.partition("-")[2]
        await put_entries(shop, splitter(50), {**RESOLVER, "ConnectTimeout": "1s"})
        assert bodies(shop) != before
        await shop.mesh.entries.roll_back(1)
        assert bodies(shop) == before
        assert shop.publisher.groups.content(GROUP).etag.partition("-")[2] == digest
        assert version(shop, ROUTE).startswith("e3+")
        await shop.mesh.entries.roll_back(0)
        assert set(served(shop, CLUSTER)) == {"pushed", WEB}

    async def test_a_dry_run_shows_the_changes_of_each_group(self, shop: Plane) -> None:
        before = bodies(shop)
        result = await put_entries(shop, splitter(50), options=PushOptions(dry_run=True))
        assert result.dry_run
        assert [(each.group, each.changes) for each in result.groups] == [(GROUP, {"routes": Change(changed=("web",))})]
        assert (bodies(shop), shop.mesh.entries.revision) == (before, 1)

    async def test_a_chain_that_breaks_only_for_an_upstream_refuses_the_write(self, shop: Plane) -> None:
        """With the protocol of the upstream the router is not allowed; without it, it is."""
        await shop.mesh.write_upstreams(
            "tcp", read_upstreams({"upstreams": [{"service": "api", "bind_port": 1, "protocol": "tcp"}]}), PushOptions()
        )
        before, revision = bodies(shop), shop.mesh.entries.revision
        router = {"Kind": "service-resolver", "Name": "api", "Redirect": {"Peer": "cloud", "Service": "api"}}
        with pytest.raises(ValidationError) as refused:
            await put_entries(shop, splitter(10), router)
        (finding,) = refused.value.violations
        assert finding.resource == "service-resolver/api"
        assert "upstream 'api'" in finding.hint
        assert "group 'tcp'" in finding.hint
        assert (bodies(shop), shop.mesh.entries.revision) == (before, revision)

    async def test_the_findings_of_all_upstreams_are_told_at_once(self, plane: Plane) -> None:
        names = ("web", "api")
        for name in names:
            redirect = {"Kind": "service-resolver", "Name": name, "Redirect": {"Service": name, "Peer": "east"}}
            await put_entries(plane, redirect)
        upstreams = [{"service": name, "bind_port": port} for port, name in enumerate(names, start=1)]
        with pytest.raises(ValidationError) as refused:
            await plane.mesh.write_upstreams(GROUP, read_upstreams({"upstreams": upstreams}), PushOptions())
        found = [(each.code, each.resource) for each in refused.value.violations]
        assert found == [("unreachable", f"service-resolver/{name}") for name in names]

    async def test_an_entry_whose_resources_fail_our_checks_is_refused_with_its_place(self, shop: Plane) -> None:
        before = bodies(shop)
        match = {"HTTP": {"PathRegex": "(unclosed"}}
        router = {"Kind": "service-router", "Name": "web", "Routes": [{"Match": match}]}
        with pytest.raises(ValidationError) as refused:
            await put_entries(shop, router)
        finding = refused.value.violations[0]
        assert (finding.resource, finding.pointer) == ("service-router/web", "/Routes/0/Match/HTTP/PathRegex")
        assert "group 'shop'" in finding.hint
        assert bodies(shop) == before

    async def test_a_change_that_comes_out_the_same_makes_no_revision(self, shop: Plane) -> None:
        result = await put_entries(shop, {"Kind": "service-defaults", "Name": "web", "Protocol": "http"})
        assert [each for each in result.groups if each.changed] == []
        assert shop.publisher.groups.content(GROUP).revision == 2
        origins = shop.mesh.lowered.content(GROUP).origins[ROUTE, "web"]
        assert ("service-defaults", "web") in origins.entries

    async def test_untouched_upstreams_are_shared_by_identity(self, shop: Plane) -> None:
        await put_upstreams(shop, "web", "api")
        before = shop.mesh.lowered.content(GROUP)
        await put_entries(shop, splitter(50))
        after = shop.mesh.lowered.content(GROUP)
        assert after.parts["api"] is before.parts["api"]
        assert after.parts["web"] is not before.parts["web"]
        assert after.records[CLUSTER, V1] is before.records[CLUSTER, V1]

    async def test_the_defaults_of_the_proxies_own_service_configure_its_upstreams(self, shop: Plane) -> None:
        await put_upstreams(shop, "web", service="front")
        config = {"Defaults": {"Limits": {"MaxConnections": 7}}}
        defaults = {"Kind": "service-defaults", "Name": "front", "Protocol": "http", "UpstreamConfig": config}
        result = await put_entries(shop, defaults)
        assert result.groups[0].changes == {"clusters": Change(changed=(V1, V2))}

    async def test_entries_and_groups_change_in_one_transaction(self, shop: Plane) -> None:
        publisher, options = shop.publisher, PushOptions()
        part = shop.mesh.entry_part([PutEntry(read_entry(splitter(50)).entries[0])], options)
        requests = [await replace_all(GROUP, [cluster("new")]), await replace_all("other", [cluster("x")])]
        results = await publisher.transaction(requests, options, part)
        assert [(each.group, each.revision) for each in results] == [(GROUP, 3), ("other", 1)]
        assert results[0].changes["clusters"] == Change(added=("new",), removed=("pushed",))
        assert results[0].changes["routes"] == Change(changed=("web",))
        assert part.result is not None
        assert part.result.groups == ()
        assert shop.woken == [GROUP, "other"]
        assert version(shop, ROUTE).startswith("e2+")

    async def test_a_refused_group_of_a_transaction_changes_no_entries(self, shop: Plane) -> None:
        part = shop.mesh.entry_part([PutEntry(read_entry(splitter(50)).entries[0])], PushOptions())
        with pytest.raises(ChangeError):
            await shop.publisher.transaction([await patch("none", [], [(CLUSTER, "x")])], PushOptions(), part)
        assert shop.mesh.entries.revision == 1

    async def test_a_repeated_write_is_replayed(self, shop: Plane) -> None:
        first = await put_entries(shop, splitter(50), options=PushOptions(push_id="p"))
        again = await put_entries(shop, splitter(50), options=PushOptions(push_id="p"))
        assert (again.revision, again.replayed) == (first.revision, True)
        assert shop.publisher.groups.content(GROUP).revision == 3

    async def test_a_deleted_entry_lowers_to_the_rest(self, shop: Plane) -> None:
        await shop.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        assert set(served(shop, CLUSTER)) == {"pushed", WEB}


class TestPushes:
    async def test_a_push_replaces_only_pushed_resources(self, shop: Plane) -> None:
        result = await shop.publisher.push(GROUP, [cluster("new")], label="mine")
        assert result.changes == {"clusters": Change(added=("new",), removed=("pushed",))}
        assert set(served(shop, CLUSTER)) == {"new", V1, V2}
        assert version(shop, CLUSTER) == "mine"
        assert version(shop, ROUTE).startswith("e1+")

    async def test_a_repeated_push_is_replayed_though_lowered_resources_changed(self, shop: Plane) -> None:
        await shop.publisher.push(GROUP, [cluster("new")], options=PushOptions(push_id="p"))
        await put_entries(shop, splitter(50))
        again = await shop.publisher.push(GROUP, [cluster("new")], options=PushOptions(push_id="p"))
        assert again.revision == 3
        assert shop.publisher.groups.content(GROUP).revision == 4

    async def test_an_empty_push_leaves_lowered_resources(self, shop: Plane) -> None:
        await shop.publisher.push(GROUP, [])
        assert set(served(shop, CLUSTER)) == {V1, V2}

    async def test_rollback_and_undo_restore_pushed_resources_and_lower_from_todays_entries(self, shop: Plane) -> None:
        publisher = shop.publisher
        await publisher.push(GROUP, [cluster("new")])
        await put_entries(shop, splitter(50))
        lowered = {key: body for key, body in bodies(shop).items() if key[1] != "new"}
        plan = await publisher.undo.plan(GROUP)
        assert (plan.takes_back.revision, plan.to is not None and plan.to.revision) == (3, 2)
        await publisher.rollback(GROUP, 1)
        assert bodies(shop) == {**lowered, (CLUSTER, "pushed"): cluster("pushed").body}
        kinds = {line.revision: (line.kind, line.undone_by) for line in await publisher.history.lines(GROUP)}
        assert kinds == {5: ("rollback", 0), 4: (DERIVED, 0), 3: ("push", 5), 2: (DERIVED, 0), 1: ("push", 0)}
        await publisher.rollback(GROUP, 4, keeps_endpoints=True)
        assert bodies(shop) == {**lowered, (CLUSTER, "new"): cluster("new").body}

    async def test_undo_goes_back_to_before_the_first_push(self, plane: Plane) -> None:
        await put_upstreams(plane, "web")
        await plane.publisher.push(GROUP, [cluster("new")])
        plan = await plane.publisher.undo.plan(GROUP)
        assert (plan.takes_back.revision, plan.to is not None and plan.to.revision) == (2, 1)
        await plane.publisher.rollback(GROUP, 1)
        assert set(served(plane, CLUSTER)) == {WEB}
        with pytest.raises(NotFoundError):
            await plane.publisher.undo.plan(GROUP)

    async def test_undo_takes_back_no_change_of_entries(self, shop: Plane) -> None:
        await shop.publisher.push(GROUP, [cluster("new")])
        await put_entries(shop, splitter(50))
        await put_entries(shop, splitter(40))
        plan = await shop.publisher.undo.plan(GROUP)
        assert plan.takes_back.revision == 3

    async def test_writes_of_entries_and_pushes_at_once_lose_nothing(self, shop: Plane) -> None:
        await put_upstreams(shop, "web", group="other")

        async def push(number: int) -> None:
            await shop.publisher.push(GROUP, [cluster(f"p{number}")])
            await shop.publisher.put("other", cluster(f"p{number}"))

        async def write(number: int) -> None:
            await put_entries(shop, splitter(number + 1))

        await asyncio.gather(*(each(number) for number in range(12) for each in (push, write)))
        assert set(served(shop, CLUSTER)) > {V1, V2}
        assert len(served(shop, CLUSTER)) == 3
        assert len(served(shop, CLUSTER, "other")) == 14
        again = await shop.reloaded()
        for group in (GROUP, "other"):
            assert bodies(again, group) == bodies(shop, group)
            made = again.mesh.lowered.content(group)
            held = again.publisher.groups.content(group).blob_ids
            assert {key: one.blob_id for key, one in made.records.items()}.items() <= held.items()


class TestOwners:
    async def test_a_push_of_a_lowered_name_names_both_owners(self, shop: Plane) -> None:
        publisher, name = shop.publisher, V1
        for pushing in (publisher.push(GROUP, [cluster("pushed"), cluster(name)]), publisher.put(GROUP, cluster(name))):
            with pytest.raises(ValidationError) as refused:
                await pushing
            (finding,) = refused.value.violations
            assert finding.resource == f"clusters/{name}"
            assert "upstream 'web' by" in finding.detail
            assert "service-resolver/web" in finding.detail
        with pytest.raises(ValidationError, match="lowered from"):
            await publisher.delete(GROUP, (CLUSTER, name))
        with pytest.raises(ValidationError, match="lowered from"):
            await publisher.put(GROUP, assignment(name))
        assert shop.publisher.groups.content(GROUP).revision == 2

    async def test_a_document_with_a_pushed_name_is_refused(self, plane: Plane) -> None:
        await plane.publisher.push(GROUP, [cluster(WEB)])
        with pytest.raises(ValidationError) as refused:
            await put_upstreams(plane, "web")
        (finding,) = refused.value.violations
        assert finding.resource == f"clusters/{WEB}"
        assert "which is pushed to this group" in finding.detail
        assert len(plane.mesh.lowered) == 0

    async def test_an_entry_with_a_pushed_name_is_refused(self, shop: Plane) -> None:
        await shop.publisher.push(GROUP, [cluster(WEB)])
        with pytest.raises(ValidationError, match="which is pushed to this group"):
            await shop.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        assert shop.mesh.entries.revision == 1
        assert set(served(shop, CLUSTER)) == {WEB, V1, V2}

    async def test_a_push_that_takes_the_name_out_lets_the_entry_have_it(self, shop: Plane) -> None:
        await shop.publisher.push(GROUP, [cluster(WEB)])
        part = shop.mesh.entry_part([DeleteEntry("service-splitter", "web")], PushOptions())
        await shop.publisher.transaction([await replace_all(GROUP, [])], PushOptions(), part)
        assert set(served(shop, CLUSTER)) == {WEB}
        assert shop.mesh.lowered.content(GROUP).owns((CLUSTER, WEB))

    async def test_a_rollback_to_a_pushed_name_that_is_lowered_now_is_refused(self, shop: Plane) -> None:
        await shop.publisher.push(GROUP, [cluster(WEB)])
        await shop.publisher.push(GROUP, [])
        await shop.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        with pytest.raises(ValidationError, match=r"lowered from upstream 'web'"):
            await shop.publisher.rollback(GROUP, 3)

    async def test_an_assignment_has_one_owner(self, shop: Plane) -> None:
        with pytest.raises(OwnedError, match=r"lowered from upstream 'web'.*bound to service 'web'"):
            await shop.bindings.put((GROUP, V1), Binding("web"))
        await shop.bindings.put((GROUP, WEB), Binding("web"))
        with pytest.raises(OwnedError, match=r"bound to service 'web'.*lowered from upstream 'web'"):
            await shop.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        assert shop.mesh.entries.revision == 1
        await shop.bindings.delete((GROUP, WEB))
        await shop.mesh.entries.apply([DeleteEntry("service-splitter", "web")])


class TestEndpoints:
    async def test_an_instance_changes_one_assignment_and_makes_no_revision(self, shop: Plane) -> None:
        sink = shop.catalog.sink("s", "file")
        sink.put("web", [Instance("a", "10.0.0.1", 80, meta={"version": "v1"})])
        await shop.catalog.tick()
        before = served(shop, ENDPOINT)
        assert set(before) == {V1, V2}
        assert shop.woken == [GROUP]
        both = [Instance(each, f"10.0.0.{at}", 80, meta={"version": each}) for at, each in enumerate(("v1", "v2"), 1)]
        sink.put("web", both)
        await shop.catalog.tick()
        after = served(shop, ENDPOINT)
        assert after[V1] is before[V1]
        assert after[V2].version != before[V2].version
        assert shop.publisher.groups.content(GROUP).revision == 2
        assert shop.mesh.lowered.content(GROUP).owns((ENDPOINT, V2))

    async def test_a_service_without_instances_is_empty_a_while_after_the_answers_of_all_sources(
        self, shop: Plane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("xds.services.followed_assignments.EMPTY_S", 0.01)
        again = await shop.reloaded()
        catalog = again.catalog
        files, consul = catalog.sink("files", "files"), catalog.sink("consul", "consul")
        await asyncio.sleep(0.05)
        assert served(again, ENDPOINT) == {}, "the catalog has not started"
        catalog.start()
        assert "web" in consul.wanted()
        consul.alive()
        files.put("other", [Instance("a", "10.0.0.1", 80)])
        await asyncio.sleep(0.1)
        assert served(again, ENDPOINT) == {}, "both sources answer, but have not said whether they have the service"
        consul.put("web", [])
        await asyncio.sleep(0.1)
        assert served(again, ENDPOINT) == {}, "one has no instance, the other has not said so"
        files.alive()
        await _until_served(again, {V1, V2})
        await catalog.close()

    async def test_a_source_that_gives_no_answer_is_waited_for_no_longer_than_content_waits(
        self, shop: Plane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("xds.services.followed_assignments.EMPTY_S", 0.0)
        again = await shop.reloaded()
        endpoints = again.mesh.lowered.endpoints
        assert endpoints is not None
        endpoints.followed._unread_s = 0.1
        catalog = again.catalog
        consul = catalog.sink("consul", "consul")
        catalog.start()
        consul.failed("down")
        assert catalog.unread(catalog.wanted) == ["web"]
        is_well, detail = check_sources(catalog, Sources())
        assert not is_well
        assert detail.endswith(": down; not read yet: service web")
        assert served(again, ENDPOINT) == {}
        await _until_served(again, {V1, V2})
        consul.put("web", [Instance("a", "10.0.0.1", 80, meta={"version": "v1"})])
        await catalog.tick()
        assert catalog.unread(catalog.wanted) == []
        assert b"10.0.0.1" in served(again, ENDPOINT)[V1].body
        await catalog.close()

    async def test_a_restart_serves_the_last_good_set(self, shop: Plane) -> None:
        shop.catalog.sink("s", "file").put("web", [Instance("a", "10.0.0.1", 80, meta={"version": "v1"})])
        await shop.catalog.tick()
        await shop.catalog.save()
        before = {name: each.body for name, each in served(shop, ENDPOINT).items()}
        again = await shop.reloaded()
        await again.catalog.load()
        assert {name: each.body for name, each in served(again, ENDPOINT).items()} == before

    async def test_a_removed_target_ends_its_assignment(self, shop: Plane) -> None:
        shop.catalog.sink("s", "file").put("web", [Instance("a", "10.0.0.1", 80, meta={"version": "v1"})])
        await shop.catalog.tick()
        await shop.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        assert set(served(shop, ENDPOINT)) == {WEB}
        assert set(shop.publisher.live.owners(GROUP)) == {WEB}


async def _until_served(plane: Plane, assignments: set[str]) -> None:
    async with asyncio.timeout(10):
        while set(served(plane, ENDPOINT)) != assignments:
            await asyncio.sleep(0.01)


class TestRestart:
    async def test_everything_is_as_before(self, shop: Plane) -> None:
        await put_entries(shop, splitter(50))
        again = await shop.reloaded()
        content, other = shop.publisher.groups.content(GROUP), again.publisher.groups.content(GROUP)
        assert (content.etag, content.versions()) == (other.etag, other.versions())
        await put_entries(again, splitter(20))
        assert version(again, ROUTE).startswith("e3+")
        await again.publisher.push(GROUP, [])
        assert set(served(again, CLUSTER)) == {V1, V2}

    async def test_groups_share_equal_lowered_resources(self, shop: Plane) -> None:
        await put_upstreams(shop, "web", group="other")
        again = await shop.reloaded()
        for name in (V1, V2):
            assert served(again, CLUSTER)[name] is served(again, CLUSTER, "other")[name]
        assert bodies(again, "other") == bodies(shop, "other")

    async def test_resources_that_another_release_lowered_are_lowered_again(self, shop: Plane) -> None:
        lowered = shop.mesh.lowered
        await shop.store.put_doc("upstreams", GROUP, b'{"upstreams": [{"service": "api", "bind_port": 7}]}')
        again = await shop.reloaded()
        assert set(served(again, CLUSTER)) == {"pushed", "api.default.dc1.internal.consul"}
        line = (await again.publisher.history.lines(GROUP))[0]
        assert (line.kind, line.revision) == (DERIVED, 3)
        assert len(lowered) == 1

    async def test_an_unreadable_document_is_kept_and_served_content_stays(self, shop: Plane) -> None:
        await shop.store.put_doc("upstreams", GROUP, b'{"upstreams": 7}')
        again = await shop.reloaded()
        assert set(served(again, CLUSTER)) == {"pushed", V1, V2}
        assert await shop.store.docs("upstreams") != []

    async def test_a_restored_backup_brings_the_upstreams_back(self, shop: Plane) -> None:
        records = [record async for batch in shop.store.dump() for record in batch]
        other = MemoryStore()
        await other.open()
        plane = Plane(other)
        await plane.publisher.load()
        await put_upstreams(plane, "gone", group="old")
        await other.restore(lambda: iter(records), replace=True)
        await plane.publisher.reload()
        assert list(plane.mesh.lowered) == [GROUP]
        assert bodies(plane) == bodies(shop)
        assert plane.catalog.wanted == frozenset({"web"})
        await put_entries(plane, splitter(1))
        assert version(plane, ROUTE).startswith("e2+")
        await other.close()


class TestLostAnswers:
    @pytest.fixture
    async def forgetful(self) -> AsyncIterator[Plane]:
        """A group with an upstream, in a store whose answers can be lost."""
        store = ForgetfulStore()
        await store.open()
        plane = Plane(store)
        await put_entries(plane, HTTP, RESOLVER, splitter(90))
        await put_upstreams(plane, "web")
        yield plane
        await plane.publisher.close()
        await store.close()

    async def lose(self, plane: Plane) -> None:
        """Delete the splitter; the answer of the store is lost."""
        store = plane.store
        assert isinstance(store, ForgetfulStore)
        store.fails = True
        with pytest.raises(UnavailableError):
            await plane.mesh.entries.apply([DeleteEntry("service-splitter", "web")])
        assert set(served(plane, CLUSTER)) == {V1, V2}
        store.fails = False

    async def test_the_next_write_begins_with_committed_content(self, forgetful: Plane) -> None:
        await self.lose(forgetful)
        await put_entries(forgetful, splitter(50))
        assert set(served(forgetful, CLUSTER)) == {V1, V2}
        again = await forgetful.reloaded()
        assert bodies(again) == bodies(forgetful)

    async def test_committed_content_is_served_without_another_write(
        self, forgetful: Plane, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("xds.push.backlog.RETRY_DERIVED_S", 0.01)
        sink = forgetful.catalog.sink("s", "file")
        sink.put("web", [Instance("a", "10.0.0.1", 80)])
        await forgetful.catalog.tick()
        await self.lose(forgetful)
        async with asyncio.timeout(10):
            while set(served(forgetful, CLUSTER)) != {WEB} or set(served(forgetful, ENDPOINT)) != {WEB}:
                await asyncio.sleep(0.01)
        await put_entries(forgetful, splitter(50))
        assert set(served(forgetful, CLUSTER)) == {V1, V2}
