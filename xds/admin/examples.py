"""Examples of requests for the description of the API: those of the kernel, and what features add theirs with.

The answers of a server are in the ``example_answers.json`` of each package; ``tests/admin/test_api_examples.py`` writes
them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

Json = dict[str, Any]

ANSWERS = "example_answers.json"

_TYPE = "type.googleapis.com/envoy.config."
_ADDRESS: Json = {"socket_address": {"address": "10.0.0.1", "port_value": 8080}}
CLUSTER: Json = {
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
_EDGE = {"group": "edge"}
_NODE = {"id": "edge-1"}


@dataclass(frozen=True, slots=True)
class ApiExample:
    """The values of parameters by name, and the body. The answer is that of ``example_answers.json``, if it has one."""

    parameters: Mapping[str, str | int | bool] = field(default_factory=dict)
    body: object = None


def example(body: object = None, /, **parameters: Any) -> ApiExample:
    """An example with a body and values of parameters."""
    return ApiExample(parameters, body)


@dataclass(frozen=True, slots=True)
class ApiTexts:
    """What the kernel or a feature says in the description of the API.

    * ``package``: the package with its ``example_answers.json``;
    * ``tags``: the meaning of each tag;
    * ``parameters``: the meaning of each parameter in paths, by name; by tag and name where it means something else;
    * ``examples``: an example of a request for each operation.
    """

    package: str
    tags: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, ApiExample] = field(default_factory=dict)

    def answers(self) -> Mapping[str, object]:
        """The answer to each example, by operation; of a media type other than JSON, by operation and media type."""
        recorded: dict[str, object] = json.loads((files(self.package) / ANSWERS).read_text("utf-8"))
        return recorded


EXAMPLES: Mapping[str, ApiExample] = {
    "validate": example({"resources": [CLUSTER, _ASSIGNMENT]}),
    "put_snapshot": example({"resources": [CLUSTER, _ASSIGNMENT]}, **_EDGE, message="add web"),
    "put_group": example({"selector": 'node.metadata.role == "edge"', "priority": 10}, **_EDGE),
    "put_resource": example(
        {**CLUSTER, "connect_timeout": "2s"}, **_EDGE, type="clusters", name="web", rollout='{"waves": ["1", "50%"]}'
    ),
    "list_groups": example(),
    "get_group": example(**_EDGE),
    "get_snapshot": example(**_EDGE),
    "list_resources": example(**_EDGE, type="clusters"),
    "get_resource": example(**_EDGE, type="clusters", name="web"),
    "list_revisions": example(**_EDGE),
    "get_revision": example(**_EDGE, revision=1),
    "get_difference": example(**{**_EDGE, "revision": 2, "from": 1}),
    "get_progress": example(**_EDGE, revision=2),
    "get_rollout": example(**_EDGE),
    "list_rollouts": example(),
    "change_rollout": example({"action": "pause", "message": "looking at latencies"}, **_EDGE),
    "get_undo": example(**_EDGE),
    "rollback": example({"to": 1}, **_EDGE, message="back to 1"),
    "list_nodes": example(**_EDGE),
    "get_node": example(**_NODE),
    "get_timeline": example(**_NODE),
    "list_held": example(**_NODE, type="clusters"),
    "explain_node": example(**_NODE),
    "explain_document": example({"id": "edge-2", "cluster": "web", "metadata": {"role": "edge"}}),
    "list_nacks": example(since="1h", **_EDGE),
    "list_refused_streams": example(limit=10),
    "list_certificates": example(**_EDGE),
    "release_node": example(**_NODE),
    "release_group": example(**_EDGE),
    "get_bootstrap": example(node_id="edge-1", cluster="edge"),
    "list_load": example(window="60s"),
    "get_load": example(cluster="web", by="locality"),
    "get_load_series": example(cluster="web", step="10s"),
    "put_endpoints": example(_ASSIGNMENT, **_EDGE, name="web"),
    "patch_endpoints": example(
        {"put": [{"address": "10.0.0.3:8080"}], "remove": ["10.0.0.1:8080"]}, **_EDGE, name="web"
    ),
    "list_endpoints": example(**_EDGE),
    "get_endpoints": example(**_EDGE, name="web"),
    "delete_endpoints": example(**_EDGE, name="web"),
    "get_events": example(kinds="push,nack"),
    "list_audit": example(since="1h"),
    "check": example(),
    "list_members": example(),
    "get_watch": example(),
    "test_access": example({"certificate": {"uris": ["spiffe://example.org/edge-1"]}, "node": {"id": "edge-1"}}),
    "get_version": example(),
    "get_caller": example(),
    "get_config": example(),
    "get_schema": example(type="clusters"),
    "get_store": example(),
    "get_backup": example(history=True),
    "restore": example(replace=True),
    "disconnect_node": example(**_NODE),
    "delete_resource": example(**_EDGE, type="endpoints", name="web", force=True),
    "delete_snapshot": example(**_EDGE, allow_empty=True),
    "delete_group": example(**_EDGE, allow_empty=True),
    "livez": example(),
    "readyz": example(),
    "metrics": example(),
}
