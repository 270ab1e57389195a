"""Routers of Consul's paths, and the query parameters that clients of Consul may send to them."""

from __future__ import annotations

import re

from fastapi import APIRouter, Depends, Request

from xds.admin.foreign_apis import ForeignApi
from xds.admin.parameters import check_known
from xds.admin.routing import authorize

CONSUL_API = ForeignApi(
    "/v1/", "x-consul-token", re.compile(r"(/v1/(?:config|agent/service|agent/check|catalog))(?:/|$)")
)
_REPEATED = frozenset({"node-meta", "tag"})
# What clients may send to the paths that are served here, from the documentation of Consul's API.
PARAMETERS = _REPEATED | {
    *("cached", "cas", "compile-dc", "connect", "consistent", "dc", "enable", "filter", "hash", "index", "leader"),
    *("merge-central-config", "near", "note", "ns", "partition", "passing", "peer", "pretty", "reason"),
    *("replace-existing-checks", "sg", "stale", "token", "wait"),
}


async def check_consul_request(request: Request) -> None:
    """A dependency of all of Consul's paths. Raises ``RequestError`` (403), ``MalformedError`` (400)."""
    authorize(request)
    check_known(request, PARAMETERS, _REPEATED)


def consul_router(prefix: str = "") -> APIRouter:
    """A router of Consul's paths, which the description leaves out. They check scopes and Consul's parameters."""
    checks = [Depends(check_consul_request)]
    return APIRouter(prefix=f"{CONSUL_API.prefix.rstrip('/')}{prefix}", dependencies=checks, include_in_schema=False)
