"""Errors and warnings of pushes: answers have the place and a hint."""

from __future__ import annotations

import pytest

from tests.admin.conftest import Api

T = "type.googleapis.com/"
CLUSTER = f"{T}envoy.config.cluster.v3.Cluster"
SNAPSHOT = "/api/v1/groups/edge/snapshot"
RESOURCE = "/api/v1/groups/edge/resources/clusters/c1"
ITEM = {"code", "severity", "resource", "pointer", "source", "detail", "hint", "index"}

BROKEN_YAML = f"""\
resources:
- "@type": {CLUSTER}
  name: c1
- "@type": {CLUSTER}
  name: c2
  conect_timeout: 1s
  type: NOPE
"""
BROKEN_JSON = f"""\
{{"resources": [
  {{"@type": "{CLUSTER}", "name": "c1"}},
  {{"@type": "{CLUSTER}", "name": "c2",
   "conect_timeout": "1s", "type": "NOPE"}}
]}}
"""
LAX = f"""\
resources:
- "@type": {CLUSTER}
  name: c1
  type: static
"""
YAML = {"content-type": "application/yaml"}


@pytest.mark.parametrize("path", [SNAPSHOT, "/api/v1/validate"])
@pytest.mark.parametrize(
    ("body", "media", "sources"),
    [(BROKEN_YAML, "yaml", ["6:3", "7:3"]), (BROKEN_JSON, "json", ["4:4", "4:28"])],
)
async def test_errors_stand_at_a_line_and_column(
    api: Api, path: str, body: str, media: str, sources: list[str]
) -> None:
    method = "PUT" if path == SNAPSHOT else "POST"
    answer = await api.client.request(method, path, content=body, headers={"content-type": f"application/{media}"})
    assert answer.status_code == 422
    errors = answer.json()["errors"]
    assert [one["source"] for one in errors] == sources
    assert [(one["resource"], one["index"], one["pointer"]) for one in errors] == [
        ("clusters/c2", 1, "/conect_timeout"),
        ("clusters/c2", 1, "/type"),
    ]
    assert errors[0]["hint"] == 'did you mean "connect_timeout"?'
    assert all(set(one) == ITEM and one["severity"] == "error" for one in errors)
    assert (await api.client.get("/api/v1/groups/edge")).status_code == 404


async def test_errors_of_one_resource_stand_at_a_line_and_column(api: Api) -> None:
    answer = await api.client.put(RESOURCE, content="name: c1\nnope: 1\n", headers=YAML)
    (error,) = answer.json()["errors"]
    assert (error["source"], error["pointer"], error["index"]) == ("2:1", "/nope", -1)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", SNAPSHOT, LAX),
        ("POST", "/api/v1/validate", LAX),
        ("PUT", RESOURCE, "name: c1\n\ntype: static\n"),
    ],
)
async def test_warnings_stop_nothing_unless_they_should(api: Api, method: str, path: str, body: str) -> None:
    refused = await api.client.request(method, f"{path}?strict=true", content=body, headers=YAML)
    assert refused.status_code == 422
    assert [one["code"] for one in refused.json()["errors"]] == ["lax_input"]
    assert (await api.client.get("/api/v1/groups/edge")).status_code == 404
    answer = await api.client.request(method, path, content=body, headers=YAML)
    assert answer.status_code == 200
    (warning,) = answer.json()["warnings"]
    assert set(warning) == ITEM
    assert (warning["code"], warning["severity"], warning["pointer"]) == ("lax_input", "warning", "/type")
    assert warning["source"] in {"4:3", "3:1"}
    assert warning["hint"] == "write STATIC"


async def test_warnings_of_a_transaction_are_its_changes(api: Api) -> None:
    lax = {"@type": CLUSTER, "name": "c1", "type": "static"}
    plain = {"@type": CLUSTER, "name": "c1", "type": "STATIC"}
    changes = [
        {"group": "a", "snapshot": {"resources": [plain]}},
        {"group": "b", "put": [plain, {**lax, "name": "c2"}]},
    ]
    refused = await api.client.post("/api/v1/transactions?strict=true", json={"changes": changes})
    assert refused.status_code == 422
    answer = await api.client.post("/api/v1/transactions", json={"changes": changes})
    assert answer.status_code == 200, answer.text
    found = [[one["pointer"] for one in result["warnings"]] for result in answer.json()["results"]]
    assert found == [[], ["/changes/1/put/1/type"]]


@pytest.mark.parametrize(
    ("body", "media", "source"),
    [
        ('{"resources": [\n{"name": "a", "name": "b"}]}', "json", "2:15"),
        ("resources:\n- name: a\n  name: b\n", "yaml", "3:3"),
        ('{"resources": [NaN]}', "json", "1:16"),
        ('{"resources":\n ' + "[" * 5000, "json", "2:251"),
        ("resources: " + "[" * 5000, "yaml", "1:111"),
        ('{"resources": [\n' + "9" * 5000 + "]}", "json", "2:1"),
        ("a: &a [1]\n" + "b: [*b]\n", "yaml", "2:5"),
        (b"resources:\n- \xff\n", "yaml", "2:3"),
        ("resources:\n- \x07\n", "yaml", "2:3"),
        ("\x00\x01\x02", "json", "1:1"),
        ("\x00\x01\x02", "yaml", "1:1"),
    ],
)
async def test_hostile_text_is_refused_with_its_place(api: Api, body: str | bytes, media: str, source: str) -> None:
    answer = await api.client.put(SNAPSHOT, content=body, headers={"content-type": f"application/{media}"})
    assert answer.status_code == 400
    assert [one["source"] for one in answer.json()["errors"]] == [source]


HALF_PAIR = r"\ud800"
ONE_CLUSTER = f'{{"@type": "{CLUSTER}", "name": "c1", "type": "STATIC"}}'


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (f"[{ONE_CLUSTER.replace('c1', HALF_PAIR)}]", "/0/name"),
        (f'[{{"@type": "a/b", "@name": "{HALF_PAIR}", "@value_base64": ""}}]', "/0/@name"),
        (f'[{{"@type": "a/{HALF_PAIR}", "@name": "n", "@value_base64": ""}}]', "/0/@type"),
        (f'{{"version": "{HALF_PAIR}", "resources": []}}', "/version"),
        (f'{{"versions": {{"clusters": "{HALF_PAIR}"}}, "resources": []}}', "/versions/clusters"),
        (f'{{"versions": {{"a/{HALF_PAIR}": "1"}}, "resources": []}}', "/versions"),
    ],
)
async def test_a_text_without_an_encoding_is_refused(api: Api, body: str, pointer: str) -> None:
    """Half of a surrogate pair: neither an answer nor a response to a proxy can contain it."""
    answer = await api.client.put(SNAPSHOT, content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert (error["code"], error["pointer"]) == ("encoding", pointer)
    assert (await api.client.get("/api/v1/groups/edge")).status_code == 404
