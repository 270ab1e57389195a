"""The served OpenAPI description. What the framework cannot derive is added here.

Request bodies that the codec reads, problems as the answer to all errors, YAML answers, the bearer token, summaries,
tags, parameters and examples. `xds.admin.schemas` describes answers, `xds.admin.response_texts` responses.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from xds.admin.answers import JSON_TYPE, YAML_TYPE
from xds.admin.examples import EXAMPLES, ApiExample, ApiTexts
from xds.admin.models.events import ServerEvent
from xds.admin.operations import Trait
from xds.admin.response_texts import describe_responses
from xds.admin.routing import body_models, described_body, operation_of
from xds.admin.schemas import add_schema, plain
from xds.admin.schemas import describe as describe_fields

Json = dict[str, Any]

SUMMARY_CHARACTERS = 90


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


_FINDING: Json = {
    "type": "object",
    "description": "One error of a request.",
    "properties": {
        "code": _text("The kind of error, for programs"),
        "severity": _text("`error`; `warning` for a warning that `strict` turned into an error"),
        "resource": _text("The resource as `alias/name`; `resources[3]` where it has no name; empty for none"),
        "pointer": _text("The JSON pointer of the place, within the resource or the body"),
        "source": _text(
            "File, line and column as `FILE:LINE:COLUMN` where they are known. For a parameter: where it is"
        ),
        "detail": _text("An explanation for people"),
        "hint": _text("How to correct it; may be empty"),
        "index": {"type": "integer", "description": "The position among the pushed resources; -1 for none of them"},
    },
    "required": ["code", "severity", "resource", "pointer", "source", "detail"],
}
_PROBLEM: Json = {
    "type": "object",
    "title": "Problem",
    "description": "The body of each error: a problem document (RFC 9457).",
    "properties": {
        "type": _text("`about:blank`"),
        "title": _text("The name of the status"),
        "status": {"type": "integer", "description": "The HTTP status"},
        "detail": _text("What is wrong, for people"),
        "instance": _text("The path of the request"),
        "request_id": _text("The id of the request, which the log of the server and `X-Request-ID` have too"),
        "errors": {
            "type": "array",
            "items": {"$ref": "#/components/schemas/Finding"},
            "description": "All findings, at most 1000; empty where the detail says everything",
        },
        "revision": {
            "type": "integer",
            "description": "412: the present revision; 0 where there is none",
        },
        "group": _text("412: the name of the group; absent where a document without a group changed"),
        "override": _text("409, 428: the parameter that permits the change"),
        "reason": _text("409, 428: the detail without the name of that parameter"),
        "missing_scope": _text("403: the missing scope"),
    },
    "required": ["type", "title", "status", "detail", "instance", "request_id", "errors"],
}

_ABOUT = """Push configuration to fleets of proxies, and see which proxy runs what.

* Times are RFC 3339 in UTC. Names that end in `_s` are seconds, in `_rps` requests per second, in `_n`
  numbers of items.
* A list has at most `limit` items. Send its `next_page_token` as `page_token` to get the next page; the last page has
  none.
* A resource type is a type alias such as `clusters`, or a type URL. Path parameters are percent-encoded.
* Errors are problem documents (RFC 9457). Each response has the id of its request in `X-Request-ID`.
* Secret values are shown as `[redacted]`, unless `show_secrets` is set.

