"""Who may do what: principals, what certificates and tokens allow, and which node a principal may be. Pure.

A connection has *principals*: the URIs, DNS names and common name of its client certificate, the name of its token.
They are typed: a certificate whose URI reads ``token:root`` is no token. Certificates and tokens authenticate; what
they may do is said by rules.

Patterns of principals (``spiffe://corp/ns/{ns}/sa/{sa}``, ``dns:*.edge.corp``, ``cn:{name}``, ``token:edge-*``) are
matched segment by segment: URIs and token names are divided at ``/``, DNS names and common names at ``.``. Within a
segment ``*``, ``?`` and ``[...]`` match as in a shell, never beyond it; ``{x}`` matches what stands there and is bound
to it, one per segment; a last segment ``**`` matches all that follows. So a principal fits in one way at most.

Patterns of claims (``{sa}.{ns}.*``) are globs in which ``{x}`` stands for what was bound, literally: a name that holds
``*`` opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from xds.control.certificate import Certificate
from xds.control.tokens import ADMIN, EVERYTHING, XDS, XDS_GROUP, XDS_NODE, Grant, Tokens
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


class Kind(StrEnum):
    """What a principal is a name of."""

    URI = "uri"
    DNS = "dns"
    CN = "cn"
    TOKEN = "token"  # noqa: S105 - the word, not a token


_DIVIDERS = {Kind.URI: "/", Kind.TOKEN: "/", Kind.DNS: ".", Kind.CN: "."}


@dataclass(frozen=True, slots=True)
class Principal:
    """One name that a connection has proved."""

    kind: Kind
    value: str

    def __str__(self) -> str:
        is_plain = self.kind is Kind.URI and "://" in self.value
        return self.value if is_plain else f"{self.kind.value}:{self.value}"


class PatternError(ValueError):
    """A pattern that cannot be read."""


# Patterns


@dataclass(frozen=True, slots=True)
class _Segment:
    """A segment: a glob, or a text in which ``capture`` stands for one character or more."""

    text: str
    capture: str = ""
    after: str = ""

    def match(self, value: str) -> Captures | None:
        if not self.capture:
            return _NO_CAPTURES if fnmatchcase(value, self.text) else None
        begin, end = len(self.text), len(value) - len(self.after)
        if begin < end and value.startswith(self.text) and value.endswith(self.after):
            return {self.capture: value[begin:end]}
        return None


class PrincipalPattern:
    """Which principals a rule is about. Raises ``PatternError``."""

    __slots__ = ("_has_rest", "_segments", "kind", "text")

    def __init__(self, text: str, kind: Kind | None = None) -> None:
        self.text = text
        self.kind, value = (kind, text) if kind is not None else _kind_of(text)
        parts = self._folded(value).split(_DIVIDERS[self.kind])
        self._has_rest = parts[-1] == _REST
        if _REST in parts[:-1]:
            raise PatternError(f"{text!r}: '**' stands for all that follows, and is the last segment")
        self._segments = tuple(_segment(part, text) for part in (parts[:-1] if self._has_rest else parts))

    @property
    def captures(self) -> frozenset[str]:
        """What is bound."""
        return frozenset(segment.capture for segment in self._segments if segment.capture)

    def match(self, principal: Principal) -> Captures | None:
        """What is bound where the principal fits; None where it does not."""
        if principal.kind is not self.kind:
            return None
        parts = self._folded(principal.value).split(_DIVIDERS[self.kind])
        count = len(self._segments)
        if len(parts) <= count if self._has_rest else len(parts) != count:
            return None
        bound: dict[str, str] = {}
        for segment, part in zip(self._segments, parts, strict=False):
            found = segment.match(part)
            if found is None or any(bound.get(name, value) != value for name, value in found.items()):
                return None
            bound.update(found)
        return bound

    def _folded(self, value: str) -> str:
        """DNS names have no case. A capture's name has."""
        if self.kind is not Kind.DNS:
            return value
        return "".join(part if _CAPTURE.fullmatch(part) else part.lower() for part in _divided(value))


def _divided(text: str) -> Iterator[str]:
    """A text as captures and what is between them."""
    at = 0
    for found in _CAPTURE.finditer(text):
        yield text[at : found.start()]
        yield found[0]
        at = found.end()
    yield text[at:]


