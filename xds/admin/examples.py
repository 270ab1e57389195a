"""An example of a request for each operation of the API. A test sends them to a server in this order.

The answers of the server are in ``example_answers.json``, which ``tests/admin/test_api_examples.py`` writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

Json = dict[str, Any]

_TYPE = "type.googleapis.com/envoy.config."
_ADDRESS: Json = {"socket_address": {"address": "10.0.0.1", "port_value": 8080}}
_CLUSTER: Json = {
    "@type": f"{_TYPE}cluster.v3.Cluster",
    "name": "web",
    "type": "EDS",
    "eds_cluster_config": {"eds_config": {"ads": {}, "resource_api_version": "V3"}},
    "common_lb_config": {"locality_weighted_lb_config": {}},
    "lrs_server": {"self": {}},
}
_ASSIGNMENT: Json = {
    "@type": f"{_TYPE}endpoint.v3.ClusterLoadAssignment",
    "cluster_name": "web",
    "endpoints": [
        {
            "locality": {"region": "eu", "zone": "eu-1"},
            "load_balancing_weight": 1,
            "lb_endpoints": [{"endpoint": {"address": _ADDRESS}}],
        }
    ],
}
_ROUTER: Json = {
    "Kind": "service-router",
    "Name": "web",
    "Routes": [{"Match": {"HTTP": {"PathPrefix": "/cart"}}, "Destination": {"Service": "cart"}}],
}
_PROTOCOL: Json = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}
_EDGE = {"group": "edge"}
_WEB = {"group": "edge", "cluster": "web"}
_NODE = {"id": "edge-1"}


@dataclass(frozen=True, slots=True)
class ApiExample:
    """The values of parameters by name, and the body. The answer is that of ``example_answers.json``, if it has one."""

    parameters: Mapping[str, str | int | bool] = field(default_factory=dict)
    body: object = None


def _of(body: object = None, /, **parameters: Any) -> ApiExample:
    return ApiExample(parameters, body)


EXAMPLES: Mapping[str, ApiExample] = {
    "validate": _of({"resources": [_CLUSTER, _ASSIGNMENT]}),
    "put_snapshot": _of({"resources": [_CLUSTER, _ASSIGNMENT]}, **_EDGE, message="add web"),
    "put_group": _of({"selector": 'node.metadata.role == "edge"', "priority": 10}, **_EDGE),
    "put_resource": _of({**_CLUSTER, "connect_timeout": "2s"}, **_EDGE, type="clusters", name="web"),
    "list_groups": _of(),
    "get_group": _of(**_EDGE),
    "get_snapshot": _of(**_EDGE),
    "list_resources": _of(**_EDGE, type="clusters"),
    "get_resource": _of(**_EDGE, type="clusters", name="web"),
    "list_revisions": _of(**_EDGE),
    "get_revision": _of(**_EDGE, revision=1),
    "get_difference": _of(**{**_EDGE, "revision": 2, "from": 1}),
    "get_progress": _of(**_EDGE, revision=2),
    "get_rollout": _of(**_EDGE),
    "get_undo": _of(**_EDGE),
    "rollback": _of({"to": 1}, **_EDGE, message="back to 1"),
    "list_nodes": _of(**_EDGE),
    "get_node": _of(**_NODE),
    "list_held": _of(**_NODE, type="clusters"),
    "explain_node": _of(**_NODE),
    "explain_document": _of({"id": "edge-2", "cluster": "web", "metadata": {"role": "edge"}}),
    "list_nacks": _of(since="1h", **_EDGE),
    "list_refused_streams": _of(limit=10),
    "list_certificates": _of(**_EDGE),
    "release_node": _of(**_NODE),
    "release_group": _of(**_EDGE),
    "get_bootstrap": _of(node_id="edge-1", cluster="edge"),
    "put_assignment": _of({"capacity": {"rates": [{"per_endpoint_rps": 100}]}}, **_WEB),
    "list_assignments": _of(**_EDGE),
    "get_assignment": _of(**_WEB),
    "get_assignment_history": _of(**_WEB),
    "delete_assignment": _of(**_WEB),
    "list_load": _of(window="60s"),
    "get_load": _of(cluster="web", by="locality"),
    "get_load_series": _of(cluster="web", step="10s"),
    "put_registration": _of({"Name": "web", "Address": "10.0.0.2", "Port": 8080, "Check": {"TTL": "5m"}}, id="web-1"),
    "list_registrations": _of(service="web"),
    "get_registration": _of(id="web-1"),
    "begin_maintenance": _of(id="web-1", reason="a new kernel"),
    "end_maintenance": _of(id="web-1"),
    "list_services": _of(),
    "get_service": _of(name="web"),
    "get_destination": _of(**{"authority": "web.default.svc.cluster.local:80", "token": '{"ns": "edge"}'}),
    "list_sources": _of(),
    "get_source": _of(name="registration"),
    "accept_losses": _of(name="registration", service="web"),
    "put_upstreams": _of({"upstreams": [{"service": "web", "bind_port": 9191}]}, group="shop"),
    "list_upstreams": _of(),
    "get_upstreams": _of(group="shop"),
    "delete_upstreams": _of(group="shop"),
    "put_binding": _of({"service": "web", "only_passing": True}, group="edge", assignment="web"),
    "list_bindings": _of(**_EDGE),
    "get_binding": _of(group="edge", assignment="web"),
    "delete_binding": _of(group="edge", assignment="web"),
    "put_endpoints": _of(_ASSIGNMENT, **_EDGE, name="web"),
    "patch_endpoints": _of({"put": [{"address": "10.0.0.3:8080"}], "remove": ["10.0.0.1:8080"]}, **_EDGE, name="web"),
    "list_endpoints": _of(**_EDGE),
    "get_endpoints": _of(**_EDGE, name="web"),
    "delete_endpoints": _of(**_EDGE, name="web"),
    "put_config_entries": _of([_PROTOCOL, _ROUTER], message="route the cart"),
    "put_config_entry": _of({"ConnectTimeout": "2s"}, kind="service-resolver", name="cart"),
    "list_config_entries": _of(kind="service-router"),
    "get_config_entry": _of(kind="service-router", name="web"),
    "list_config_entry_revisions": _of(),
    "get_config_entry_revision": _of(revision=1),
    "get_config_entry_difference": _of(**{"revision": 2, "from": 1}),
    "get_discovery_chain": _of(service="web"),
    "walk_chain": _of(service="web", path="/cart/1"),
    "get_config_entry_undo": _of(),
    "roll_back_config_entries": _of({"to": 1}),
    "delete_config_entry": _of(kind="service-router", name="web"),
    "transact": _of(
        {
            "changes": [{"group": "edge", "put": [{**_CLUSTER, "connect_timeout": "3s"}]}],
            "config_entries": {"put": [_ROUTER]},
        }
    ),
    "get_events": _of(kinds="push,nack"),
    "list_audit": _of(since="1h"),
    "check": _of(),
    "get_watch": _of(),
    "test_access": _of({"certificate": {"uris": ["spiffe://example.org/edge-1"]}, "node": {"id": "edge-1"}}),
    "get_version": _of(),
    "get_caller": _of(),
    "get_config": _of(),
    "get_schema": _of(type="clusters"),
    "get_store": _of(),
    "get_backup": _of(history=True),
    "restore": _of(replace=True),
    "disconnect_node": _of(**_NODE),
    "delete_registration": _of(id="web-1"),
    "delete_resource": _of(**_EDGE, type="endpoints", name="web", force=True),
    "delete_snapshot": _of(**_EDGE, allow_empty=True),
    "delete_group": _of(**_EDGE, allow_empty=True),
    "livez": _of(),
    "readyz": _of(),
    "metrics": _of(),
}


@cache
def answers() -> Mapping[str, object]:
    """The answer to each example, by operation; of a media type other than JSON, by operation and media type."""
    text = (files("xds.admin") / "example_answers.json").read_text("utf-8")
    found: dict[str, object] = json.loads(text)
    return found
