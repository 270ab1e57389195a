"""Authorisation: the principals of a connection, what they may do, and which nodes they may be. Pure.

A connection has *principals*: the URIs, DNS names and common name of its client certificate, and the name of its token.
Principals are typed: a certificate with the URI ``token:root`` does not count as a token. Certificates and tokens
authenticate; rules authorise.

Patterns of principals (``spiffe://corp/ns/{ns}/sa/{sa}``, ``dns:*.edge.corp``, ``cn:{name}``, ``token:edge-*``) are
matched segment by segment. URIs and token names are divided at ``/``, DNS names and common names at ``.``. Within a
segment ``*``, ``?`` and ``[...]`` match as in a shell. ``{x}`` captures text within one segment, at most one capture
per segment. A last segment ``**`` matches all following segments. With these rules a principal matches a pattern in at
most one way.

Patterns of claims (``{sa}.{ns}.*``) are globs in which ``{x}`` stands for the captured text, taken literally: a
captured name that contains ``*`` matches nothing but itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from xds.access.certificate import Certificate
from xds.access.tokens import ADMIN, EVERYTHING, XDS, XDS_GROUP, XDS_NODE, Grant, Tokens
from xds.filter.expression import EvaluationError
from xds.filter.filter import Filter
from xds.filter.values import node_record
from xds.model.node import Node

Captures = Mapping[str, str]

_CAPTURE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_GLOB = re.compile(r"[*?\[]")
_NO_CAPTURES: Captures = {}
_REST = "**"
_SHOWN_LIMIT = 200
_XDS_ALONE = frozenset({XDS})


class PrincipalKind(StrEnum):
    """The type of a principal."""

    URI = "uri"
    DNS = "dns"
    CN = "cn"
    TOKEN = "token"  # noqa: S105 - the word, not a token


_DIVIDERS = {PrincipalKind.URI: "/", PrincipalKind.TOKEN: "/", PrincipalKind.DNS: ".", PrincipalKind.CN: "."}


@dataclass(frozen=True, slots=True)
class Principal:
    """One authenticated name of a connection."""

    kind: PrincipalKind
    value: str

    def __str__(self) -> str:
        is_plain = self.kind is PrincipalKind.URI and "://" in self.value
        return self.value if is_plain else f"{self.kind.value}:{self.value}"


class PatternError(ValueError):
    """A pattern with a syntax error."""


# Patterns


@dataclass(frozen=True, slots=True)
class _Segment:
    """A glob, or ``text`` + a capture of one character or more + ``after``."""

    text: str
    capture: str = ""
    after: str = ""

    def match(self, value: str) -> Captures | None:
        """The captured text, if the segment matches; else None."""
        if not self.capture:
            return _NO_CAPTURES if fnmatchcase(value, self.text) else None
        begin, end = len(self.text), len(value) - len(self.after)
        if begin < end and value.startswith(self.text) and value.endswith(self.after):
            return {self.capture: value[begin:end]}
        return None


class PrincipalPattern:
    """A pattern of principals. Raises ``PatternError``."""

    __slots__ = ("_has_rest", "_segments", "kind", "text")

    def __init__(self, text: str, kind: PrincipalKind | None = None) -> None:
        self.text = text
        self.kind, value = (kind, text) if kind is not None else _kind_of(text)
        parts = self._folded(value).split(_DIVIDERS[self.kind])
        self._has_rest = parts[-1] == _REST
        if _REST in parts[:-1]:
            raise PatternError(f"{text!r}: '**' is allowed as the last segment only")
        self._segments = tuple(_segment(part, text) for part in (parts[:-1] if self._has_rest else parts))

    @property
    def captures(self) -> frozenset[str]:
        """The names of the captures."""
        return frozenset(segment.capture for segment in self._segments if segment.capture)

    def match(self, principal: Principal) -> Captures | None:
        """The captures if the principal matches, else None."""
        if principal.kind is not self.kind:
            return None
        parts = self._folded(principal.value).split(_DIVIDERS[self.kind])
        count = len(self._segments)
        if len(parts) <= count if self._has_rest else len(parts) != count:
            return None
        bound: dict[str, str] = {}
        for segment, part in zip(self._segments, parts, strict=False):
            captured = segment.match(part)
            if captured is None or any(bound.get(name, value) != value for name, value in captured.items()):
                return None
            bound.update(captured)
        return bound

    def _folded(self, value: str) -> str:
        """The value in lower case for DNS names, which have no case. The names of captures keep their case."""
        if self.kind is not PrincipalKind.DNS:
            return value
        return "".join(part if _CAPTURE.fullmatch(part) else part.lower() for part in _divided(value))


def _divided(text: str) -> Iterator[str]:
    """Split a text: literal parts at even positions, captures at odd positions."""
    at = 0
    for match in _CAPTURE.finditer(text):
        yield text[at : match.start()]
        yield match[0]
        at = match.end()
    yield text[at:]


def _kind_of(text: str) -> tuple[PrincipalKind, str]:
    prefix, colon, value = text.partition(":")
    if colon and value and prefix in (PrincipalKind.URI, PrincipalKind.DNS, PrincipalKind.CN, PrincipalKind.TOKEN):
        return PrincipalKind(prefix), value
    if "://" in text:
        return PrincipalKind.URI, text
    raise PatternError(f"{text!r}: expected a URI (spiffe://...), uri:URI, dns:NAME, cn:NAME or token:NAME")


def _segment(text: str, whole: str) -> _Segment:
    parts = list(_divided(text))
    if any(char in "{}" for part in parts[::2] for char in part):
        raise PatternError(f"{whole!r}: braces enclose a name, as in {{ns}}")
    if len(parts) == 1:
        return _Segment(text)
    if len(parts) > 3 or any(map(_GLOB.search, parts[::2])):
        raise PatternError(f"{whole!r}: a segment has one {{name}} at most, and no '*', '?' or '[' beside it")
    return _Segment(parts[0], parts[1][1:-1], parts[2])


class ClaimPattern:
    """A glob over a claim of a node, with the captures of a principal. Raises ``PatternError``."""

    __slots__ = ("_parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = tuple(_divided(text))
        if any(char in "{}" for part in self._parts[::2] for char in part):
            raise PatternError(f"{text!r}: braces enclose a name, as in {{ns}}")

    @property
    def captures(self) -> frozenset[str]:
        """The captures that the pattern needs."""
        return frozenset(part[1:-1] for part in self._parts[1::2])

    def filled(self, captures: Captures) -> str:
        """The glob with the captured texts in it, escaped."""
        return "".join(glob_escaped(captures[part[1:-1]]) if at % 2 else part for at, part in enumerate(self._parts))

    def matches(self, value: str, captures: Captures) -> bool:
        """Whether the claim ``value`` matches the glob with the ``captures`` in it."""
        if any(map(_GLOB.search, self._parts[::2])):
            return fnmatchcase(value, self.filled(captures))
        return value == "".join(captures[part[1:-1]] if at % 2 else part for at, part in enumerate(self._parts))


def glob_escaped(text: str) -> str:
    """A glob that matches exactly this text."""
    return _GLOB.sub(lambda char: f"[{char[0]}]", text)


# Node authorisation


class NodeAuthMode(StrEnum):
    """The treatment of a node that no rule allows: ``OFF`` ignores it, ``AUDIT`` logs it, ``ENFORCE`` rejects it."""

    OFF = "off"
    AUDIT = "audit"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class NodeRule:
    """Principals that match ``principal`` may be these nodes in these groups. None and empty fields allow any value.

    ``where`` is a filter over the node, as in selectors. Raises ``PatternError`` for a name that is not captured.
    """

    principal: PrincipalPattern
    id: ClaimPattern | None = None
    cluster: ClaimPattern | None = None
    metadata: Mapping[str, ClaimPattern] = field(default_factory=dict)
    where: Filter | None = None
    groups: tuple[ClaimPattern, ...] = ()

    def __post_init__(self) -> None:
        for claim in (self.id, self.cluster, *self.metadata.values(), *self.groups):
            unbound = claim.captures - self.principal.captures if claim is not None else frozenset()
            if unbound:
                raise PatternError(f"{claim.text if claim else ''!r}: the principal captures no {{{min(unbound)}}}")

    def why_not(self, principals: tuple[Principal, ...], node: Node, group: str) -> str:
        """Why this rule does not allow the node; empty if it does. An empty ``group`` is not known yet."""
        reason = ""
        for principal in principals:
            captures = self.principal.match(principal)
            if captures is None:
                continue
            reason = self._why_not(captures, node, group)
            if not reason:
                return ""
        return reason or f"no principal matches {self.principal.text}"

    def is_about(self, principals: tuple[Principal, ...]) -> bool:
        """Whether the rule applies to these principals."""
        return any(self.principal.match(principal) is not None for principal in principals)

    def _why_not(self, captures: Captures, node: Node, group: str) -> str:
        for what, pattern, value in self._claims(node):
            if not isinstance(value, str):
                return f"{what} is not a string"
            if not pattern.matches(value, captures):
                return f"{what} {_shown(value)} does not match {_shown(pattern.filled(captures))}"
        if self.where is not None and (reason := _fails(self.where, node)):
            return reason
        if group and self.groups and not any(each.matches(group, captures) for each in self.groups):
            allowed = " or ".join(_shown(each.filled(captures)) for each in self.groups)
            return f"group {_shown(group)} does not match {allowed}"
        return ""

    def _claims(self, node: Node) -> Iterator[tuple[str, ClaimPattern, object]]:
        if self.id is not None:
            yield "node.id", self.id, node.id
        if self.cluster is not None:
            yield "node.cluster", self.cluster, node.cluster
        for key, pattern in self.metadata.items():
            yield f"node.metadata.{key}", pattern, node.metadata.get(key, "")


def _fails(where: Filter, node: Node) -> str:
    try:
        return "" if where.matches(node_record(node)) else f"the node does not match the filter: {where.text}"
    except EvaluationError as error:
        return f"the filter cannot be evaluated for this node: {error}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_LIMIT else text[:_SHOWN_LIMIT] + "...")


@dataclass(frozen=True, slots=True)
class NodeRules:
    """A node is allowed when one of the rules allows it."""

    mode: NodeAuthMode = NodeAuthMode.OFF
    rules: tuple[NodeRule, ...] = ()


# Authentication


@dataclass(frozen=True, slots=True)
class CertificateRule:
    """The grant of certificates that match ``pattern``."""

    pattern: PrincipalPattern
    grant: Grant


@dataclass(frozen=True, slots=True)
class Identity:
    """The authenticated identity of a connection, and its grant. ``credential`` is the hash of its token."""

    grant: Grant = EVERYTHING
    certificate: Certificate | None = None
    credential: bytes = b""

    @property
    def principals(self) -> tuple[Principal, ...]:
        """All principals: that of the token, then those of the certificate."""
        of_token = [Principal(PrincipalKind.TOKEN, self.grant.name)] if self.credential and self.grant.name else []
        return (*of_token, *(principals_of(self.certificate) if self.certificate is not None else ()))

    @property
    def principal(self) -> str:
        """The first principal, for display; empty for an anonymous connection."""
        return next((str(principal) for principal in self.principals), "token" if self.credential else "")

    def is_over(self, now: float) -> bool:
        """Whether the certificate has expired at ``now`` (epoch seconds)."""
        return self.certificate is not None and self.certificate.not_after <= now


ANONYMOUS = Identity()
PROGRAM = Identity(Grant("program"))  # the program that the server runs in, whatever credentials others need


def principals_of(certificate: Certificate) -> tuple[Principal, ...]:
    """The principals of a certificate. URIs come first, since a SPIFFE id is more specific than a host name."""
    return (
        *(Principal(PrincipalKind.URI, uri) for uri in certificate.uris),
        *(Principal(PrincipalKind.DNS, name) for name in certificate.dns),
        *((Principal(PrincipalKind.CN, certificate.cn),) if certificate.cn else ()),
    )


@dataclass(frozen=True, slots=True)
class NodeRefusal:
    """Why a node is not allowed. In audit mode (not ``enforced``) the node is served and the reason is logged."""

    reason: str
    enforced: bool


def missing_credential(authorization: str) -> str:
    """What is wrong with the credential of a client that `Access.admit` does not admit, for operators."""
    return "an unknown token" if authorization else "no token"


class Access:
    """The present rules. gRPC and HTTP share one object, so that `assign` changes the rules for both."""

    def __init__(
        self,
        tokens: Tokens | None = None,
        certificates: tuple[CertificateRule, ...] = (),
        nodes: NodeRules = NodeRules(),
    ) -> None:
        self.tokens = tokens if tokens is not None else Tokens()
        self.certificates = certificates
        self.nodes = nodes

    def assign(self, other: Access) -> None:
        """Replace the rules."""
        self.tokens.assign(other.tokens)
        self.certificates, self.nodes = other.certificates, other.nodes

    def admit(
        self, authorization: str, certificate: Certificate | None = None, *, wants_certificate: bool = False
    ) -> Identity | None:
        """Authenticate a connection; None when that fails. If a token is sent, it must be valid and has the grant.

        ``wants_certificate``: the listener requests client certificates, so a client without a credential is rejected.
        """
        if authorization and self.tokens:
            match = self.tokens.find(authorization)
            return Identity(match[1], certificate, match[0]) if match is not None else None
        if certificate is not None:
            return Identity(self.grant_of(certificate), certificate)
        return None if self.tokens or wants_certificate else ANONYMOUS

    def renew(self, identity: Identity) -> Identity | None:
        """The identity of an open connection under the present rules; None if it would be rejected now."""
        if identity is PROGRAM:
            return identity
        if identity.credential:
            grant = self.tokens.of(identity.credential)
            return Identity(grant, identity.certificate, identity.credential) if grant is not None else None
        if identity.certificate is not None:
            return Identity(self.grant_of(identity.certificate), identity.certificate)
        return None if self.tokens else identity

    def grant_of(self, certificate: Certificate) -> Grant:
        """The grant of the first rule that matches. Without one, the connection may be an xDS client only."""
        principals = principals_of(certificate)
        for rule in self.certificates:
            if any(rule.pattern.match(principal) is not None for principal in principals):
                return rule.grant
        return Grant(str(principals[0]) if principals else "", _XDS_ALONE)

    def refusal(self, identity: Identity, node: Node, group: str) -> NodeRefusal | None:
        """Why this connection may not be this node in this group; None if it may.

        An empty ``group`` is not known yet.
        """
        out_of_scope = scope_refusal(identity.grant, node.id, group)
        if out_of_scope:
            return NodeRefusal(out_of_scope, enforced=True)
        if self.nodes.mode is NodeAuthMode.OFF:
            return None
        principals = identity.principals
        reason = ""
        for number, rule in enumerate(self.nodes.rules, 1):
            why_not = rule.why_not(principals, node, group)
            if not why_not:
                return None
            if not reason and rule.is_about(principals):
                reason = f"rule {number}: {why_not}"
        who = identity.principal or "a client without credentials"
        detail = reason or "no rule of auth.nodes matches its principals"
        return NodeRefusal(
            f"{who} may not be node {_shown(node.id)}: {detail}", self.nodes.mode is NodeAuthMode.ENFORCE
        )


@dataclass(frozen=True, slots=True)
class RuleTrial:
    """The outcome of one rule for a node. ``why_not`` is empty if the rule allows the node."""

    number: int
    principal: str
    why_not: str


def trials(rules: NodeRules, identity: Identity, node: Node, group: str) -> Iterator[RuleTrial]:
    """The outcome of each rule for the node, in order."""
    for number, rule in enumerate(rules.rules, 1):
        yield RuleTrial(number, rule.principal.text, rule.why_not(identity.principals, node, group))


def scope_refusal(grant: Grant, node_id: str, group: str) -> str:
    """Why the scopes of a token do not cover a node; empty if they do. Node and group scopes must both match."""
    if XDS in grant.scopes or ADMIN in grant.scopes:
        return ""
    for prefix, what, value in ((XDS_NODE, "node", node_id), (XDS_GROUP, "group", group)):
        globs = [scope.removeprefix(prefix) for scope in grant.scopes if scope.startswith(prefix)]
        if globs and value and not any(fnmatchcase(value, glob) for glob in globs):
            return f"the token {grant.name!r} has no scope {prefix}... for {what} {_shown(value)}"
    return ""
