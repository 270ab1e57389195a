"""The JSON schemas of request bodies that routes read by themselves, for the OpenAPI description."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from xds.admin.answers import JSON_TYPE, YAML_TYPE
from xds.codec.load_assignment import PRIORITY_LIMIT, WEIGHT_SUM_LIMIT

Json = dict[str, Any]

PUSHED_TYPES = (JSON_TYPE, YAML_TYPE, "application/x-protobuf")


def text(description: str, **more: object) -> Json:
    """The schema of a text."""
    return {"type": "string", "description": description, **more}


def _integer(minimum: int, maximum: int | None, description: str) -> Json:
    above = {} if maximum is None else {"maximum": maximum}
    return {"type": "integer", "minimum": minimum, **above, "description": description}


def _seconds(description: str, type_: str | list[str] = "number") -> Json:
    return {"type": type_, "minimum": 0, "maximum": 86400, "description": description}


def _array(description: str, items: Json | None = None, **more: object) -> Json:
    return {"type": "array", "items": items or {"type": "string"}, **more, "description": description}


def _open(description: str, **properties: Json) -> Json:
    return {"type": "object", "description": description, **({"properties": properties} if properties else {})}


def _closed(description: str, required: Collection[str] = (), /, **properties: Json) -> Json:
    needs = {"required": list(required)} if required else {}
    return {**_open(description, **properties), **needs, "additionalProperties": False}


RESOURCE = _open("A resource as protobuf JSON with its `@type`; `GET /schema/{type}` has its JSON Schema")
PLAN: Json = {
    **_closed(
        "The plan of a careful rollout (docs/rollouts.md); a text is that of `waves`, as `1,10%,50%`",
        waves=_array(
            'The sizes of the waves, rising: numbers of nodes, then shares, as `["1", "10%", "50%"]`. '
            "The last wave is always all nodes",
            type=["array", "string"],
        ),
        selector=text("A filter (docs/filter.md): the nodes that it matches are a wave before the others"),
        nodes=_array("Ids of nodes: they are a wave before the others, with those of `selector`", maxItems=1000),
        hold_s=_seconds("Seconds that all nodes of a wave must have ACKed before the next one"),
        timeout_s=_seconds("Seconds that a wave may take until all its nodes have ACKed"),
        max_nacks=_integer(0, None, "More nodes that NACK are a failure"),
        max_errors={
            "type": ["number", "string", "null"],
            "description": "A failed share of the wave's requests, above that of the others, that is no failure yet, "
            "such as `0.02` or `2%`. Null: 2 % if the nodes report load, else no bound",
        },
        on_failure={"enum": ["rollback", "hold"], "description": "What a failed rollout does"},
    ),
    "type": ["object", "string", "null"],
}
ROLLOUT: Json = {
    **PLAN,
    "description": "How the push is rolled out: a plan, or `all_at_once`. What it does not name is that of the group's "
    "setting `rollout`, or the default. Left out: by the setting; without one, to all nodes at once",
}
PUSH: Json = {
    **_open(
        "All resources of a group",
        resources=_array("The resources, of any types", RESOURCE),
        version=text("The `version_info` of all types. By default it is the revision"),
        versions={
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "The `version_info` of single types, by type alias. It takes precedence over `version`",
        },
        rollout=ROLLOUT,
        retry={"type": "boolean", "description": "Push again what a rollout has taken back; otherwise 409"},
    ),
    "required": ["resources"],
}
_NODE = "A node as Envoy sends it (`envoy.config.core.v3.Node`), as protobuf JSON"
NODE = _open(_NODE, id=text("The id of the node"))
ACCESS_TEST = _closed(
    "A node, and the credential that it connects with: a certificate, a token, or both",
    ["node"],
    certificate=_closed(
        "The names of a client certificate",
        uris=_array("The URIs among its subject alternative names", maxItems=100),
        dns=_array("The DNS names among its subject alternative names", maxItems=100),
        cn=text("Its common name"),
    ),
    token=text("The name of a token of the settings, not its secret value"),
    node={**_open(_NODE, id=text("The id of the node", minLength=1)), "required": ["id"]},
)
SETTINGS = _closed(
    "The settings of a group. A setting that is left out is reset to its default",
    selector=text("The filter by which the group takes nodes (docs/filter.md). Empty: nodes join by name only"),
    priority=_integer(
        -1_000_000, 1_000_000, "Selectors of groups with a higher priority are tried first. The default is 0"
    ),
    on_nack={
        "enum": ["", "hold", "proceed"],
        "description": "What a rejected cluster does to the listeners and routes that refer to it: `hold` keeps "
        "them back until the cluster is repaired, `proceed` sends them. Empty: `server.on_nack` applies",
    },
    removal_delay_s=_seconds(
        "Seconds that nodes keep removed resources. Null: the setting `order.removal_delay_s` of the server applies",
        ["number", "null"],
    ),
    listener_drain_s=_seconds(
        "Seconds that nodes keep removed resources in addition, if the push changed or removed a listener. "
        "Null: the setting `order.listener_drain_s` of the server applies",
        ["number", "null"],
    ),
    rollout={
        **PLAN,
        "description": "The plan by which every push of configuration to the group is rolled out. "
        "Null: pushes go to all nodes at once",
    },
)
ASSIGNMENT = _open("A ClusterLoadAssignment as protobuf JSON; `GET /schema/endpoints` has its JSON Schema")

_OF_LOCALITY = _closed(
    "The locality. By default the only one of the assignment",
    region=text("The region"),
    zone=text("The zone"),
    sub_zone=text("The sub-zone"),
)
_WEIGHT = _integer(1, WEIGHT_SUM_LIMIT, "The weight")
_PRIORITY = _integer(0, PRIORITY_LIMIT, "The priority of the locality; 0 is the first")
PATCH = _closed(
    "Changes of the endpoints of an assignment",
    put=_array(
        "Endpoints to add, or to change by their address. What is left out stays as it is",
        {
            "type": "object",
            "properties": {
                "address": text("The address, such as `10.0.0.1:80` or `[::1]:80`"),
                "weight": _WEIGHT,
                "health": text("The health status as in Envoy's API, such as `UNHEALTHY`"),
                "locality": _OF_LOCALITY,
                "priority": _PRIORITY,
                "hostname": text("The host name of the endpoint"),
            },
            "required": ["address"],
            "additionalProperties": False,
        },
    ),
    remove=_array("The addresses of endpoints to remove"),
    localities=_array(
        "Weights of localities",
        {
            "type": "object",
            "properties": {"locality": _OF_LOCALITY, "priority": _PRIORITY, "weight": _WEIGHT},
            "required": ["weight"],
            "additionalProperties": False,
        },
    ),
)
