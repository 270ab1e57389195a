"""What this feature adds to the description of the admin API."""

from __future__ import annotations

from typing import Any

from xds.admin.examples import CLUSTER, ApiTexts, example
from xds.admin.request_bodies import text
from xds.services.texts import SERVICE_NAME

Json = dict[str, Any]

_ROUTER: Json = {
    "Kind": "service-router",
    "Name": "web",
    "Routes": [{"Match": {"HTTP": {"PathPrefix": "/cart"}}, "Destination": {"Service": "cart"}}],
}
_PROTOCOL: Json = {"Kind": "proxy-defaults", "Name": "global", "Config": {"protocol": "http"}}

ENTRY: Json = {"type": "object", "description": "A config entry as Consul writes it (docs/discovery-chain.md)"}
ENTRIES: Json = {"oneOf": [ENTRY, {"type": "array", "items": ENTRY}]}
UPSTREAMS: Json = {
    "type": "object",
    "description": "The services that the proxies of a group call. docs/mesh.md has all fields",
    "properties": {
        "upstreams": {
            "type": "array",
            "description": "The upstreams",
            "items": {
                "type": "object",
                "properties": {
                    "service": text("The name of the service", pattern=SERVICE_NAME),
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

TEXTS = ApiTexts(
    package="xds.mesh",
    tags={
        "config entries": "Config entries as in Consul, and the discovery chains compiled from them.",
        "upstreams": "Services that the proxies of a group call, lowered to resources.",
    },
    parameters={
        "kind": "The kind of the config entry, such as `service-router`",
        "config entries name": "The name of the config entry",
    },
    examples={
        "put_upstreams": example({"upstreams": [{"service": "web", "bind_port": 9191}]}, group="shop"),
        "list_upstreams": example(),
        "get_upstreams": example(group="shop"),
        "delete_upstreams": example(group="shop"),
        "put_config_entries": example([_PROTOCOL, _ROUTER], message="route the cart"),
        "put_config_entry": example({"ConnectTimeout": "2s"}, kind="service-resolver", name="cart"),
        "list_config_entries": example(kind="service-router"),
        "get_config_entry": example(kind="service-router", name="web"),
        "list_config_entry_revisions": example(),
        "get_config_entry_revision": example(revision=1),
        "get_config_entry_difference": example(**{"revision": 2, "from": 1}),
        "get_discovery_chain": example(service="web"),
        "walk_chain": example(service="web", path="/cart/1"),
        "get_config_entry_undo": example(),
        "roll_back_config_entries": example({"to": 1}),
        "delete_config_entry": example(kind="service-router", name="web"),
        "transact": example(
            {
                "changes": [{"group": "edge", "put": [{**CLUSTER, "connect_timeout": "3s"}]}],
                "config_entries": {"put": [_ROUTER]},
            }
        ),
    },
)
