"""The JSON schemas of request bodies that routes read by themselves, for the OpenAPI description."""

from __future__ import annotations

from typing import Any

from xds.admin.answers import JSON_TYPE, YAML_TYPE
from xds.codec.load_assignment import PRIORITY_LIMIT, WEIGHT_SUM_LIMIT

Json = dict[str, Any]

PUSHED_TYPES = (JSON_TYPE, YAML_TYPE, "application/x-protobuf")


def text(description: str, **more: object) -> Json:
    """The schema of a text."""
    return {"type": "string", "description": description, **more}


def _seconds(description: str) -> Json:
    return {"type": ["number", "null"], "minimum": 0, "maximum": 86400, "description": description}


RESOURCE: Json = {
    "type": "object",
    "description": "A resource as protobuf JSON with its `@type`; `GET /schema/{type}` has its JSON Schema",
}
PUSH: Json = {
    "type": "object",
    "description": "All resources of a group",
    "properties": {
        "resources": {"type": "array", "items": RESOURCE, "description": "The resources, of any types"},
        "version": text("The `version_info` of all types. By default it is the revision"),
        "versions": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "The `version_info` of single types, by type alias. It takes precedence over `version`",
        },
    },
    "required": ["resources"],
}
NODE: Json = {
    "type": "object",
    "description": "A node as Envoy sends it (`envoy.config.core.v3.Node`), as protobuf JSON",
    "properties": {"id": text("The id of the node")},
}
_NAMES: Json = {"type": "array", "items": {"type": "string"}, "maxItems": 100}
ACCESS_TEST: Json = {
    "type": "object",
    "description": "A node, and the credential that it connects with: a certificate, a token, or both",
    "properties": {
        "certificate": {
            "type": "object",
            "description": "The names of a client certificate",
            "properties": {
                "uris": {**_NAMES, "description": "The URIs among its subject alternative names"},
                "dns": {**_NAMES, "description": "The DNS names among its subject alternative names"},
                "cn": text("Its common name"),
            },
            "additionalProperties": False,
        },
        "token": text("The name of a token of the settings, not its secret value"),
        "node": {
            **NODE,
            "properties": {"id": text("The id of the node", minLength=1)},
            "required": ["id"],
        },
    },
    "required": ["node"],
    "additionalProperties": False,
}
SETTINGS: Json = {
    "type": "object",
    "description": "The settings of a group. A setting that is left out is reset to its default",
    "properties": {
        "selector": text("The filter by which the group takes nodes (docs/filter.md). Empty: nodes join by name only"),
        "priority": {
            "type": "integer",
            "minimum": -1_000_000,
            "maximum": 1_000_000,
            "description": "Selectors of groups with a higher priority are tried first. The default is 0",
        },
        "on_nack": {
            "enum": ["", "hold", "proceed"],
            "description": "What a rejected cluster does to the listeners and routes that refer to it: `hold` keeps "
            "them back until the cluster is repaired, `proceed` sends them. Empty: `server.on_nack` applies",
        },
        "removal_delay_s": _seconds(
            "Seconds that nodes keep removed resources. Null: the setting `order.removal_delay_s` of the server applies"
        ),
        "listener_drain_s": _seconds(
            "Seconds that nodes keep removed resources in addition, if the push changed or removed a listener. "
            "Null: the setting `order.listener_drain_s` of the server applies"
        ),
    },
    "additionalProperties": False,
}
ASSIGNMENT: Json = {
    "type": "object",
    "description": "A ClusterLoadAssignment as protobuf JSON; `GET /schema/endpoints` has its JSON Schema",
}


def _list(description: str, items: Json) -> Json:
    return {"type": "array", "description": description, "items": items}


def _object(required: str, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}


_PARTS = {"region": "The region", "zone": "The zone", "sub_zone": "The sub-zone"}
_OF_LOCALITY: Json = {
    "type": "object",
    "description": "The locality. By default the only one of the assignment",
    "properties": {part: {"type": "string", "description": text} for part, text in _PARTS.items()},
    "additionalProperties": False,
}
_WEIGHT: Json = {"type": "integer", "minimum": 1, "maximum": WEIGHT_SUM_LIMIT, "description": "The weight"}
_PRIORITY: Json = {
    "type": "integer",
    "minimum": 0,
    "maximum": PRIORITY_LIMIT,
    "description": "The priority of the locality; 0 is the first",
}
PATCH: Json = {
    "type": "object",
    "description": "Changes of the endpoints of an assignment",
    "properties": {
        "put": _list(
            "Endpoints to add, or to change by their address. What is left out stays as it is",
            _object(
                "address",
                address={"type": "string", "description": "The address, such as `10.0.0.1:80` or `[::1]:80`"},
                weight=_WEIGHT,
                health={"type": "string", "description": "The health status as in Envoy's API, such as `UNHEALTHY`"},
                locality=_OF_LOCALITY,
                priority=_PRIORITY,
                hostname={"type": "string", "description": "The host name of the endpoint"},
            ),
        ),
        "remove": _list("The addresses of endpoints to remove", {"type": "string"}),
        "localities": _list(
            "Weights of localities", _object("weight", locality=_OF_LOCALITY, priority=_PRIORITY, weight=_WEIGHT)
        ),
    },
    "additionalProperties": False,
}