docs/admin-api.md in the repository has the concepts."""
_SERVERS = [{"url": "/", "description": "This server"}]
_TAGS: Mapping[str, str] = {
    "groups": "Groups of nodes and their snapshots: push, read, validate.",
    "revisions": "The history of a group: compare, undo, and follow the progress of a push.",
    "rollouts": "Careful rollouts: pushes that go to some nodes first, and take themselves back.",
    "fleet": "Nodes: what each runs, rejects and keeps, and why; bootstraps.",
    "endpoints": "Assignments set by hand, without a revision.",
    "load": "What proxies report: requests, errors, drops.",
    "events": "The live stream of events.",
    "audit": "All writes and all refused writes, with actor and time.",
    "access": "Tests of which credential may be which node.",
    "watch": "The watched directory.",
    "backups": "Backup and restore.",
    "about": "Version, settings and schemas of the server.",
    "health": "For probes and Prometheus.",
}


_ASSIGNMENT = "The name of the ClusterLoadAssignment: that of the cluster, or its `eds_cluster_config.service_name`"
# Parameters in paths, by name; by tag and name where the name means something else.
_PATH_PARAMETERS: Mapping[str, str] = {
    "assignment": _ASSIGNMENT,
    "cluster": "The name of the cluster",
    "group": "The name of the group",
    "id": "The id of the node",
    "name": "The name of the resource",
    "revision": "The number of the revision",
    "type": "The resource type: an alias such as `clusters`, or a type URL",
    "about type": "The resource type: an alias such as `clusters`, a type URL or a message name; or `snapshot`",
    "endpoints name": _ASSIGNMENT,
}
_IF_NONE_MATCH: Json = {
    "name": "if-none-match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "Etags of versions that the client has. If the present version is among them, the answer is 304",
}


KERNEL_TEXTS = ApiTexts(
    "xds.admin",
    _TAGS,
    _PATH_PARAMETERS,
    EXAMPLES,
)


def describe(app: FastAPI, api_prefix: str, features: Sequence[ApiTexts] = ()) -> None:
    """Let the application serve the completed description, with what features say in it."""
    made: Json = {}

    def openapi() -> Json:
        """The completed description, made at the first request."""
        if not made:
            made.update(_completed(app, api_prefix, (KERNEL_TEXTS, *features)))
        return made

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI documents this replacement


def _completed(app: FastAPI, api_prefix: str, texts: Sequence[ApiTexts]) -> Json:
    document = get_openapi(
        title=app.title, version=app.version, routes=app.routes, description=_ABOUT, servers=_SERVERS, tags=_tags(texts)
    )
    document["paths"] = dict(sorted(document["paths"].items()))  # the order of registration means nothing to readers
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    for enumeration in schemas.values():
        enumeration["description"] = plain(enumeration["description"])
    bodies = [models for route in app.routes if (models := body_models(route))]
    for model, *_ in bodies:
        own = TypeAdapter(model).json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(own.pop("$defs", {}))
        schemas[model.__name__] = own
    for described in (each for models in bodies for each in models):
        describe_fields(described, schemas[described.__name__])
    add_schema(ServerEvent, schemas)
    served = {getattr(route, "unique_id", ""): each for route in app.routes if (each := operation_of(route))}
    for _, _, operation in _operations(document):
        if (kind := served[operation["operationId"]].answer()) is not None:
            operation["responses"]["200"]["content"][JSON_TYPE]["schema"] = add_schema(kind, schemas)
    schemas["Problem"], schemas["Finding"] = _PROBLEM, _FINDING
    document["components"]["schemas"] = schemas = dict(sorted(schemas.items()))
    token = {"type": "http", "scheme": "bearer", "description": "A token of the setting `auth.tokens`"}
    document["components"]["securitySchemes"] = {"token": token}
    document["security"] = [{}, {"token": []}]
    own_bodies = {getattr(route, "unique_id", ""): described_body(route) for route in app.routes}
    parameters = {name: text for each in texts for name, text in each.parameters.items()}
    examples = {name: example for each in texts for name, example in each.examples.items()}
    answers = {name: answer for each in texts for name, answer in each.answers().items()}
    for path, method, operation in _operations(document):
        operation["summary"] = _first_sentence(operation["description"])
        operation["description"] = plain(operation["description"])
        traits = served[operation["operationId"]].traits
        _describe_parameters(operation, parameters, traits)
        if (body := own_bodies[operation["operationId"]]) is not None:
            operation["requestBody"] = body
        _add_answers(operation, traits)
        describe_responses(path, method, operation, schemas, served[operation["operationId"]])
        _add_example(operation, examples, answers)
    return document


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


def _tags(texts: Sequence[ApiTexts]) -> list[Json]:
    return [{"name": name, "description": text} for each in texts for name, text in each.tags.items()]


def _first_sentence(description: str) -> str:
    """The first sentence of a docstring, without the marks of code."""
    paragraph = " ".join(description.split("\n\n", 1)[0].split()).replace("`", "")
    sentence = re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0].rstrip(".:")
    is_long = len(sentence) > SUMMARY_CHARACTERS or "{" in sentence
    return sentence.partition(": ")[0] if is_long else sentence


def _describe_parameters(operation: Json, texts: Mapping[str, str], traits: Collection[Trait]) -> None:
    for parameter in operation.get("parameters", ()):
        if parameter["in"] == "path":
            name = parameter["name"]
            text = texts.get(f"{operation['tags'][0]} {name}") or texts[name]
            parameter.setdefault("description", text)
    if Trait.CONDITIONAL in traits:
        operation.setdefault("parameters", []).append(_IF_NONE_MATCH)


def _add_example(operation: Json, examples: Mapping[str, ApiExample], answers: Mapping[str, object]) -> None:
    """The example's values in the parameters, its body in each JSON or YAML body, its answer in the answer."""
    name = operation["operationId"]
    if name not in examples:
        return
    example = examples[name]
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in example.parameters:
            parameter["example"] = example.parameters[parameter["name"]]
    if example.body is not None:
        for media_type in operation["requestBody"]["content"].keys() & {JSON_TYPE, YAML_TYPE}:
            operation["requestBody"]["content"][media_type]["example"] = example.body
    for media_type, answered in operation["responses"]["200"]["content"].items():
        answer = answers.get(name if media_type == JSON_TYPE else f"{name} {media_type}")
        if answer is not None:
            answered["example"] = answer


def _add_answers(operation: Json, traits: Collection[Trait]) -> None:
    responses = operation["responses"]
    if Trait.YAML in traits:
        content = responses["200"]["content"]
        content[YAML_TYPE] = content[JSON_TYPE]
    if Trait.CONDITIONAL in traits:
        responses["304"] = {"description": "The client has this version: its etag is in `If-None-Match`"}
    if any(parameter["name"] == "prefer" for parameter in operation.get("parameters", ())):
        done = {"description": "Done, but some nodes had neither ACKed nor NACKed it when the wait was over"}
        responses["202"] = {**responses["200"], **done}
