"""The responses of each operation in the OpenAPI description: statuses with their causes, and headers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from xds.access.tokens import ADMIN, READ
from xds.admin.operations import ANY, Operation, Trait
from xds.admin.problem import MEDIA_TYPE
from xds.admin.routing import SCOPE_KEY

Json = dict[str, Any]

_EMPTYING = "Connected nodes would lose their whole configuration. `override` names the parameter that permits this"
_OUT_OF_SERVICE = (
    "A cluster uses the assignment, which would lose its last serving endpoint. `override` names the parameter that"
    " permits this"
)
_REFERENCED = "other resources of the group name one that is deleted, which `force` permits"
_OWNED = "the assignment has another owner, which the detail names"
_NO_SPACE = "The disk is full, or `store.max_bytes` is reached. Nothing was changed"
_GONE = "The revision is in the history, but retention has deleted its content"

_STORING_NOTHING = frozenset({"validate", "explain_document", "test_access"})
# Of answers without a schema of their own.
_CONTENT: Mapping[str, str] = {
    "get_resource": "The resource as protobuf JSON, with its `@type`",
    "get_bootstrap": "The bootstrap: Envoy's, or that of a gRPC library",
    "get_config": "The settings by section, as in the configuration file",
    "get_schema": "The JSON Schema",
    "get_backup": "A tar archive",
    "metrics": "Metrics in the text format of Prometheus",
}


def describe_responses(
    path: str,
    method: str,
    operation: Json,
    schemas: Mapping[str, Json],
    served: Operation,
) -> None:
    """Describe the responses of an operation below ``path``: what 200 has, and each error with its cause."""
    name, responses = operation["operationId"], operation["responses"]
    done = responses["200"]
    if name in _CONTENT:
        done["description"] = _CONTENT[name]
    elif (answer := _schema_of(done)) in schemas:
        done["description"] = _first_sentence(schemas[answer]["description"])
    if name == "readyz":
        responses["503"]["description"] = "The stored state is not loaded yet, or the server drains"
    headers = _headers(name, operation, served.traits)
    if headers:
        for status in {"200", "202"} & responses.keys():
            responses[status]["headers"] = {**responses[status].get("headers", {}), **headers}
    if path.startswith("/api/"):
        responses.pop("422", None)
        responses.update(_problems(path, method, operation, served))


def _schema_of(response: Json) -> str:
    """The name of the schema of a response as JSON; empty if it has none."""
    contents: list[Json] = list(response.get("content", {}).values())
    schema: Json = contents[0].get("schema") or {} if contents else {}
    return str(schema.get("$ref", "")).rpartition("/")[2]


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].partition("\n")[0].rstrip(".")


def _headers(name: str, operation: Json, traits: Collection[Trait]) -> Json:
    headers: Json = {}
    if Trait.ETAG in traits:
        headers["ETag"] = _header("The etag of what is there now, for `If-Match`; absent if there is none")
    if name == "get_resource":
        headers["X-Resource-Version"] = _header("The version of the resource: a hash of its content")
    if _has_parameter(operation, "prefer"):
        headers["Preference-Applied"] = _header("`wait=30` if the server waited for the nodes")
    if name == "get_backup":
        headers["Content-Disposition"] = _header("The name of the file, with the time of the backup")
    return headers


def _header(description: str, kind: str = "string") -> Json:
    return {"description": description, "schema": {"type": kind}}


def _has_parameter(operation: Json, name: str) -> bool:
    return any(each["name"] == name for each in operation.get("parameters", ()))


def _problems(path: str, method: str, operation: Json, served: Operation) -> Json:
    """The errors of an operation by status, in their order."""
    name, traits = operation["operationId"], served.traits
    has_body, writes = "requestBody" in operation, method != "get"
    has_precondition = _has_parameter(operation, "if-match")
    causes = {
        400: _malformed(operation, has_body=has_body),
        401: "A valid bearer token or client certificate is required",
        403: _forbidden(path, method, operation),
        500: "An internal error. The log of the server has its details under `request_id`",
        503: _unavailable(name, writes),
    }
    if "{" in path or Trait.ABSENT in traits:
        causes[404] = "There is no such object. The detail names it"
    if name == "restore":
        causes[408] = "The archive arrives too slowly"
    if Trait.HISTORY in traits:
        causes[410] = _GONE
    if has_precondition or Trait.PRECONDITION in traits:
        causes[412] = "The precondition fails: the present state has another etag. `revision` is the present revision"
        causes[428] = "The server requires `If-Match` or `If-None-Match` for each write (`server.require_if_match`)"
    if name == "restore":
        causes[412] = "The server is not empty, and `replace` is not set"
    if has_body:
        causes[413] = "The body is too large"
        causes[422] = "The input is invalid, or warnings count as errors. `errors` lists all findings"
    if has_body and name != "restore":
        causes[415] = "`Content-Type` is missing or not supported"
    if not has_body and operation.get("parameters"):
        causes[422] = "A parameter is out of range or has a wrong type"
    if cause := served.conflict or (_conflict(operation, traits) if writes else ""):
        causes[409] = cause
    if writes and name not in _STORING_NOTHING:
        causes[507] = _NO_SPACE
    return {str(status): _problem(text, status) for status, text in sorted(causes.items())}


def _malformed(operation: Json, *, has_body: bool) -> str:
    causes = ["a query parameter is unknown or is given twice"]
    if operation.get("parameters"):
        causes.append("a parameter or header has a wrong form")
    if has_body:
        causes.insert(0, "the body cannot be parsed")
    return _sentence(causes)


def _sentence(causes: list[str]) -> str:
    text = " or ".join((", ".join(causes[:-1]), causes[-1])) if len(causes) > 1 else causes[0]
    return f"{text[0].upper()}{text[1:]}"


def _unavailable(name: str, writes: bool) -> str:
    causes = ["the server is starting"]
    if name == "get_events":
        causes.append("too many readers of events are connected")
    if name in ("get_backup", "restore"):
        causes.append("another backup or restore runs")
    if writes:
        causes.append("the store cannot write")
    return f"{_sentence(causes)}. Nothing was changed" if writes else _sentence(causes)


def _conflict(operation: Json, traits: Collection[Trait]) -> str:
    causes = []
    if _has_parameter(operation, "allow_empty"):
        causes.append(_OUT_OF_SERVICE if "endpoints" in operation["tags"] else _EMPTYING)
    if _has_parameter(operation, "force"):
        causes.append(_REFERENCED)
    if Trait.OWNED in traits:
        causes.append(_OWNED)
    text = "; or ".join(causes)
    return f"{text[0].upper()}{text[1:]}" if text else ""


def _forbidden(path: str, method: str, operation: Json) -> str:
    """The causes of 403: a missing scope, as `xds.admin.routing` demands it, and what `BrowserSafety` refuses."""
    foreign = "`Host` is not a name of this server"
    if method != "get":
        foreign += ", or the request comes from a web page of another origin"
    scope = operation.get(SCOPE_KEY)
    if scope is None:
        of_group = "write:group/{group}" if "{group}" in path else ADMIN
        scope = READ if method == "get" else of_group
    if scope != ANY:
        return f"The credential lacks the scope `{scope}`, or {foreign}"
    return f"The credential lacks the scope in `missing_scope`, or {foreign}" if method != "get" else foreign


def _problem(text: str, status: int) -> Json:
    response: Json = {
        "description": text,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
    if status == 503:
        response["headers"] = {"Retry-After": _header("Seconds after which to send the request again", "integer")}
    if status in (401, 403):
        response["headers"] = {"WWW-Authenticate": _header("The scheme, and the missing scope if there is one")}
    return response
