"""Test of the node rules, without a connection."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Any

from fastapi.responses import Response

from xds.access.authorisation import Access, Identity, NodeAuthMode, trials
from xds.access.certificate import NAMES_LIMIT, Certificate
from xds.access.tokens import XDS
from xds.admin import operations
from xds.admin.answers import answer_model
from xds.admin.bodies import Body, ContentType, parse_one
from xds.admin.dependencies import Deps
from xds.admin.models.access import AccessVerdict, TriedRule
from xds.admin.problem import RequestError
from xds.admin.request_bodies import ACCESS_TEST
from xds.admin.routing import api_router, with_body
from xds.codec.node_json import as_object, decode_node
from xds.model.errors import ValidationError, Violation
from xds.model.node import Node

router = api_router("access")

BODY_BYTES = 1 << 20
NO_XDS = "its scopes do not allow it to be an xDS client"


@router.serve(operations.TEST_ACCESS)
@with_body(ACCESS_TEST, "The node and its credential, as JSON or YAML")
async def test_access(deps: Deps, body: Body, content_type: ContentType = "") -> Response:
    """Test whether a certificate or token may be a node. Nothing is changed.

    The body needs a certificate or a token: 400 without both, 404 for an unknown token.
    """
    access = deps.options.accepted()
    identity, node = _read_credential(
        access, await parse_one(body, content_type, "a node and its credential", BODY_BYTES)
    )
    explanation = await deps.publisher.views.explain_node(node)
    match = explanation.chosen.match if explanation.chosen is not None else None
    return answer_model(_verdict(access, identity, node, match.group if match else None, match.rule if match else None))


def _verdict(access: Access, identity: Identity, node: Node, group: str | None, chosen_by: str | None) -> AccessVerdict:
    rules = access.nodes
    strict = Access(
        access.tokens,
        access.certificates,
        replace(rules, mode=NodeAuthMode.ENFORCE if rules.rules else NodeAuthMode.OFF),
    )
    refusal = strict.refusal(identity, node, group or "")
    reason = refusal.reason if refusal is not None else "" if identity.grant.allows(XDS) else NO_XDS
    return AccessVerdict(
        principal=identity.principal,
        principals=tuple(map(str, identity.principals)),
        name=identity.grant.name,
        scopes=tuple(sorted(identity.grant.scopes)),
        node=node.id,
        group=group,
        chosen_by=chosen_by,
        mode=rules.mode.value,
        allowed=not reason,
        reason=reason,
        rules=tuple(
            TriedRule(rule=each.number, principal=each.principal, allows=not each.why_not, detail=each.why_not)
            for each in trials(rules, identity, node, group or "")
        ),
    )


def _read_credential(access: Access, value: Any) -> tuple[Identity, Node]:
    """The identity and the node in the body. Raises ``ValidationError``, ``RequestError``."""
    try:
        document = as_object(value, "the body")
        unknown = document.keys() - {"certificate", "token", "node"}
        if unknown:
            raise ValueError(f"no such field: {min(unknown)!r} (certificate, token, node)")
        node = decode_node(as_object(document.get("node"), "node"))
        if not node.id:
            raise ValueError("node.id is missing")
        names = document.get("certificate")
        certificate = _certificate(as_object(names, "certificate")) if names is not None else None
        token = document.get("token", "")
        if not isinstance(token, str):
            raise ValueError("token: expected the name of a token")
    except ValueError as error:
        raise ValidationError([Violation("invalid_question", str(error))]) from None
    return _identity(access, certificate, token), node


def _identity(access: Access, certificate: Certificate | None, token: str) -> Identity:
    if token:
        named = access.tokens.named(token)
        if named is None:
            raise RequestError(HTTPStatus.NOT_FOUND, f"no such token: {token[:100]!r}")
        return Identity(named[1], certificate, named[0])
    if certificate is None:
        raise RequestError(HTTPStatus.BAD_REQUEST, "expected a certificate or the name of a token")
    return Identity(access.grant_of(certificate), certificate)


def _certificate(fields: dict[str, Any]) -> Certificate:
    unknown = fields.keys() - {"uris", "dns", "cn"}
    if unknown:
        raise ValueError(f"certificate: no such field: {min(unknown)!r} (uris, dns, cn)")
    common_name = fields.get("cn", "")
    if not isinstance(common_name, str):
        raise ValueError("certificate.cn: expected a string")
    return Certificate(_texts(fields, "uris"), _texts(fields, "dns"), common_name)


def _texts(fields: dict[str, Any], key: str) -> tuple[str, ...]:
    texts = fields.get(key, [])
    if not isinstance(texts, list) or len(texts) > NAMES_LIMIT or not all(isinstance(each, str) for each in texts):
        raise ValueError(f"certificate.{key}: expected a list of at most {NAMES_LIMIT} strings")
    return tuple(texts)
