"""The JSON schemas of request bodies that the codec reads, for the OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xds.codec.load_assignment import PRIORITY_LIMIT, WEIGHT_SUM_LIMIT

Json = dict[str, Any]

_SERVICE_NAME = "^[A-Za-z0-9_][A-Za-z0-9_.~:-]{0,254}$"


def _text(description: str, **more: object) -> Json:
    return {"type": "string", "description": description, **more}


def _seconds(description: str) -> Json:
    return {"type": ["number", "null"], "minimum": 0, "maximum": 86400, "description": description}


_RESOURCE: Json = {
    "type": "object",
    "description": "A resource as protobuf JSON with its `@type`; `GET /schema/{type}` has its JSON Schema",
}
_PUSH: Json = {
    "type": "object",
    "description": "All resources of a group",
    "properties": {
        "resources": {"type": "array", "items": _RESOURCE, "description": "The resources, of any types"},
        "version": _text("The `version_info` of all types. By default it is the revision"),
        "versions": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "The `version_info` of single types, by type alias. It takes precedence over `version`",
        },
    },
    "required": ["resources"],
}
_NODE: Json = {
    "type": "object",
    "description": "A node as Envoy sends it (`envoy.config.core.v3.Node`), as protobuf JSON",
    "properties": {"id": _text("The id of the node")},
}
_NAMES: Json = {"type": "array", "items": {"type": "string"}, "maxItems": 100}
_ACCESS_TEST: Json = {
    "type": "object",
    "description": "A node, and the credential that it connects with: a certificate, a token, or both",
    "properties": {
        "certificate": {
            "type": "object",
            "description": "The names of a client certificate",
            "properties": {
                "uris": {**_NAMES, "description": "The URIs among its subject alternative names"},
                "dns": {**_NAMES, "description": "The DNS names among its subject alternative names"},
                "cn": _text("Its common name"),
            },
            "additionalProperties": False,
        },
        "token": _text("The name of a token of the settings, not its secret value"),
        "node": {
            **_NODE,
            "properties": {"id": _text("The id of the node", minLength=1)},
            "required": ["id"],
        },
    },
    "required": ["node"],
    "additionalProperties": False,
}
_SETTINGS: Json = {
    "type": "object",
    "description": "The settings of a group. A setting that is left out is reset to its default",
    "properties": {
        "selector": _text("The filter by which the group takes nodes (docs/filter.md). Empty: nodes join by name only"),
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
_ENTRY: Json = {"type": "object", "description": "A config entry as Consul writes it (docs/discovery-chain.md)"}
_SERVICE: Json = {
    "type": "object",
    "description": "A service definition of Consul's agent. docs/services.md#registration has all fields",
    "properties": {
        "Name": _text("The name of the service", pattern=_SERVICE_NAME),
        "Address": _text(
            "The IP address of the instance. By default it is the address that the request comes from",
            anyOf=[{"format": "ipv4"}, {"format": "ipv6"}],
        ),
        "Port": {"type": "integer", "minimum": 1, "maximum": 65535, "description": "The port of the instance"},
        "Tags": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 64,
            "description": "The tags of the instance",
        },
        "Check": {
            "type": "object",
            "description": "A TTL check. Its status must be reported again within the TTL",
            "properties": {
                "TTL": _text("A duration of at least one second, such as `10s`", pattern="^[1-9][0-9]{0,2}[smh]$")
            },
            "required": ["TTL"],
        },
    },
    "required": ["Name", "Port"],
}
_ASSIGNMENT: Json = {
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
_PATCH: Json = {
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
_UPSTREAMS: Json = {
    "type": "object",
    "description": "The services that the proxies of a group call. docs/mesh.md has all fields",
    "properties": {
        "upstreams": {
            "type": "array",
            "description": "The upstreams",
            "items": {
                "type": "object",
                "properties": {
                    "service": _text("The name of the service", pattern=_SERVICE_NAME),
                    "bind_port": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": 65535,
                        "description": "The port at which proxies accept connections for the service. "
                        "0, the default: gRPC clients without a proxy call it",
                    },
                },
                "required": ["service"],
            },
        }
    },
    "required": ["upstreams"],
}
_BINDING: Json = {
    "type": "object",
    "description": "The instances that become the endpoints of the assignment",
    "properties": {
        "service": _text("The name of the service"),
        "filter": _text("Only instances that match this filter (docs/filter.md). Empty, the default: all"),
        "port": _text("The name of the port. Empty, the default: the first port"),
        "datacenter": _text("Only instances of this datacenter. Empty, the default: of all"),
        "only_passing": {
            "type": "boolean",
            "description": "Instances with a warning get no requests either. The default is false",
        },
    },
    "required": ["service"],
    "additionalProperties": False,
}

# By operation id.
BODIES: Mapping[str, Json] = {
    "put_registration": _SERVICE,
    "put_group": _SETTINGS,
    "put_config_entry": _ENTRY,
    "put_config_entries": {"oneOf": [_ENTRY, {"type": "array", "items": _ENTRY}]},
    "put_upstreams": _UPSTREAMS,
    "put_binding": _BINDING,
    "put_endpoints": _ASSIGNMENT,
    "patch_endpoints": _PATCH,
    "rollback": {"$ref": "#/components/schemas/RollbackRequest"},
    "put_snapshot": _PUSH,
    "validate": _PUSH,
    "put_resource": _RESOURCE,
    "explain_document": _NODE,
    "test_access": _ACCESS_TEST,
}
TEXTS: Mapping[str, str] = {
    "put_registration": "The service definition, as JSON or YAML",
    "put_group": "The settings, as JSON or YAML",
    "put_config_entry": "The entry, as JSON or YAML. `Kind` and `Name` may be left out",
    "put_config_entries": "One entry or a list, as JSON or YAML; or several YAML documents",
    "put_upstreams": "The upstreams document, as JSON or YAML",
    "put_binding": "The binding, as JSON or YAML",
    "put_endpoints": "The assignment, as JSON or YAML",
    "patch_endpoints": "The changes, as JSON or YAML",
    "rollback": "The revision to go back to, as JSON",
    "put_snapshot": "The resources, as JSON, as YAML, or as a serialized DiscoveryResponse",
    "validate": "The resources, as JSON, as YAML, or as a serialized DiscoveryResponse",
    "put_resource": "The resource, as JSON, as YAML, or as its serialized message. `@type` may be left out",
    "explain_document": "The node, as JSON or YAML",
    "test_access": "The node and its credential, as JSON or YAML",
    "restore": "The tar archive of a backup",
}
WITH_PROTOBUF = frozenset({"put_snapshot", "validate", "put_resource"})
JSON_ONLY = frozenset({"rollback"})
