"""What this feature adds to the description of the admin API."""

from __future__ import annotations

from typing import Any

from xds.admin.examples import ApiTexts, example
from xds.admin.request_bodies import text
from xds.services.core.instance import TAGS

_EDGE = {"group": "edge"}

Json = dict[str, Any]

SERVICE_NAME = "^[A-Za-z0-9_][A-Za-z0-9_.~:-]{0,254}$"
SERVICE: Json = {
    "type": "object",
    "description": "A service definition of Consul's agent. docs/services.md#registration has all fields",
    "properties": {
        "Name": text("The name of the service", pattern=SERVICE_NAME),
        "Address": text(
            "The IP address of the instance. By default it is the address that the request comes from",
            anyOf=[{"format": "ipv4"}, {"format": "ipv6"}],
        ),
        "Port": {"type": "integer", "minimum": 1, "maximum": 65535, "description": "The port of the instance"},
        "Tags": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": TAGS,
            "description": "The tags of the instance",
        },
        "Check": {
            "type": "object",
            "description": "A TTL check. Its status must be reported again within the TTL",
            "properties": {
                "TTL": text("A duration of at least one second, such as `10s`", pattern="^[1-9][0-9]{0,2}[smh]$")
            },
            "required": ["TTL"],
        },
    },
    "required": ["Name", "Port"],
}
BINDING: Json = {
    "type": "object",
    "description": "The instances that become the endpoints of the assignment",
    "properties": {
        "service": text("The name of the service"),
        "filter": text("Only instances that match this filter (docs/filter.md). Empty, the default: all"),
        "port": text("The name of the port. Empty, the default: the first port"),
        "datacenter": text("Only instances of this datacenter. Empty, the default: of all"),
        "only_passing": {
            "type": "boolean",
            "description": "Instances with a warning get no requests either. The default is false",
        },
    },
    "required": ["service"],
    "additionalProperties": False,
}

TEXTS = ApiTexts(
    package="xds.services",
    tags={
        "services": "Services of the catalog and their instances.",
        "registrations": "Instances that are registered over HTTP.",
        "sources": "Where instances come from, and whether each source works.",
        "bindings": "Assignments that follow a service of the catalog.",
    },
    parameters={
        "registrations id": "The id of the instance",
        "services name": "The name of the service",
        "sources name": "The name of the source, as in the settings; `registration` for instances registered over HTTP",
        "service": "The name of the service",
    },
    examples={
        "put_registration": example(
            {"Name": "web", "Address": "10.0.0.2", "Port": 8080, "Check": {"TTL": "5m"}}, id="web-1"
        ),
        "list_registrations": example(service="web"),
        "get_registration": example(id="web-1"),
        "begin_maintenance": example(id="web-1", reason="a new kernel"),
        "end_maintenance": example(id="web-1"),
        "list_services": example(),
        "get_service": example(name="web"),
        "list_sources": example(),
        "get_source": example(name="registration"),
        "accept_losses": example(name="registration", service="web"),
        "put_binding": example({"service": "web", "only_passing": True}, group="edge", assignment="web"),
        "list_bindings": example(**_EDGE),
        "get_binding": example(group="edge", assignment="web"),
        "delete_binding": example(group="edge", assignment="web"),
        "delete_registration": example(id="web-1"),
    },
)
