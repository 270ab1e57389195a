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
_BOUND = {"type": "number", "minimum": 0, "maximum": 86400}
PLAN: Json = {
    "type": ["object", "string", "null"],
    "description": "The plan of a careful rollout (docs/rollouts.md); a text is that of `waves`, as `1,10%,50%`",
    "properties": {
        "waves": {
            "type": ["array", "string"],
            "items": {"type": "string"},
            "description": 'The sizes of the waves, rising: numbers of nodes, then shares, as `["1", "10%", "50%"]`. '
            "The last wave is always all nodes",
        },
        "selector": text("A filter (docs/filter.md): the nodes that it matches are a wave before the others"),
        "nodes": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 1000,
            "description": "Ids of nodes: they are a wave before the others, with those of `selector`",
        },
        "hold_s": {**_BOUND, "description": "Seconds that all nodes of a wave must have ACKed before the next one"},
        "timeout_s": {**_BOUND, "description": "Seconds that a wave may take until all its nodes have ACKed"},
        "max_nacks": {"type": "integer", "minimum": 0, "description": "More nodes that NACK are a failure"},
        "max_errors": {
            "type": ["number", "string", "null"],
            "description": "A failed share of the wave's requests, above that of the others, that is no failure yet, "
            "such as `0.02` or `2%`. Null: 2 % if the nodes report load, else no bound",
        },
        "on_failure": {"enum": ["rollback", "hold"], "description": "What a failed rollout does"},
    },
    "additionalProperties": False,
}
ROLLOUT: Json = {
    **PLAN,
    "description": "How the push is rolled out: a plan, or `all_at_once`. What it does not name is that of the group's "
    "setting `rollout`, or the default. Left out: by the setting; without one, to all nodes at once",
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
        "rollout": ROLLOUT,
        "retry": {"type": "boolean", "description": "Push again what a rollout has taken back; otherwise 409"},
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
        "rollout": {
            **PLAN,
            "description": "The plan by which every push of configuration to the group is rolled out. "
            "Null: pushes go to all nodes at once",
        },
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
