"""Config entries and discovery chains over HTTP: writes, findings, preconditions, history, undo, transactions."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.admin.conftest import Api
from tests.support.resources import static_cluster
from xds.access.tokens import Grant, Tokens
from xds.admin.dependencies import ApiOptions
from xds.fleet.event_log import EventFilter, EventKind
from xds.mesh.entry_records import LINE
from xds.store.base import Delta, Entry, blob_id

PATH = "/api/v1/config-entries"
CHAINS = "/api/v1/discovery-chains"
HTTP = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
RESOLVER = {"Kind": "service-resolver", "Name": "web", "Subsets": {"v1": {}, "v2": {}}}
SPLITTER = {
    "Kind": "service-splitter",
    "Name": "web",
    "Splits": [{"Weight": 90, "ServiceSubset": "v1"}, {"Weight": 10, "ServiceSubset": "v2"}],
}
REFUSED = {**SPLITTER, "Splits": [{"Weight": 100, "ServiceSubset": "v9"}]}
YAML = {"content-type": "application/yaml"}

Json = dict[str, Any]


async def write(api: Api, *entries: Json, **arguments: Any) -> httpx.Response:
    return await api.client.post(PATH, json=entries, **arguments)


async def put(api: Api, entry: Json, **arguments: Any) -> httpx.Response:
    return await api.client.put(f"{PATH}/{entry['Kind']}/{entry['Name']}", json=entry, **arguments)


async def state(api: Api) -> object:
    """All that readers see."""
    chain = await api.client.get(f"{CHAINS}/web")
    return (await api.client.get(PATH)).json(), chain.status_code, chain.json()


@pytest.fixture
async def written(api: Api) -> Api:
    answer = await write(api, HTTP, RESOLVER, SPLITTER, params={"author": "ann", "message": "begin"})
    assert answer.status_code == 200, answer.text
    return api


class TestWritingAndReading:
    async def test_several_at_once(self, written: Api) -> None:
        answer = (await written.client.get(PATH)).json()
        assert [(each["kind"], each["name"]) for each in answer["items"]] == [
            ("proxy-defaults", "global"),
            ("service-resolver", "web"),
            ("service-splitter", "web"),
        ]
        assert (answer["revision"], answer["etag"]) == (1, "r1")
        only = (await written.client.get(PATH, params={"kind": "service-resolver"})).json()["items"]
        assert [each["entry"] for each in only] == [RESOLVER]

    async def test_pages(self, written: Api) -> None:
        first = (await written.client.get(PATH, params={"limit": 2})).json()
        rest = (await written.client.get(PATH, params={"page_token": first["next_page_token"]})).json()
        assert [each["kind"] for each in first["items"] + rest["items"]] == [
            "proxy-defaults",
            "service-resolver",
            "service-splitter",
        ]

    async def test_an_entry_is_shown_with_its_author(self, written: Api) -> None:
        await put(written, {**RESOLVER, "ConnectTimeout": "9s"}, params={"author": "bob", "message": "slower"})
        answer = await written.client.get(f"{PATH}/service-resolver/web")
        item = answer.json()
        assert item["entry"] == {**RESOLVER, "ConnectTimeout": "9s"}
        assert (item["created_revision"], item["modified_revision"]) == (1, 2)
        assert (item["author"], item["message"]) == ("bob", "slower")
        assert answer.headers["etag"] == f'"{item["etag"]}"'
        held = await written.client.get(f"{PATH}/service-resolver/web", headers={"if-none-match": item["etag"]})
        assert held.status_code == 304

    async def test_the_path_may_say_kind_and_name(self, api: Api) -> None:
        answer = await api.client.put(f"{PATH}/service-resolver/web", json={"ConnectTimeout": "3s"})
        assert answer.json()["changes"] == [{"kind": "service-resolver", "name": "web", "change": "added"}]
        assert answer.headers["etag"].startswith('"r1-')
        other = await api.client.put(f"{PATH}/service-resolver/web", json={"Name": "api"})
        assert [each["code"] for each in other.json()["errors"]] == ["name_mismatch"]

    async def test_yaml(self, api: Api) -> None:
        text = yaml.safe_dump_all([HTTP, RESOLVER])
        assert (await api.client.post(PATH, content=text, headers=YAML)).json()["revision"] == 1
        shown = await api.client.get(f"{PATH}/service-resolver/web", headers={"accept": "application/yaml"})
        assert yaml.safe_load(shown.text)["entry"] == RESOLVER

    async def test_delete(self, written: Api) -> None:
        answer = await written.client.delete(f"{PATH}/service-splitter/web")
        assert answer.json()["changes"] == [{"kind": "service-splitter", "name": "web", "change": "removed"}]
        assert answer.json()["chains"] == ["web"]
        assert (await written.client.get(f"{PATH}/service-splitter/web")).status_code == 404
        assert (await written.client.delete(f"{PATH}/service-splitter/web")).status_code == 404

    async def test_a_write_of_equal_content_makes_no_revision(self, written: Api) -> None:
        answer = (await write(written, RESOLVER, SPLITTER)).json()
        assert (answer["changed"], answer["revision"], answer["changes"], answer["chains"]) == (False, 1, [], [])

    @pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
    async def test_kinds_that_are_not_ours_are_refused_by_name(self, api: Api, method: str) -> None:
        body: Json | None = {} if method == "PUT" else None
        answer = await api.client.request(method, f"{PATH}/service-intentions/web", json=body)
        assert answer.status_code == 422
        assert "service-intentions" in answer.json()["detail"]
        unknown = await api.client.request(method, f"{PATH}/service-resolvr/web", json=body)
        assert unknown.json()["errors"][0]["hint"] == 'did you mean "service-resolver"?'


class TestFindings:
    async def test_all_findings_come_at_once_with_their_places(self, written: Api) -> None:
        before = await state(written)
        kind = "Kind: service-resolver\n"
        text = f"{kind}Name: web\nConectTimeout: 5s\n---\n{kind}Name: b\nConnectTimeout: x"
        answer = await written.client.post(PATH, content=text, headers=YAML)
        assert answer.status_code == 422
        first, second = answer.json()["errors"]
        assert (first["source"], first["pointer"], first["hint"]) == (
            "3:1",
            "/ConectTimeout",
            'did you mean "ConnectTimeout"?',
        )
        assert (second["source"], second["pointer"], second["index"]) == ("7:1", "/ConnectTimeout", 1)
        assert await state(written) == before

    async def test_a_broken_chain_is_named_with_its_path(self, written: Api) -> None:
        before = await state(written)
        for answer in (
            await write(written, REFUSED),
            await put(written, REFUSED),
            await written.client.delete(f"{PATH}/service-resolver/web"),
        ):
            assert answer.status_code == 422
            (error,) = answer.json()["errors"]
            assert (error["code"], error["resource"]) == ("unknown_subset", "chain/web")
            assert error["hint"].startswith("path: splitter:web.default.default")
        assert await state(written) == before

    @pytest.mark.parametrize(
        ("entries", "code"),
        [
            (
                [
                    {"Kind": "service-resolver", "Name": "a", "Redirect": {"Service": "b"}},
                    {"Kind": "service-resolver", "Name": "b", "Redirect": {"Service": "a"}},
                ],
                "circular_redirect",
            ),
            ([{**SPLITTER, "Splits": [{"Weight": 60, "ServiceSubset": "v1"}]}], "bad_sum"),
            ([{**RESOLVER, "Subsets": {"v1": {"Filter": "Service.Meta. =="}, "v2": {}}}], "bad_filter"),
            ([{"Kind": "service-defaults", "Name": "web", "Protocol": "smoke"}], "bad_choice"),
            (
                [
                    {"Kind": "service-router", "Name": "web", "Routes": [{"Destination": {"Service": "db"}}]},
                    {"Kind": "service-defaults", "Name": "db", "Protocol": "grpc"},
                ],
                "protocol_mismatch",
            ),
            (
                [
                    {"Kind": "service-splitter", "Name": "a", "Splits": [{"Weight": 100, "Service": "b"}]},
                    {"Kind": "service-splitter", "Name": "b", "Splits": [{"Weight": 100, "Service": "a"}]},
                ],
                "circular_reference",
            ),
        ],
    )
    async def test_bad_entries_change_nothing(self, written: Api, entries: list[Json], code: str) -> None:
        before = await state(written)
        answer = await write(written, {"Kind": "service-resolver", "Name": "sound"}, *entries)
        assert answer.status_code == 422
        assert {each["code"] for each in answer.json()["errors"]} == {code}
        assert await state(written) == before

    @pytest.mark.parametrize(
        "body", [b"", b"7", b"[]", b"{", b"[[]]", b"null", b'{"Kind": []}', b"\xff", b"[" * 100_000, b"--- \n--- \n"]
    )
    async def test_bodies_without_an_entry_are_refused(self, written: Api, body: bytes) -> None:
        before = await state(written)
        for media in ("application/json", "application/yaml"):
            for path in ("", "/service-resolver/web"):
                method = "PUT" if path else "POST"
                answer = await written.client.request(
                    method, PATH + path, content=body, headers={"content-type": media}
                )
                assert answer.status_code in (400, 422), answer.text
                assert len(answer.content) < 100_000
        assert await state(written) == before

    async def test_two_entries_to_the_path_of_one(self, api: Api) -> None:
        answer = await api.client.put(f"{PATH}/service-resolver/web", json=[RESOLVER, RESOLVER])
        assert answer.status_code == 422
        assert "not_one_entry" in {each["code"] for each in answer.json()["errors"]}

    async def test_hcl_is_refused_by_its_media_type(self, api: Api) -> None:
        answer = await api.client.post(PATH, content=b'Kind = "x"', headers={"content-type": "application/hcl"})
        assert answer.status_code == 415

    async def test_an_entry_beyond_the_limit_is_counted(self, written: Api) -> None:
        before = await state(written)
        large = {**HTTP, "Config": {"protocol": "http", "x": "y" * 1_000_000}}
        answer = await put(written, large)
        assert [each["code"] for each in answer.json()["errors"]] == ["entry_too_large"]
        assert written.services.limit_hits == {"config_entry_bytes": 1}
        assert await state(written) == before

    async def test_bad_revisions(self, written: Api) -> None:
        assert (await written.client.get(f"{PATH}/revisions/9")).status_code == 404
        assert (await written.client.get(f"{PATH}/revisions/9/diff")).status_code == 404
        assert (await written.client.post(f"{PATH}/rollback", json={"to": 9})).status_code == 404
        for body in ({"to": -1}, {"to": "1"}, {}, {"to": 1, "x": 1}, {"to": 1 << 70}):
            assert (await written.client.post(f"{PATH}/rollback", json=body)).status_code == 400


class TestConditions:
    async def test_if_match_of_an_entry(self, written: Api) -> None:
        item = (await written.client.get(f"{PATH}/service-resolver/web")).json()
        changed = {**RESOLVER, "ConnectTimeout": "9s"}
        for stale in ("r7", "r1-00000000"):
            answer = await put(written, changed, headers={"if-match": stale})
            assert (answer.status_code, answer.json()["revision"]) == (412, 1)
        assert (await put(written, changed, headers={"if-none-match": "*"})).status_code == 412
        assert (await put(written, changed, headers={"if-match": f'"{item["etag"]}"'})).status_code == 200
        late = await written.client.delete(f"{PATH}/service-splitter/web", headers={"if-match": "r2"})
        assert late.status_code == 412
        new = {**RESOLVER, "Name": "new"}
        assert (await put(written, new, headers={"if-match": "*"})).status_code == 412
        assert (await put(written, new, headers={"if-none-match": "*"})).status_code == 200

    async def test_if_match_of_all_entries(self, written: Api) -> None:
        changed = {**RESOLVER, "ConnectTimeout": "9s"}
        assert (await write(written, changed, headers={"if-match": "r2"})).status_code == 412
        assert (await write(written, changed, headers={"if-none-match": "*"})).status_code == 412
        answer = await write(written, changed, headers={"if-match": '"r1"'})
        assert (answer.status_code, answer.headers["etag"]) == (200, '"r2"')

    async def test_a_write_needs_a_precondition_where_required(self, written: Api) -> None:
        strict = Api(written.plane, ApiOptions(require_if_match=True))
        assert (await put(strict, RESOLVER)).status_code == 428
        assert (await write(strict, RESOLVER)).status_code == 428
        assert (await strict.client.delete(f"{PATH}/service-splitter/web")).status_code == 428
        assert (await write(strict, RESOLVER, headers={"if-match": "r1"})).status_code == 200

    async def test_an_idempotency_key(self, written: Api) -> None:
        key = {"idempotency-key": "k"}
        new = {**RESOLVER, "Name": "new"}
        first = await put(written, new, headers={**key, "if-none-match": "*"})
        await written.client.delete(f"{PATH}/service-resolver/new")
        again = await put(written, new, headers={**key, "if-none-match": "*"})
        assert (again.status_code, again.json()["changes"]) == (200, first.json()["changes"])
        assert (await written.client.get(f"{PATH}/service-resolver/new")).status_code == 404
        assert (await put(written, {**RESOLVER, "Name": "newer"}, headers=key)).status_code == 422

    async def test_a_dry_run(self, written: Api) -> None:
        before = await state(written)
        answer = await put(written, {**RESOLVER, "ConnectTimeout": "9s"}, params={"dry_run": "true"})
        assert (answer.json()["dry_run"], answer.json()["chains"], answer.json()["revision"]) == (True, ["web"], 1)
        refused = await put(written, REFUSED, params={"dry_run": "true"})
        assert refused.status_code == 422
        assert (await written.client.post(f"{PATH}/rollback", json={"to": 0}, params={"dry_run": "true"})).is_success
        assert await state(written) == before


class TestHistory:
    async def test_revisions_differences_and_undo(self, written: Api) -> None:
        chain = (await written.client.get(f"{CHAINS}/web")).json()
        await written.client.delete(f"{PATH}/service-splitter/web", params={"author": "bob", "message": "off"})
        difference = (await written.client.get(f"{PATH}/revisions/2/diff")).json()
        assert difference == {
            "from": 1,
            "to": 2,
            "items": [
                {"kind": "service-splitter", "name": "web", "change": "removed", "before": SPLITTER, "after": None}
            ],
        }
        plan = (await written.client.get(f"{PATH}/undo")).json()
        assert (plan["to"], plan["takes_back"]["message"], plan["etag"]) == (1, "off", "r2")
        answer = await written.client.post(
            f"{PATH}/rollback", json={"to": 1}, headers={"if-match": plan["etag"]}, params={"message": "back on"}
        )
        assert (answer.json()["revision"], answer.json()["chains"]) == (3, ["web"])
        assert (await written.client.get(f"{CHAINS}/web")).json() == chain
        lines = (await written.client.get(f"{PATH}/revisions")).json()["items"]
        assert [
            (each["revision"], each["kind"], each["content_of"], each["undone_by"], each["entries"]) for each in lines
        ] == [
            (3, "rollback", 1, 0, 3),
            (2, "push", 0, 3, 2),
            (1, "push", 0, 0, 3),
        ]
        assert [(each["author"], each["message"]) for each in lines] == [
            ("", "back on"),
            ("bob", "off"),
            ("ann", "begin"),
        ]
        old = (await written.client.get(f"{PATH}/revisions/1")).json()
        assert [each["Kind"] for each in old["entries"]] == ["proxy-defaults", "service-resolver", "service-splitter"]
        assert (await write(written, *old["entries"])).json()["changed"] is False

    async def test_the_audit_list_has_writes_and_refusals(self, written: Api) -> None:
        await written.client.delete(f"{PATH}/service-splitter/web", params={"author": "bob"})
        await put(written, REFUSED)
        items = (await written.client.get("/api/v1/audit")).json()["items"]
        assert [(each["action"], each.get("subject", ""), each.get("revision", 0)) for each in items] == [
            ("config_entries.changed", "", 1),
            ("config_entries.changed", "service-splitter/web", 2),
            ("refused", "PUT /config-entries", 0),
        ]
        assert items[0]["new"]["changes"]["added"]["count"] == 3
        assert items[1]["author"] == "bob"
        assert "422" in items[2]["reason"]

    async def test_a_write_is_an_event(self, written: Api) -> None:
        await put(written, {**RESOLVER, "ConnectTimeout": "9s"}, params={"author": "bob", "message": "slower"})
        log = written.plane.fleet.events.after(0, EventFilter(frozenset({EventKind.CONFIG_ENTRIES})), 10).events
        assert [(each.action, each.revision, each.message) for each in log] == [
            ("committed", 1, "begin"),
            ("committed", 2, "slower"),
        ]
        assert log[1].details == {"author": "bob", "entries": 1, "chains": 1}


class TestTransactions:
    CLUSTER = static_cluster("a", 80)

    async def transact(self, api: Api, entries: Json, *changes: Json, **arguments: Any) -> httpx.Response:
        body = {"changes": changes, "config_entries": entries}
        return await api.client.post("/api/v1/transactions", json=body, **arguments)

    async def groups(self, api: Api) -> object:
        return (await api.client.get("/api/v1/groups")).json()["items"]

    async def test_entries_and_groups_together(self, written: Api) -> None:
        answer = await self.transact(
            written,
            {"put": [{**RESOLVER, "ConnectTimeout": "9s"}], "delete": [{"kind": "service-splitter", "name": "web"}]},
            {"group": "edge", "snapshot": {"resources": [self.CLUSTER]}},
            params={"author": "ann", "message": "both"},
        )
        assert answer.status_code == 200, answer.text
        assert answer.json()["results"][0]["revision"] == 1
        entries = answer.json()["config_entries"]
        assert (entries["revision"], entries["chains"]) == (2, ["web"])
        assert [each["change"] for each in entries["changes"]] == ["changed", "removed"]
        line = (await written.client.get(f"{PATH}/revisions")).json()["items"][0]
        assert (line["author"], line["message"]) == ("ann", "both")

    async def test_entries_alone(self, written: Api) -> None:
        answer = await self.transact(written, {"put": [{**RESOLVER, "ConnectTimeout": "9s"}]})
        assert (answer.json()["results"], answer.json()["config_entries"]["revision"]) == ([], 2)

    async def test_refused_entries_keep_the_groups_as_they_are(self, written: Api) -> None:
        before = await state(written)
        group = {"group": "edge", "snapshot": {"resources": [self.CLUSTER]}}
        for entries, status in (
            ({"put": [REFUSED]}, 422),
            ({"delete": [{"kind": "service-resolver", "name": "web"}]}, 422),
            ({"delete": [{"kind": "service-resolver", "name": "none"}]}, 404),
            ({"put": [RESOLVER], "if_match": "r9"}, 412),
            ({"put": [{"Kind": "mesh"}]}, 422),
            ({"put": [RESOLVER, RESOLVER]}, 422),
            ({}, 422),
        ):
            assert (await self.transact(written, entries, group)).status_code == status
            assert await self.groups(written) == []
        assert await state(written) == before

    async def test_a_refused_group_keeps_the_entries_as_they_are(self, written: Api) -> None:
        before = await state(written)
        for change, status in (
            ({"group": "edge", "if_match": "r7", "put": [self.CLUSTER]}, 412),
            ({"group": "edge", "put": [{**self.CLUSTER, "connect_timeout": "soon"}]}, 422),
            ({"group": "edge", "delete": [{"type": "clusters", "name": "none"}]}, 404),
        ):
            answer = await self.transact(written, {"put": [{**RESOLVER, "ConnectTimeout": "9s"}]}, change)
            assert answer.status_code == status, answer.text
        assert await state(written) == before
        assert await self.groups(written) == []

    async def test_findings_of_groups_and_entries_come_at_once(self, written: Api) -> None:
        answer = await self.transact(
            written,
            {"put": [RESOLVER, {**RESOLVER, "Name": "b", "ConnectTimeout": "x"}]},
            {"group": "edge", "put": [{**self.CLUSTER, "connect_timeout": "soon"}]},
        )
        pointers = [each["pointer"] for each in answer.json()["errors"]]
        assert pointers == ["/changes/0/put/0/connect_timeout", "/config_entries/put/1/ConnectTimeout"]

    async def test_an_unknown_field_with_a_slash_is_pointed_at(self, written: Api) -> None:
        answer = await self.transact(written, {"put": [RESOLVER], "a/b": 1})
        assert [each["pointer"] for each in answer.json()["errors"]] == ["/config_entries/a~1b"]

    async def test_a_repeat_gets_the_first_result(self, written: Api) -> None:
        arguments = {"headers": {"idempotency-key": "k"}}
        group = {"group": "edge", "snapshot": {"resources": [self.CLUSTER]}}
        first = await self.transact(written, {"put": [{**RESOLVER, "ConnectTimeout": "9s"}]}, group, **arguments)
        again = await self.transact(written, {"put": [{**RESOLVER, "ConnectTimeout": "9s"}]}, group, **arguments)
        assert again.json()["results"] == first.json()["results"]
        assert again.json()["config_entries"]["changes"] == first.json()["config_entries"]["changes"]
        assert (await written.client.get(PATH)).json()["revision"] == 2

    async def test_a_dry_run_changes_nothing(self, written: Api) -> None:
        before = await state(written)
        group = {"group": "edge", "snapshot": {"resources": [self.CLUSTER]}}
        answer = await self.transact(
            written, {"put": [{**RESOLVER, "ConnectTimeout": "9s"}]}, group, params={"dry_run": "true"}
        )
        assert answer.json()["config_entries"]["dry_run"] is True
        assert (await state(written), await self.groups(written)) == (before, [])


class TestChains:
    async def test_a_service_without_entries_has_the_default_chain(self, api: Api) -> None:
        chain = (await api.client.get(f"{CHAINS}/anything")).json()["Chain"]
        assert (chain["Default"], chain["Protocol"], chain["Datacenter"]) == (True, "tcp", "dc1")

    async def test_overrides_and_datacenter(self, written: Api) -> None:
        arguments = {"protocol": "grpc", "connect_timeout": "7s", "datacenter": "dc9"}
        chain = (await written.client.get(f"{CHAINS}/web", params=arguments)).json()["Chain"]
        assert (chain["Protocol"], chain["Datacenter"]) == ("grpc", "dc9")
        assert chain["CustomizationHash"]
        assert "7s" in json.dumps(chain)

    @pytest.mark.parametrize("wrong", [{"connect_timeout": "soon"}, {"mesh_gateway_mode": "far"}])
    async def test_wrong_overrides(self, written: Api, wrong: Json) -> None:
        assert (await written.client.get(f"{CHAINS}/web", params=wrong)).status_code == 400

    async def test_a_client_that_has_the_chain_is_answered_304(self, written: Api) -> None:
        etag = (await written.client.get(f"{CHAINS}/web")).headers["etag"]
        assert (await written.client.get(f"{CHAINS}/web", headers={"if-none-match": etag})).status_code == 304
        await put(written, {**RESOLVER, "ConnectTimeout": "9s"})
        assert (await written.client.get(f"{CHAINS}/web", headers={"if-none-match": etag})).status_code == 200

    async def test_yaml(self, written: Api) -> None:
        shown = await written.client.get(f"{CHAINS}/web", headers={"accept": "application/yaml"})
        assert yaml.safe_load(shown.text) == (await written.client.get(f"{CHAINS}/web")).json()


class TestTheLineIsNoGroup:
    NAME = LINE.replace("%", "%25")

    async def test_the_line_of_config_entries_is_not_listed_as_a_group(self, written: Api) -> None:
        assert (await written.client.get("/api/v1/groups")).json()["items"] == []
        assert LINE not in written.plane.cache.groups()

    @pytest.mark.parametrize(
        "path",
        ["", "/snapshot", "/revisions", "/revisions/1", "/revisions/1/diff", "/undo", "/rollout", "/resources/clusters",
         "/assignments", "/revisions/1/progress"],
    )  # fmt: skip
    async def test_the_line_of_config_entries_cannot_be_read_as_a_group(self, written: Api, path: str) -> None:
        assert (await written.client.get(f"/api/v1/groups/{self.NAME}{path}")).status_code == 404

    async def test_the_line_of_config_entries_cannot_be_written_as_a_group(self, written: Api) -> None:
        before = await state(written)
        base = f"/api/v1/groups/{self.NAME}"
        call = written.client.request
        cluster = static_cluster("a", 80)
        transaction = {"changes": [{"group": LINE, "put": [cluster]}]}
        for answer in (
            await call("PUT", base, json={"priority": 1}),
            await call("PUT", f"{base}/snapshot", json={"resources": []}),
            await call("DELETE", f"{base}/snapshot", params={"allow_empty": "true"}),
            await call("PUT", f"{base}/resources/clusters/a", json=cluster),
            await call("DELETE", f"{base}/resources/service-resolver/web"),
            await call("DELETE", f"{base}/resources/clusters/web"),
            await call("POST", f"{base}/rollback", json={"to": 1}),
            await call("POST", f"{base}/rollback", json={"to": 1}, headers={"idempotency-key": "k"}),
            await call("DELETE", base),
            await call("DELETE", base, params={"allow_empty": "true"}),
            await call("PUT", f"{base}/assignments/web", json={}),
            await call("POST", "/api/v1/transactions", json=transaction),
        ):
            assert answer.status_code in (404, 422), f"{answer.request.method} {answer.request.url}: {answer.text}"
        assert await state(written) == before
        head = await written.plane.store.head(LINE)
        assert head is not None
        assert head.revision == 1


class TestRights:
    def tokens(self, **scopes: str) -> ApiOptions:
        grants = [(sha256(name.encode()).hexdigest(), Grant(name, frozenset({each}))) for name, each in scopes.items()]
        return ApiOptions(tokens=Tokens(grants))

    async def test_readers_read_and_administrators_write(self, written: Api) -> None:
        api = Api(written.plane, self.tokens(reader="read", pusher="write:group/*", boss="admin"))
        reader, pusher, boss = ({"authorization": f"Bearer {name}"} for name in ("reader", "pusher", "boss"))
        for path in (PATH, f"{PATH}/service-resolver/web", f"{PATH}/revisions", f"{CHAINS}/web"):
            assert (await api.client.get(path, headers=reader)).status_code == 200
            assert (await api.client.get(path, headers=pusher)).status_code == 403
        transaction = {"config_entries": {"put": [RESOLVER]}}
        for headers in (reader, pusher):
            for answer in (
                await put(api, RESOLVER, headers=headers),
                await write(api, RESOLVER, headers=headers),
                await api.client.delete(f"{PATH}/service-splitter/web", headers=headers),
                await api.client.post(f"{PATH}/rollback", json={"to": 1}, headers=headers),
                await api.client.post("/api/v1/transactions", json=transaction, headers=headers),
            ):
                assert (answer.status_code, answer.json()["missing_scope"]) == (403, "admin")
        assert (await put(api, RESOLVER, headers=boss)).status_code == 200
        assert (await api.client.post("/api/v1/transactions", json=transaction, headers=boss)).status_code == 200


class TestBackups:
    async def backup(self, api: Api, **params: str) -> bytes:
        answer = await api.client.get("/api/v1/backup", params=params)
        assert answer.status_code == 200
        return answer.content

    async def restore(self, api: Api, archive: bytes, **params: str) -> httpx.Response:
        headers = {"content-type": "application/x-tar"}
        return await api.client.post("/api/v1/restore", content=archive, headers=headers, params=params)

    @pytest.mark.parametrize("history", ["true", "false"])
    async def test_a_restored_server_has_the_same_entries_and_revisions(
        self, written: Api, api: Api, history: str
    ) -> None:
        await put(written, {**RESOLVER, "ConnectTimeout": "9s"})
        before, archive = await state(written), await self.backup(written, history=history)
        await written.client.delete(f"{PATH}/service-splitter/web")
        assert await state(written) != before
        answer = await self.restore(written, archive, replace="true")
        assert answer.status_code == 200, answer.text
        assert await state(written) == before
        assert (await put(written, {**RESOLVER, "ConnectTimeout": "8s"})).json()["revision"] == 3

    async def test_a_redacted_backup_shows_entries(self, written: Api, tmp_path: Path) -> None:
        archive = await self.backup(written, redact="true")
        assert b"service-splitter" in archive
        assert (await self.restore(written, archive, replace="true")).status_code == 422

    async def test_a_blob_that_is_neither_resource_nor_entry_is_refused(self, written: Api) -> None:
        body = b'{"Kind":"service-resolver","Name":"odd"}'
        delta = Delta((Entry("service-resolver", "odd", blob_id(body)),), (), {blob_id(body): body})
        await written.plane.store.commit(LINE, delta, push_id="as no release does")
        before, archive = await state(written), await self.backup(written)
        answer = await self.restore(written, archive, replace="true")
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "invalid_archive")
        assert await state(written) == before