def _kind_of(text: str) -> tuple[Kind, str]:
    prefix, colon, value = text.partition(":")
    if colon and value and prefix in (Kind.URI, Kind.DNS, Kind.CN, Kind.TOKEN):
        return Kind(prefix), value
    if "://" in text:
        return Kind.URI, text
    raise PatternError(f"{text!r}: a URI (spiffe://...), uri:URI, dns:NAME, cn:NAME or token:NAME is expected")


def _segment(text: str, whole: str) -> _Segment:
    parts = list(_divided(text))
    if any(char in "{}" for part in parts[::2] for char in part):
        raise PatternError(f"{whole!r}: braces enclose a name, as in {{ns}}")
    if len(parts) == 1:
        return _Segment(text)
    if len(parts) > 3 or any(map(_GLOB.search, parts[::2])):
        raise PatternError(f"{whole!r}: one {{name}} per segment, and no '*', '?' or '[' beside it")
    return _Segment(parts[0], parts[1][1:-1], parts[2])


class ClaimPattern:
    """A glob of what a node says of itself, with what a principal bound. Raises ``PatternError``."""

    __slots__ = ("_parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = tuple(_divided(text))
        if any(char in "{}" for part in self._parts[::2] for char in part):
            raise PatternError(f"{text!r}: braces enclose a name, as in {{ns}}")

    @property
    def captures(self) -> frozenset[str]:
        """What must be bound."""
        return frozenset(part[1:-1] for part in self._parts[1::2])

    def filled(self, captures: Captures) -> str:
        """The glob with what was bound, escaped."""
        return "".join(glob_escaped(captures[part[1:-1]]) if at % 2 else part for at, part in enumerate(self._parts))

    def matches(self, value: str, captures: Captures) -> bool:
        if any(map(_GLOB.search, self._parts[::2])):
            return fnmatchcase(value, self.filled(captures))
        return value == "".join(captures[part[1:-1]] if at % 2 else part for at, part in enumerate(self._parts))


def glob_escaped(text: str) -> str:
    """A glob that matches this text alone."""
    return _GLOB.sub(lambda found: f"[{found[0]}]", text)


# Which node a principal may be


class Mode(StrEnum):
    """What becomes of a node that no rule allows: nothing, it is told, or it is refused."""

    OFF = "off"
    AUDIT = "audit"
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True)
class NodeRule:
    """Principals of this pattern may be nodes like that, in these groups. None and empty: whatever it is.

    ``where`` is a filter over the node as selectors see it. Raises ``PatternError`` for a name that nothing binds.
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
                raise PatternError(f"{claim.text if claim else ''!r}: the principal binds no {{{min(unbound)}}}")

    def why_not(self, principals: tuple[Principal, ...], node: Node, group: str) -> str:
        """Why this rule does not let the node in; empty where it does. An empty group is not known yet."""
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
        return any(self.principal.match(principal) is not None for principal in principals)

    def _why_not(self, captures: Captures, node: Node, group: str) -> str:
        for what, pattern, value in self._claims(node):
            if not isinstance(value, str):
                return f"{what} is no text"
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
        return "" if where.matches(node_record(node)) else f"the node does not pass: {where.text}"
    except EvaluationError as error:
        return f"the filter cannot be answered for this node: {error}"


def _shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_LIMIT else text[:_SHOWN_LIMIT] + "...")


@dataclass(frozen=True, slots=True)
class NodeRules:
    """All rules are tried; one that allows is enough."""

    mode: Mode = Mode.OFF
    rules: tuple[NodeRule, ...] = ()


# Who asks


@dataclass(frozen=True, slots=True)
class CertificateRule:
    """What certificates of this pattern may do. ``name`` is what they are called."""

    pattern: PrincipalPattern
    grant: Grant


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a connection has proved to be, and what it may do. ``credential`` is the hash of its token."""

    grant: Grant = EVERYTHING
    certificate: Certificate | None = None
    credential: bytes = b""

    @property
    def principals(self) -> tuple[Principal, ...]:
        """All its names: of the token, then of the certificate."""
        found = [Principal(Kind.TOKEN, self.grant.name)] if self.credential and self.grant.name else []
        return (*found, *(principals_of(self.certificate) if self.certificate is not None else ()))

    @property
    def principal(self) -> str:
        """The first of them, for people; empty for nobody."""
        return next((str(principal) for principal in self.principals), "token" if self.credential else "")

    def is_over(self, now: float) -> bool:
        """Has its certificate ended?"""
        return self.certificate is not None and self.certificate.not_after <= now


