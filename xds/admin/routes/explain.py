"""Explanation of what a node is served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, NotRequired

from fastapi import Query
from fastapi.responses import JSONResponse, Response
from typing_extensions import TypedDict

from xds.access.tokens import READ
from xds.admin.bodies import Body, ContentType, parse_one
from xds.admin.middleware import Segment
from xds.admin.models.nodes import LinkerdAnswer
from xds.admin.models.writing import document_of
from xds.admin.problem import RequestError
from xds.admin.routing import api_router, needs
from xds.admin.services import Deps
from xds.admin.shapes.endpoints import OwnerItem, owner_item
from xds.admin.shapes.groups import LoweredOrigin, origin_of
from xds.admin.shapes.values import LocalityItem, locality_item, timestamp
from xds.codec.node_json import as_object, decode_node
from xds.live.owners import EndpointOrigin, Owner
from xds.model.errors import ValidationError, Violation
from xds.model.node import Node
from xds.model.resource_type import alias_of, type_url_of, v3_url
from xds.push.explain import ExplainQuery, Explanation, ResourceDelivery
from xds.snapshots.membership import SELECTOR, GroupCandidate
from xds.store.document_keys import Key

router = api_router("fleet")

NODE_BYTES = 1 << 20
ENDPOINTS = "endpoints"
INSTANCES_SHOWN = 1_000


class ExplainedNode(TypedDict):
    """The node that is explained.

    * ``id``: its id;
    * ``cluster``: the cluster that the node names; not a resource;
    * ``locality``: its locality;
    * ``user_agent``: the name and version of the client;
    * ``connected``: whether it has an open stream;
    * ``principals``: the authenticated principals of its connections; empty without authentication.
    """

    id: str
    cluster: str
    locality: LocalityItem
    user_agent: str
    connected: bool
    principals: list[str]


class GroupCandidateItem(TypedDict):
    """A group that the node may belong to.

    * ``rule``: why it is tried: ``selector``, ``node.id``, ``node.cluster``, ``default``; ``function`` if the program
      that embeds the server chose it;
    * ``selector``: present for the rule ``selector``;
    * ``priority``: present for the rule ``selector``;
    * ``matched``: whether it matches the node and has a snapshot;
    * ``detail``: why it matches or does not.
    """

    group: str
    rule: str
    selector: NotRequired[str]
    priority: NotRequired[int]
    matched: bool
    detail: str


class OriginItem(TypedDict):
    """An endpoint that comes from an instance of a service.

    * ``address``: its IP address;
    * ``port``: its port;
    * ``health``: ``passing``, ``warning``, ``critical`` or ``draining``;
    * ``source``: the name of the source;
    * ``instance``: the id of the instance;
    * ``since``: when it was first seen.
    """

    address: str
    port: int
    health: str
    source: str
    instance: str
    since: str


class AnswerItem(TypedDict):
    """What the node gets for one resource.

    * ``answer``: ``served`` (the node is not connected and would get it), ``sent`` (ACKed), ``pending`` (not ACKed
      yet), ``refused`` (NACKed), ``held`` (waits for clusters), ``lingering`` (removed, and kept for a while),
      ``missing`` (the group does not have it), ``unexpressed`` (the v2 API cannot express it), ``not_subscribed`` or
      ``no_group``;
    * ``version``: present if there is something to serve: its version, a hash of its content;
    * ``pushed_version``: present if live endpoints or a traffic assignment replace the pushed resource: the version of
      the pushed one;
    * ``owner``: present for a served assignment: its owner;
    * ``sources``: present for an assignment that follows a service: the number of instances by source;
    * ``instances``: present with ``sources`` if ``name`` is given: the first thousand instances;
    * ``lowered``: present for a lowered resource: where it comes from.
    """

    type: str
    name: str
    answer: str
    detail: str
    version: NotRequired[str]
    pushed_version: NotRequired[str]
    owner: NotRequired[OwnerItem]
    sources: NotRequired[dict[str, int]]
    instances: NotRequired[list[OriginItem]]
    lowered: NotRequired[LoweredOrigin]


class Origins(TypedDict, total=False):
    """The origins of a resource and of its endpoints, as in `AnswerItem`."""

    sources: dict[str, int]
    instances: list[OriginItem]
    lowered: LoweredOrigin


OriginsOf = Callable[[ResourceDelivery], Origins]


class ExplanationItem(TypedDict):
    """Why a node is served what it is served.

    * ``node``: the node;
    * ``group``: its group; null if no group matches;
    * ``rule``: why it is in this group, as in ``candidates``; null if no group matches;
    * ``revision``: the present revision of the group; null if no group matches;
    * ``overlay``: the locality whose traffic assignment the node is served; null if it is served the pushed weights;
    * ``candidates``: the groups that were tried, in order; the first that matched is the group of the node;
    * ``resources``: what the node gets, at most a thousand resources;
    * ``resources_total``: the number of resources;
    * ``linkerd``: present for a Linkerd proxy: the last answer on each of its streams.
    """

    node: ExplainedNode
    group: str | None
    rule: str | None
    revision: int | None
    overlay: LocalityItem | None
    candidates: list[GroupCandidateItem]
    resources: list[AnswerItem]
    resources_total: int
    linkerd: NotRequired[list[LinkerdAnswer]]


Type = Annotated[str, Query(description="Only this type: an alias or a type URL; empty: all types")]
Name = Annotated[str, Query(description="Only this resource; needs `type` (otherwise 400). Empty: all resources")]


@router.get("/nodes/{id}/explain", response_model=ExplanationItem)
async def explain_node(deps: Deps, id: Segment, type: Type = "", name: Name = "") -> Response:
    """Explain a node: the groups that were tried, and what it gets for each resource that it subscribes to.

    It must be connected or have disconnected recently.
    """
    found = await deps.publisher.views.explain(id, _query(type, name))
    known = deps.fleet.node(id)
    principals = known.principals if known is not None else ()
    item = explanation_item(found, principals, _origins(deps, found, name))
    if answers := [answer for feature in deps.features for answer in feature.stream_answers(id).values()]:
        item["linkerd"] = answers
    return JSONResponse(document_of(item))


@router.post("/explain", response_model=ExplanationItem, openapi_extra=needs(READ))
async def explain_document(
    deps: Deps, body: Body, content_type: ContentType = "", type: Type = "", name: Name = ""
) -> Response:
    """Explain a node that need not exist: the groups that are tried, and what it would get."""
    node = await _node(body, content_type)
    found = await deps.publisher.views.explain_node(node, _query(type, name))
    return JSONResponse(explanation_item(found, (), _origins(deps, found, name)))


def explanation_item(found: Explanation, principals: Iterable[str], origins: OriginsOf) -> ExplanationItem:
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
        "resources": [_answer_item(answer, origins(answer)) for answer in found.resources],
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


def _answer_item(found: ResourceDelivery, origin: Origins) -> AnswerItem:
    item: AnswerItem = {
        "type": found.type,
        "name": found.name,
        "answer": found.status.value,
        "detail": found.detail,
    }
    if found.version:
        item["version"] = found.version
    if found.pushed_version:
        item["pushed_version"] = found.pushed_version
    if found.version and alias_of(type_url_of(found.type)) == ENDPOINTS:
        item["owner"] = owner_item(found.owner)
    if "sources" in origin:
        item["sources"] = origin["sources"]
    if "instances" in origin:
        item["instances"] = origin["instances"]
    if "lowered" in origin:
        item["lowered"] = origin["lowered"]
    return item


def _origins(deps: Deps, found: Explanation, name: str) -> OriginsOf:
    """The origins of lowered resources, and of the endpoints of assignments that follow services."""
    group = found.chosen.match.group if found.chosen is not None else ""
    content = deps.publisher.derived.content(group)

    def origin(answer: ResourceDelivery) -> Origins:
        found_origins: Origins = {}
        lowered = origin_of(content, (v3_url(type_url_of(answer.type)), answer.name)) if answer.version else None
        if lowered is not None:
            found_origins["lowered"] = lowered
        instances = _instances(deps, (group, answer.name), answer.owner)
        if instances is not None:
            found_origins["sources"] = dict(Counter(one.source for one in instances))
            if name:
                found_origins["instances"] = [_origin_item(one) for one in instances[:INSTANCES_SHOWN]]
        return found_origins

    return origin


def _instances(deps: Deps, key: Key, owner: Owner | None) -> Sequence[EndpointOrigin] | None:
    """The instances that an assignment follows; None for one that follows no service."""
    if owner is None:
        return None
    found = (feature.endpoint_origins(key, owner.kind) for feature in deps.features)
    return next((each for each in found if each is not None), None)


def _origin_item(one: EndpointOrigin) -> OriginItem:
    return {
        "address": one.address,
        "port": one.port,
        "health": one.health,
        "source": one.source,
        "instance": one.instance,
        "since": timestamp(one.since),
    }


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
