"""Explanation of what a node is served."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, NotRequired

from fastapi import Query
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

from xds.api.bodies import Body, ContentType, parse_one
from xds.api.middleware import Segment
from xds.api.problem import RequestError
from xds.api.routing import api_router, needs
from xds.api.services import Here
from xds.api.shapes.assignments import locality_item
from xds.api.shapes.endpoints import OwnerItem, owner_item
from xds.api.shapes.values import LocalityItem
from xds.codec.node_json import as_object, decode_node
from xds.control.explain import ExplainQuery, Explanation, ResourceDelivery
from xds.control.tokens import READ
from xds.model.errors import ValidationError, Violation
from xds.model.node import Node
from xds.model.resource_type import alias_of, type_url_of
from xds.protocol.membership import SELECTOR, GroupCandidate

router = api_router("fleet")

NODE_BYTES = 1 << 20
ENDPOINTS = "endpoints"


class ExplainedNode(TypedDict):
    """``principals`` are the authenticated principals of its connections."""

    id: str
    cluster: str
    locality: LocalityItem
    user_agent: str
    connected: bool
    principals: list[str]


class GroupCandidateItem(TypedDict):
    """``selector`` and ``priority`` are present if ``rule`` is ``selector``."""

    group: str
    rule: str
    selector: NotRequired[str]
    priority: NotRequired[int]
    matched: bool
    detail: str


class AnswerItem(TypedDict):
    """``answer``: served, sent, pending, refused, held, lingering, missing, unexpressed, not_subscribed or no_group.

    ``pushed_version`` is present if live endpoints or a traffic assignment are laid over the pushed resource. An
    assignment has its ``owner``.
    """

    type: str
    name: str
    answer: str
    detail: str
    version: NotRequired[str]
    pushed_version: NotRequired[str]
    owner: NotRequired[OwnerItem]


class ExplanationItem(TypedDict):
    """``candidates`` in the order of matching: the first that matched is the node's group.

    ``group``, ``rule`` and ``revision`` are null if no group matches. ``overlay`` is the locality whose traffic
    assignment the node is served, null if it is served the pushed resources. ``resources_total`` also counts resources
    that ``resources`` leaves out because there are many.
    """

    node: ExplainedNode
    group: str | None
    rule: str | None
    revision: int | None
    overlay: LocalityItem | None
    candidates: list[GroupCandidateItem]
    resources: list[AnswerItem]
    resources_total: int


Type = Annotated[str, Query(description="Only this type: alias or type URL")]
Name = Annotated[str, Query(description="Only this resource; needs `type`")]


@router.get("/nodes/{id}/explain", response_model=ExplanationItem)
async def explain_node(here: Here, id: Segment, type: Type = "", name: Name = "") -> Response:
    """Explain a connected node: the groups that were tried, and the answer for each resource that it subscribes to."""
    found = await here.publisher.explain(id, _asked(type, name))
    known = here.fleet.node(id)
    return JSONResponse(explanation_item(found, known.principals if known is not None else ()))


@router.post("/explain", response_model=ExplanationItem, openapi_extra=needs(READ))
async def explain_document(
    here: Here, body: Body, content_type: ContentType = "", type: Type = "", name: Name = ""
) -> Response:
    """Explain a node that need not exist, given as Envoy sends it:

    ``{"id", "cluster", "locality", "metadata", ...}``.
    """
    node = await _node(body, content_type)
    return JSONResponse(explanation_item(await here.publisher.explain_node(node, _asked(type, name))))


def explanation_item(found: Explanation, principals: Iterable[str] = ()) -> ExplanationItem:
    """The JSON of an explanation."""
    node, chosen = found.node, found.chosen
    return {
        "node": {
            "id": node.id,
            "cluster": node.cluster,
            "locality": locality_item(node.locality),
            "user_agent": node.user_agent,
            "connected": found.connected,
            "principals": list(principals),
        },
        "group": chosen.match.group if chosen is not None else None,
        "rule": chosen.match.rule if chosen is not None else None,
        "revision": found.revision,
        "overlay": locality_item(found.source) if found.source is not None else None,
        "candidates": [_candidate_item(candidate) for candidate in found.candidates],
        "resources": [_answer_item(answer) for answer in found.resources],
        "resources_total": found.total,
    }


def _candidate_item(candidate: GroupCandidate) -> GroupCandidateItem:
    item: GroupCandidateItem = {
        "group": candidate.match.group,
        "rule": candidate.match.rule,
        "matched": candidate.matched,
        "detail": candidate.detail,
    }
    if candidate.match.rule == SELECTOR:
        item["selector"], item["priority"] = candidate.selector, candidate.priority
    return item


def _answer_item(found: ResourceDelivery) -> AnswerItem:
    item: AnswerItem = {
        "type": found.type,
        "name": found.name,
        "answer": found.answer.value,
        "detail": found.detail,
    }
    if found.version:
        item["version"] = found.version
    if found.pushed_version:
        item["pushed_version"] = found.pushed_version
    if found.version and alias_of(type_url_of(found.type)) == ENDPOINTS:
        item["owner"] = owner_item(found.owner)
    return item


def _asked(type: str, name: str) -> ExplainQuery:
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
