"""Explanation of what a node is served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from xds.admin import operations
from xds.admin.answers import answer_model
from xds.admin.bodies import Body, ContentType, parse_one
from xds.admin.dependencies import Deps
from xds.admin.gathering import answer_of_holder, marks
from xds.admin.middleware import Segment
from xds.admin.models.copying import copied
from xds.admin.models.endpoints import AssignmentOwner
from xds.admin.models.explanations import EndpointSource, ExplainedResource, NodeExplanation
from xds.admin.models.groups import LoweredOrigin
from xds.admin.models.writing import document_of
from xds.admin.problem import RequestError
from xds.admin.request_bodies import NODE
from xds.admin.routing import api_router, with_body
from xds.codec.node_json import as_object, decode_node
from xds.live.owners import EndpointOrigin, Owner
from xds.model.errors import ValidationError, Violation
from xds.model.node import Node
from xds.model.resource_type import alias_of, type_url_of, v3_url
from xds.push.explain import ExplainQuery, Explanation
from xds.store.document_keys import Key

router = api_router("fleet")

NODE_BYTES = 1 << 20
ENDPOINTS = "endpoints"
INSTANCES_SHOWN = 1_000


Type = Annotated[str, Query(description="Only this type: an alias or a type URL; empty: all types")]
Name = Annotated[str, Query(description="Only this resource; needs `type` (otherwise 400). Empty: all resources")]


@router.serve(operations.EXPLAIN_NODE)
async def explain_node(deps: Deps, request: Request, id: Segment, type: Type = "", name: Name = "") -> Response:
    """Explain a node: the groups that were tried, and what it gets for each resource that it subscribes to.

    It must be connected or have disconnected recently.
    """
    known = deps.fleet.node(id)
    held = await answer_of_holder(deps, request, id, known)
    if held.relayed is not None:
        return held.relayed
    explanation = await deps.publisher.views.explain(id, _query(type, name))
    principals = known.principals if known is not None else ()
    answers = [answer for feature in deps.features for answer in feature.stream_answers(id).values()]
    explained = NodeExplanation.from_domain(explanation, principals, _resources(deps, explanation, name), answers)
    return JSONResponse({**document_of(explained), **marks(held.partial)})


@router.serve(operations.EXPLAIN_DOCUMENT)
@with_body(NODE, "The node, as JSON or YAML")
async def explain_document(
    deps: Deps, body: Body, content_type: ContentType = "", type: Type = "", name: Name = ""
) -> Response:
    """Explain a node that need not exist: the groups that are tried, and what it would get."""
    node = await _node(body, content_type)
    explanation = await deps.publisher.views.explain_node(node, _query(type, name))
    return answer_model(NodeExplanation.from_domain(explanation, (), _resources(deps, explanation, name)))


def _resources(deps: Deps, explanation: Explanation, name: str) -> Iterator[ExplainedResource]:
    """What the node gets, with the origins of lowered resources, and of endpoints that follow services."""
    group = explanation.chosen.match.group if explanation.chosen is not None else ""
    content = deps.publisher.derived.content(group)
    for answer in explanation.resources:
        type_url = type_url_of(answer.type)
        is_assignment = alias_of(type_url) == ENDPOINTS
        key = (v3_url(type_url), answer.name)
        instances = _instances(deps, (group, answer.name), answer.owner)
        yield ExplainedResource(
            type=answer.type,
            name=answer.name,
            answer=answer.status.value,
            detail=answer.detail,
            version=answer.version,
            pushed_version=answer.pushed_version,
            owner=AssignmentOwner.from_domain(answer.owner) if answer.version and is_assignment else None,
            sources=dict(Counter(one.source for one in instances)) if instances is not None else None,
            instances=_shown(instances) if instances is not None and name else None,
            lowered=LoweredOrigin.find(content, key) if answer.version else None,
        )


def _shown(instances: Sequence[EndpointOrigin]) -> tuple[EndpointSource, ...]:
    return tuple(copied(EndpointSource, one) for one in instances[:INSTANCES_SHOWN])


def _instances(deps: Deps, key: Key, owner: Owner | None) -> Sequence[EndpointOrigin] | None:
    """The instances that an assignment follows; None for one that follows no service."""
    if owner is None:
        return None
    origins = (feature.endpoint_origins(key, owner.kind) for feature in deps.features)
    return next((each for each in origins if each is not None), None)


def _query(type: str, name: str) -> ExplainQuery:
    if name and not type:
        raise RequestError(HTTPStatus.BAD_REQUEST, "a name is unique only within its type: give the type, too")
    return ExplainQuery(type_url_of(type) if type else "", name)


async def _node(body: bytes, content_type: str) -> Node:
    """The node in the body. Raises ``ValidationError``, ``RequestError``."""
    value = await parse_one(body, content_type, "a node", NODE_BYTES)
    try:
        document = as_object(value, "the node")
        return decode_node(as_object(document["node"], "node") if "node" in document else document)
    except ValueError as error:
        raise ValidationError([Violation("invalid_node", str(error))]) from None