NOBODY = Identity()


def principals_of(certificate: Certificate) -> tuple[Principal, ...]:
    """URIs first: a SPIFFE id says more than a host name."""
    return (
        *(Principal(Kind.URI, uri) for uri in certificate.uris),
        *(Principal(Kind.DNS, name) for name in certificate.dns),
        *((Principal(Kind.CN, certificate.cn),) if certificate.cn else ()),
    )


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a node is not let in; in audit mode it is, and this is told."""

    reason: str
    enforced: bool


class Access:
    """Who may do what, now. Shared by all doors: `assign` changes it for all of them."""

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
        """From now on these are the rules."""
        self.tokens.assign(other.tokens)
        self.certificates, self.nodes = other.certificates, other.nodes

    def admit(
        self, authorization: str, certificate: Certificate | None = None, *, wants_certificate: bool = False
    ) -> Identity | None:
        """Who asks; None for nobody we know. A token that is shown decides, and a wrong one is not overlooked.

        ``wants_certificate``: the door asks for certificates, so that nobody comes in without a credential.
        """
        if authorization and self.tokens:
            found = self.tokens.find(authorization)
            return Identity(found[1], certificate, found[0]) if found is not None else None
        if certificate is not None:
            return Identity(self.grant_of(certificate), certificate)
        return None if self.tokens or wants_certificate else NOBODY

    def renew(self, identity: Identity) -> Identity | None:
        """The same connection under the rules of now; None where it would not be let in any more."""
        if identity.credential:
            grant = self.tokens.of(identity.credential)
            return Identity(grant, identity.certificate, identity.credential) if grant is not None else None
        if identity.certificate is not None:
            return Identity(self.grant_of(identity.certificate), identity.certificate)
        return None if self.tokens else identity

    def grant_of(self, certificate: Certificate) -> Grant:
        """What the first rule says that matches; without one it may be an xDS client at most."""
        principals = principals_of(certificate)
        for rule in self.certificates:
            if any(rule.pattern.match(principal) is not None for principal in principals):
                return rule.grant
        return Grant(str(principals[0]) if principals else "", _XDS_ALONE)

    def refusal(self, identity: Identity, node: Node, group: str) -> Refusal | None:
        """Why this connection may not be this node of this group; None where it may. An empty group is not known
        yet."""
        narrow = scope_refusal(identity.grant, node.id, group)
        if narrow:
            return Refusal(narrow, enforced=True)
        if self.nodes.mode is Mode.OFF:
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
        detail = reason or "no rule of auth.nodes is about it"
        return Refusal(f"{who} may not be node {_shown(node.id)}: {detail}", self.nodes.mode is Mode.ENFORCE)


@dataclass(frozen=True, slots=True)
class Trial:
    """One rule, tried for a node: ``why_not`` is empty where it allows it."""

    number: int
    principal: str
    why_not: str


def trials(rules: NodeRules, identity: Identity, node: Node, group: str) -> Iterator[Trial]:
    """Every rule and why it does not let the node in, for people."""
    for number, rule in enumerate(rules.rules, 1):
        yield Trial(number, rule.principal.text, rule.why_not(identity.principals, node, group))


def scope_refusal(grant: Grant, node_id: str, group: str) -> str:
    """Why the scopes of a token do not cover a node; empty where they do. Each of the two kinds narrows."""
    if XDS in grant.scopes or ADMIN in grant.scopes:
        return ""
    for prefix, what, value in ((XDS_NODE, "node", node_id), (XDS_GROUP, "group", group)):
        globs = [scope.removeprefix(prefix) for scope in grant.scopes if scope.startswith(prefix)]
        if globs and value and not any(fnmatchcase(value, glob) for glob in globs):
            return f"the token {grant.name!r} has no scope {prefix}... for {what} {_shown(value)}"
    return ""
