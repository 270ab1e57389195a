"""Compiled discovery chains (docs/discovery-chain.md)."""

from __future__ import annotations

from hashlib import blake2b
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query, Request
from fastapi.responses import Response
from typing_extensions import TypedDict

from xds.api.answers import JSON_TYPE, answer_yaml, encode_json, etag_header, not_modified, unchanged
from xds.api.bodies import accepts_yaml
from xds.api.middleware import Segment
from xds.api.problem import RequestError
from xds.api.routing import api_router
from xds.api.services import Here
from xds.catalog.quantities import parse_duration
from xds.chain.chain_json import response_json
from xds.chain.request import Overrides
from xds.control.threads import run_sized

_ETAG_BYTES = 4
_SIZE_OF_NODE = 5  # writing one takes as long as so many resources

router = api_router("config entries")


class ChainAnswer(TypedDict):
    """``Chain`` is Consul's ``CompiledDiscoveryChain``."""

    Chain: dict[str, Any]


@router.get("/discovery-chains/{service}", response_model=ChainAnswer)
async def get_discovery_chain(
    here: Here,
    request: Request,
    service: Segment,
    datacenter: Annotated[str, Query(max_length=64, description="As it is seen from there")] = "",
    protocol: Annotated[str, Query(max_length=64, description="Instead of the protocol of the entries")] = "",
    connect_timeout: Annotated[str, Query(max_length=64, description="Such as `5s`, instead of the entries'")] = "",
    mesh_gateway_mode: Annotated[str, Query(max_length=64, description="`none`, `local` or `remote`")] = "",
) -> Response:
    """The compiled chain of any service; one without entries has the default chain. In Consul's JSON."""
    overrides = Overrides(protocol, _nanoseconds(connect_timeout), mesh_gateway_mode)
    entries = here.publisher.entries
    chain = entries.chain(service, overrides if overrides != Overrides() else None, datacenter)
    size = (len(chain.nodes) + len(chain.targets)) * _SIZE_OF_NODE
    document = await run_sized(response_json, chain, resources=size)
    body = await run_sized(encode_json, document, resources=size)
    etag = f"r{entries.chain_revision(service)}-{blake2b(body, digest_size=_ETAG_BYTES).hexdigest()}"
    if not_modified(request, etag):
        return unchanged(etag)
    if accepts_yaml(request):
        return await answer_yaml(request, document, etag_header(etag))
    return Response(body, headers=etag_header(etag), media_type=JSON_TYPE)


def _nanoseconds(text: str) -> int:
    """Raises ``RequestError`` (400)."""
    try:
        return parse_duration(text) if text else 0
    except ValueError:
        detail = f"connect_timeout is no duration such as 5s or 250ms: {text!r}"
        raise RequestError(HTTPStatus.BAD_REQUEST, detail) from None
