"""The OpenAPI description says what each operation, parameter, response and field means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.conftest import Api
from xds.api.app import openapi_document
from xds.api.field_texts import COMMON

Json = dict[str, Any]

DOCUMENT = openapi_document()
OPERATIONS: dict[str, tuple[str, str, Json]] = {
    operation["operationId"]: (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
SCHEMAS: dict[str, Json] = DOCUMENT["components"]["schemas"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_describes_its_parameters_and_responses(name: str) -> None:
    _, _, operation = OPERATIONS[name]
    described = {
        **{f"parameter {each['name']}": each.get("description") for each in operation.get("parameters", ())},
        **{f"status {status}": each.get("description") for status, each in operation["responses"].items()},
        **{
            f"header {header}": each.get("description")
            for response in operation["responses"].values()
            for header, each in response.get("headers", {}).items()
        },
    }
    if "requestBody" in operation:
        described["body"] = operation["requestBody"].get("description")
    assert [place for place, text in described.items() if not is_sentence(text)] == []


def is_sentence(text: str | None) -> bool:
    """Whether it is more than the phrase of a status, such as ``Not Found``."""
    return text is not None and text != "Successful Response" and re.fullmatch(r"([A-Z][a-z]+ ?)+", text) is None


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_schema_describes_its_fields(name: str) -> None:
    assert SCHEMAS[name].get("description")
    assert [place for place, field in fields_of(SCHEMAS[name], name) if not field.get("description")] == []


@pytest.mark.parametrize("name", [name for name, (_, _, operation) in OPERATIONS.items() if "requestBody" in operation])
def test_a_body_describes_its_fields(name: str) -> None:
    bodies = OPERATIONS[name][2]["requestBody"]["content"]
    fields = (found for media in bodies.values() for found in fields_of(media["schema"], ""))
    assert [place for place, field in fields if not field.get("description")] == []


def fields_of(schema: Json, place: str) -> Iterator[tuple[str, Json]]:
    """The fields of an object and of the objects in it, each with its place."""
    for field, member in schema.get("properties", {}).items():
        yield f"{place}/{field}", member
        yield from fields_of(member, f"{place}/{field}")
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *filter(None, [schema.get("items")])):
        yield from fields_of(part, place)


def test_no_text_has_marks_of_docstrings() -> None:
    text = json.dumps(DOCUMENT)
    assert "``" not in text
    assert "* `" not in "".join(schema.get("description", "") for schema in SCHEMAS.values())


def test_every_common_text_is_used() -> None:
    used = {field.get("description") for schema in SCHEMAS.values() for field in schema.get("properties", {}).values()}
    assert [name for name, text in COMMON.items() if text not in used] == []


def test_a_page_says_where_the_next_one_is() -> None:
    """Generated clients read lists page by page."""
    paged = {
        response["$ref"].rpartition("/")[2]
        for _, _, operation in OPERATIONS.values()
        if any(each["name"] == "page_token" for each in operation.get("parameters", ()))
        for response in [operation["responses"]["200"]["content"]["application/json"]["schema"]]
    }
    assert [name for name in sorted(paged) if "next_page_token" not in SCHEMAS[name]["properties"]] == []


def test_parameters_that_openapi_ignores_are_left_out() -> None:
    ignored = {"accept", "content-type", "authorization"}
    found = [
        (name, each["name"])
        for name, (_, _, operation) in OPERATIONS.items()
        for each in operation.get("parameters", ())
        if each["in"] == "header" and each["name"].lower() in ignored
    ]
    assert found == []


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "groups/nobody", 404),
        ("PUT", "groups/nobody/snapshot", 415),
        ("GET", "groups?page_token=a", 400),
        ("GET", "groups?limit=0", 422),
        ("GET", "groups/default/revisions/9", 404),
        ("POST", "transactions", 415),
        ("GET", "nodes?selector=(", 400),
        ("POST", "config-entries/rollback", 415),
    ],
)
async def test_an_error_is_among_the_described_ones(api: Api, method: str, path: str, status: int) -> None:
    answer = await api.client.request(method, f"/api/v1/{path}")
    assert answer.status_code == status, answer.text
    found = [
        operation
        for known, route, operation in OPERATIONS.values()
        if known == method.lower()
        and re.fullmatch(re.sub(r"{\w+}", "[^/]+", route), f"/api/v1/{path.partition('?')[0]}")
    ]
    assert found and all(str(status) in operation["responses"] for operation in found)
