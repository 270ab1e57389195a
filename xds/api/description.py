"""The served OpenAPI description. What the framework cannot derive is added here.

Bodies that the codec reads, problems as the answer to all errors, YAML answers, the bearer token, summaries, tags and
examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from xds.api.answers import JSON_TYPE, YAML_TYPE
from xds.api.examples import EXAMPLES, answers
from xds.api.problem import MEDIA_TYPE
from xds.api.routes.backups import TAR_TYPE
from xds.api.routes.config_entries import EntryRollbackRequest
from xds.api.routes.revisions import RollbackRequest
from xds.api.routes.transactions import TransactionRequest
from xds.api.shapes.assignments import POLICY_SCHEMA
from xds.api.shapes.endpoints import PATCH_SCHEMA

Json = dict[str, Any]

PROTOBUF_TYPE = "application/x-protobuf"
BYTES_TYPE = "application/octet-stream"
SUMMARY_CHARACTERS = 90
_TEXT: Json = {"type": "string"}
_FINDING: Json = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("code", "severity", "resource", "pointer", "source", "detail", "hint"), _TEXT),
        "index": {"type": "integer"},
    },
    "required": ["code", "severity", "resource", "pointer", "source", "detail"],
}
_PROBLEM: Json = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457",
    "properties": {
        **dict.fromkeys(("type", "title", "detail", "instance", "request_id"), _TEXT),
        "status": {"type": "integer"},
        "errors": {"type": "array", "items": {"$ref": "#/components/schemas/Finding"}},
        "revision": {"type": "integer", "description": "412: the present revision and etag of the group"},
        "override": {"type": "string", "description": "409, 428: the parameter that allows the change"},
        "reason": {"type": "string", "description": "409, 428: the detail without that parameter's name"},
        "missing_scope": {"type": "string", "description": "403: the missing scope"},
    },
    "required": ["type", "title", "status", "detail", "instance", "request_id", "errors"],
}
_READING = (400, 401, 403, 404, 422, 500, 503)
_WRITING = (*_READING, 409, 412, 413, 415, 428)

_RESOURCE: Json = {"type": "object", "description": "A resource with its @type; see /schema/{type}"}
_PUSH: Json = {
    "type": "object",
    "properties": {
        "resources": {"type": "array", "items": _RESOURCE},
        "version": {"type": "string"},
        "versions": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["resources"],
}
_NODE: Json = {"type": "object", "description": "A node as Envoy names itself", "properties": {"id": _TEXT}}
_NAMES: Json = {"type": "array", "items": {"type": "string"}, "maxItems": 100}
_QUESTION: Json = {
    "type": "object",
    "properties": {
        "certificate": {
            "type": "object",
            "description": "The names of a certificate",
            "properties": {"uris": _NAMES, "dns": _NAMES, "cn": {"type": "string"}},
            "additionalProperties": False,
        },
        "token": {"type": "string", "description": "The name of a token; of this and certificate, one is needed"},
        "node": {**_NODE, "properties": {"id": {"type": "string", "minLength": 1}}, "required": ["id"]},
    },
    "required": ["node"],
    "additionalProperties": False,
}
_SECONDS: Json = {"type": ["number", "null"], "minimum": 0, "maximum": 86400}
_SETTINGS: Json = {
    "type": "object",
    "properties": {
        "selector": _TEXT,
        "priority": {"type": "integer"},
        "on_nack": {"enum": ["", "hold", "proceed"]},
        "removal_delay_s": _SECONDS,
        "listener_drain_s": _SECONDS,
    },
    "additionalProperties": False,
}
_ENTRY: Json = {"type": "object", "description": "A config entry as Consul writes it; see docs/discovery-chain.md"}
_SERVICE: Json = {
    "type": "object",
    "description": "A service as Consul's agent takes it; docs/services.md#registration has all fields",
    "properties": {
        "Name": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.~:-]{0,254}$"},
        "Address": {"type": "string", "format": "ipv4"},
        "Port": {"type": "integer", "minimum": 1, "maximum": 65535},
        "Tags": {"type": "array", "items": {"type": "string"}, "maxItems": 64},
        "Check": {"type": "object", "properties": {"TTL": {"enum": ["10s", "5m"]}}, "required": ["TTL"]},
    },
    "required": ["Name", "Port"],
}
_ASSIGNMENT: Json = {"type": "object", "description": "A ClusterLoadAssignment; see /schema/endpoints"}
_UPSTREAMS: Json = {
    "type": "object",
    "description": "The services that the proxies of a group call; docs/mesh.md has all fields",
    "properties": {
        "upstreams": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "service": {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.~:-]{0,254}$"},
                    "bind_port": {"type": "integer", "minimum": 0, "maximum": 65535},
                },
                "required": ["service"],
            },
        }
    },
    "required": ["upstreams"],
}
_BINDING: Json = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("service", "filter", "port", "datacenter"), _TEXT),
        "only_passing": {"type": "boolean"},
    },
    "required": ["service"],
    "additionalProperties": False,
}
_BODIES: Mapping[str, Json] = {
    "put_registration": _SERVICE,
    "put_group": _SETTINGS,
    "put_config_entry": _ENTRY,
    "put_config_entries": {"oneOf": [_ENTRY, {"type": "array", "items": _ENTRY}]},
    "roll_back_config_entries": {"$ref": "#/components/schemas/EntryRollbackRequest"},
    "put_assignment": POLICY_SCHEMA,
    "put_upstreams": _UPSTREAMS,
    "put_binding": _BINDING,
    "put_endpoints": _ASSIGNMENT,
    "patch_endpoints": PATCH_SCHEMA,
    "transact": {"$ref": "#/components/schemas/TransactionRequest"},
    "rollback": {"$ref": "#/components/schemas/RollbackRequest"},
    "put_snapshot": _PUSH,
    "validate": _PUSH,
    "put_resource": _RESOURCE,
    "explain_document": _NODE,
    "test_access": _QUESTION,
}
_WITH_PROTOBUF = frozenset({"put_snapshot", "validate", "put_resource"})
_JSON_ONLY = frozenset({"rollback", "roll_back_config_entries"})
_CONDITIONAL = frozenset({"get_snapshot", "get_resource", "get_revision", "get_config_entry", "get_discovery_chain"})
_IN_YAML = _CONDITIONAL | {
    "get_bootstrap",
    "get_upstreams",
    "get_difference",
    "get_config_entry_revision",
    "get_config_entry_difference",
}


_ABOUT = "Push configuration to fleets of proxies, and see which proxy runs what. docs/admin-api.md has the concepts."
_SERVERS = [{"url": "/", "description": "This server"}]
_TAGS: Mapping[str, str] = {
    "groups": "Groups of nodes and their snapshots: push, read, validate.",
    "revisions": "The history of a group: compare, undo, and follow the progress of a push.",
    "fleet": "Nodes: what each runs, rejects and keeps, and why; bootstraps.",
    "config entries": "Config entries as in Consul, and the discovery chains compiled from them.",
    "services": "Services of the catalog and their instances.",
    "registrations": "Instances that are registered over HTTP.",
    "sources": "Where instances come from, and whether each source works.",
    "endpoints": "Assignments set by hand, without a revision.",
    "upstreams": "Services that the proxies of a group call, lowered to resources.",
    "bindings": "Assignments that follow a service of the catalog.",
    "load": "What proxies report: requests, errors, drops.",
    "assignments": "Policies that turn load into traffic weights.",
    "events": "The live stream of events.",
    "audit": "Who changed what, and who was refused.",
    "access": "Node authorisation.",
    "watch": "The watched directory.",
    "backups": "Backup and restore.",
    "about": "Version, settings and schemas of the server.",
    "health": "For probes and Prometheus.",
}


def describe(app: FastAPI, api_prefix: str) -> None:
    """Serve a completed description."""
    made: Json = {}

    def openapi() -> Json:
        """The completed description, made at the first request."""
        if not made:
            made.update(_completed(app, api_prefix))
        return made

    app.openapi = openapi  # type: ignore[method-assign]  # how FastAPI wants it replaced


def _completed(app: FastAPI, api_prefix: str) -> Json:
    document = get_openapi(
        title=app.title, version=app.version, routes=app.routes, description=_ABOUT, servers=_SERVERS, tags=_tags()
    )
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    schemas["Problem"], schemas["Finding"] = _PROBLEM, _FINDING
    for model in (TransactionRequest, RollbackRequest, EntryRollbackRequest):
        own = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(own.pop("$defs", {}))
        schemas[model.__name__] = own
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{}, {"token": []}]
    for path, method, operation in _operations(document):
        operation["summary"] = _first_sentence(operation["description"])
        _add_body(operation)
        _add_answers(operation)
        _add_example(operation)
        if path.startswith(api_prefix):
            _add_problems(operation, _READING if method == "get" else _WRITING)
    return document


def _operations(document: Json) -> Iterator[tuple[str, str, Json]]:
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


def _tags() -> list[Json]:
    return [{"name": name, "description": text} for name, text in _TAGS.items()]


def _first_sentence(description: str) -> str:
    """The first sentence of a docstring, without the marks of code."""
    paragraph = " ".join(description.split("\n\n", 1)[0].split()).replace("`", "")
    sentence = re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0].rstrip(".:")
    is_long = len(sentence) > SUMMARY_CHARACTERS or "{" in sentence
    return sentence.partition(": ")[0] if is_long else sentence


def _add_example(operation: Json) -> None:
    """The example's values in the parameters, its body in each JSON or YAML body, its answer in the answer."""
    name = operation["operationId"]
    if name not in EXAMPLES:
        return
    example = EXAMPLES[name]
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in example.parameters:
            parameter["example"] = example.parameters[parameter["name"]]
    if example.body is not None:
        for media_type in operation["requestBody"]["content"].keys() & {JSON_TYPE, YAML_TYPE}:
            operation["requestBody"]["content"][media_type]["example"] = example.body
    for media_type, answered in operation["responses"]["200"]["content"].items():
        answer = answers().get(name if media_type == JSON_TYPE else f"{name} {media_type}")
        if answer is not None:
            answered["example"] = answer


