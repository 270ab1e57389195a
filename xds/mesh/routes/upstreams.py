"""Upstreams of groups: the services that the proxies of a group call, lowered to resources (docs/mesh.md)."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Query, Request
from fastapi.responses import Response

from xds.access.tokens import ADMIN
from xds.admin.answers import Paging, answer_json, answer_model, answer_yaml, etag_header
from xds.admin.bodies import Body, ContentType, accepts_yaml, parse_one
from xds.admin.dependencies import Deps
from xds.admin.middleware import Segment
from xds.admin.models.writing import document_of
from xds.admin.push import (
    AllowEmpty,
    DryRun,
    Message,
    PushContext,
    Strict,
    Wait,
    etag_precondition,
    preference_headers,
    status_of,
    wait_for_outcome,
)
from xds.admin.routing import Calling, api_router, demand, with_body
from xds.mesh import operations
from xds.mesh.core.lower.upstreams import read_upstreams
from xds.mesh.lowered_groups import etag_of
from xds.mesh.models.upstreams import GroupUpstreams, UpstreamsSummary
from xds.mesh.served import served
from xds.mesh.texts import UPSTREAMS
from xds.push.content import type_label
from xds.push.groups import GroupSettings
from xds.push.request import PushOptions, PushResult
from xds.store.etags import NO_ETAG
from xds.tasks.threads import run_for_caller

router = api_router("upstreams")

DOCUMENT_BYTES = 4 << 20


Expected = Annotated[str, Depends(etag_precondition("u", "succeed only if the group has no upstreams"))]


async def writing_options(
    by: Calling,
    etag: Expected,
    dry_run: DryRun = False,
    allow_empty: AllowEmpty = False,
    message: Message = "",
    strict: Strict = False,
) -> PushOptions:
    """The options of a write. A repeated write of the same document changes nothing, so it needs no key."""
    return PushOptions("", None, by.meta(message), dry_run, allow_empty, etag, strict, by.peer)


Writing = Annotated[PushOptions, Depends(writing_options)]


@router.serve(operations.LIST_UPSTREAMS)
async def list_upstreams(deps: Deps, request: Request, paging: Paging) -> Response:
    """All groups with upstreams, by name."""
    lowered, counts = served(deps).lowered, deps.fleet.nodes_by_group()

    def item(group: str) -> UpstreamsSummary:
        made, selector = lowered.get(group), deps.publisher.settings.get(group).selector
        return UpstreamsSummary.from_domain(made, etag_of(made.document), counts[group], selector, type_label)

    page = paging.render(paging.items_after(lowered), lambda group: group, item)
    return await answer_json(request, document_of({**page, "limit": lowered.limit}))


@router.serve(operations.GET_UPSTREAMS)
async def get_upstreams(deps: Deps, request: Request, group: Segment) -> Response:
    """The upstreams of a group, and what they are lowered to."""
    made, selector = served(deps).lowered.get(group), deps.publisher.settings.get(group).selector
    nodes = len(deps.fleet.connected(group))
    upstreams = GroupUpstreams.from_domain(made, etag_of(made.document), nodes, selector, type_label)
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, document_of(upstreams), etag_header(upstreams.etag))


@router.serve(operations.PUT_UPSTREAMS)
@with_body(UPSTREAMS, "The upstreams document, as JSON or YAML")
async def put_upstreams(
    deps: Deps,
    request: Request,
    group: Segment,
    body: Body,
    options: Writing,
    wait_s: Wait,
    content_type: ContentType = "",
    selector: Annotated[
        str | None,
        Query(
            max_length=16_384,
            description="Also set the selector of the group, which needs the scope `admin`. By default it stays",
        ),
    ] = None,
) -> Response:
    """Set all upstreams of a group, which is created if it does not exist. Pushed resources stay.

    What the upstreams are lowered to becomes part of the snapshot of the group at once, and follows the config entries
    from then on.
    """
    document = await parse_one(body, content_type, "upstreams", DOCUMENT_BYTES)
    upstreams = await run_for_caller(read_upstreams, document)
    settings: GroupSettings | None = None
    if selector is not None:
        demand(request, ADMIN)  # it decides over the nodes of other groups
        settings = replace(deps.publisher.settings.get(group), selector=selector)
    result = await served(deps).write_upstreams(group, upstreams, options, settings)
    return await _answer(PushContext(deps, options, wait_s, request), result)


@router.serve(operations.DELETE_UPSTREAMS)
async def delete_upstreams(deps: Deps, request: Request, group: Segment, options: Writing, wait_s: Wait) -> Response:
    """Delete the upstreams of a group, and what they are lowered to. Pushed resources stay."""
    result = await served(deps).write_upstreams(group, None, options)
    return await _answer(PushContext(deps, options, wait_s, request), result)


async def _answer(pushing: PushContext, result: PushResult) -> Response:
    """The answer to a push. The etag in the header is that of the document."""
    outcome, pending = await wait_for_outcome(pushing, result)
    etag = served(pushing.deps).lowered.etag(result.group)
    tag = etag_header(etag) if etag != NO_ETAG and not pushing.options.dry_run else {}
    return answer_model(outcome, {**tag, **preference_headers(pushing)}, status_of(pending))
