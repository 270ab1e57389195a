"""What this feature adds to the description of the admin API."""

from __future__ import annotations

from xds.admin.examples import ApiTexts, example

_EDGE = {"group": "edge"}

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