def _add_body(operation: Json) -> None:
    name = operation["operationId"]
    if name in _BODIES:
        media_types = (JSON_TYPE,) if name in _JSON_ONLY else (JSON_TYPE, YAML_TYPE)
        content: Json = {media_type: {"schema": _BODIES[name]} for media_type in media_types}
        if name in _WITH_PROTOBUF:
            content[PROTOBUF_TYPE] = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": content}
    elif name == "restore":
        tar: Json = {"schema": {"type": "string", "format": "binary"}}
        operation["requestBody"] = {"required": True, "content": {TAR_TYPE: tar, BYTES_TYPE: tar}}


def _add_answers(operation: Json) -> None:
    name, responses = operation["operationId"], operation["responses"]
    if name in _IN_YAML:
        content = responses["200"]["content"]
        content[YAML_TYPE] = content[JSON_TYPE]
    if name in _CONDITIONAL:
        responses["304"] = {"description": "Nothing has changed since the etag of `If-None-Match`"}
    if any(parameter["name"] == "prefer" for parameter in operation.get("parameters", ())):
        responses["202"] = {**responses["200"], "description": "Done; nodes are pending still"}


def _add_problems(operation: Json, codes: tuple[int, ...]) -> None:
    for code in codes:
        operation["responses"][str(code)] = {
            "description": HTTPStatus(code).phrase,
            "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
        }
