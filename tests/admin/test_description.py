"""The OpenAPI description says what each operation, parameter, response and field means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.admin.conftest import Api
from tests.admin.test_api_examples import EXAMPLES
from tests.admin.test_grants import ask, guarded
from tests.support.description import DESCRIPTION
from xds.admin.schemas import COMMON

Json = dict[str, Any]

OPERATIONS: dict[str, tuple[str, str, Json]] = {
    operation["operationId"]: (method, path, operation)
    for path, methods in DESCRIPTION["paths"].items()
    for method, operation in methods.items()
}
API_OPERATIONS = {name: found for name, found in OPERATIONS.items() if found[1].startswith("/api/")}
SCHEMAS: dict[str, Json] = DESCRIPTION["components"]["schemas"]


def test_operations_describe_their_parameters_and_responses() -> None:
    wrong = {name: undescribed(operation) for name, (_, _, operation) in OPERATIONS.items()}
    assert {name: places for name, places in wrong.items() if places} == {}


def undescribed(operation: Json) -> list[str]:
    """The parts of an operation without a description."""
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
    return [place for place, text in described.items() if not is_sentence(text)]


def is_sentence(text: str | None) -> bool:
    """Whether it is more than the phrase of a status, such as ``Not Found``."""
    return text is not None and text != "Successful Response" and re.fullmatch(r"([A-Z][a-z]+ ?)+", text) is None


def test_schemas_describe_their_fields() -> None:
    assert [name for name, schema in SCHEMAS.items() if not schema.get("description")] == []
    fields = (found for name, schema in SCHEMAS.items() for found in fields_of(schema, name))
    assert [place for place, field in fields if not field.get("description")] == []


def test_bodies_describe_their_fields() -> None:
    bodies = (
        (name, media["schema"])
        for name, (_, _, operation) in OPERATIONS.items()
        for media in operation.get("requestBody", {"content": {}})["content"].values()
    )
    fields = (found for name, schema in bodies for found in fields_of(schema, name))
    assert [place for place, field in fields if not field.get("description")] == []


def fields_of(schema: Json, place: str) -> Iterator[tuple[str, Json]]:
    """The fields of an object and of the objects in it, each with its place."""
    for field, member in schema.get("properties", {}).items():
        yield f"{place}/{field}", member
        yield from fields_of(member, f"{place}/{field}")
    for part in (*schema.get("anyOf", ()), *schema.get("oneOf", ()), *filter(None, [schema.get("items")])):
        yield from fields_of(part, place)


def test_fields_of_answers_say_when_they_are_null_or_absent() -> None:
    answers = {name: each for name, each in SCHEMAS.items() if name.endswith(("Item", "Answer", "Page", "Deleted"))}
    silent = []
    for name, schema in answers.items():
        for field, member in schema.get("properties", {}).items():
            text = member.get("description", "").lower()
            is_nullable = any(part.get("type") == "null" for part in member.get("anyOf", ()))
            if is_nullable and "null" not in text:
                silent.append(f"{name}/{field} may be null")
            if field not in schema.get("required", ()) and not re.search("present|absent", text):
                silent.append(f"{name}/{field} may be absent")
    assert answers and silent == []


def test_no_text_has_markup_of_docstrings() -> None:
    text = json.dumps(DESCRIPTION)
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


async def test_each_operation_names_the_scope_that_it_needs(api: Api) -> None:
    """The text of 403 has the scope that a caller without scopes is told to lack."""
    api = guarded(api)
    wrong = {}
    for name, (method, path, operation) in API_OPERATIONS.items():
        answer = await ask(api, "proxy", method, filled(name, path), json=EXAMPLES[name].body)
        described = re.search(r"lacks the scope `([\w:{}/]+)`", operation["responses"]["403"]["description"])
        needed = filled(name, described[1]) if described else ""
        if answer.status_code == 403 and described and answer.json()["missing_scope"] == needed:
            continue
        if operation.get("x-scope") != "any" or described:
            wrong[name] = (answer.status_code, answer.text, needed)
    assert wrong == {}


async def test_operations_that_need_a_precondition_are_those_with_428(api: Api) -> None:
    api = guarded(api, require_if_match=True)
    asked = set()
    for name, (method, path, _) in API_OPERATIONS.items():
        if method != "get" and name != "restore":  # its body is an archive
            answer = await ask(api, "all", method, filled(name, path), json=EXAMPLES[name].body)
            if answer.status_code == 428:
                asked.add(name)
    assert asked == {name for name, (_, _, operation) in API_OPERATIONS.items() if "428" in operation["responses"]}


def filled(name: str, template: str) -> str:
    """A path or scope with the values of the example."""
    values = EXAMPLES[name].parameters
    return re.sub(r"{(\w+)}", lambda part: str(values[part[1]]), template)
