"""Settings of who may do what: tokens, client certificates, nodes. `load_settings` reads them with all others."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from xds.control.access import (
    Access,
    CertificateRule,
    ClaimPattern,
    Kind,
    Mode,
    NodeRule,
    NodeRules,
    PatternError,
    PrincipalPattern,
)
from xds.control.tokens import (
    ADMIN,
    PLAIN_SCOPES,
    WRITE_GROUP,
    XDS_GROUP,
    XDS_NODE,
    Grant,
    Tokens,
    is_scope,
)
from xds.filter.expression import EvaluationError, FilterSyntaxError
from xds.filter.filter import compile_filter
from xds.filter.values import NODE_SHAPE


class Section(BaseModel):
    """A section of the settings; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _check_digest(value: str) -> str:
    if len(value) != 64 or set(value) - set("0123456789abcdef"):
        raise ValueError("a SHA-256 in lower-case hex is expected, not the token itself")
    return value


Digest = Annotated[str, AfterValidator(_check_digest)]


def _known_scopes(value: frozenset[str]) -> frozenset[str]:
    for scope in sorted(value):
        if not is_scope(scope):
            known = (*PLAIN_SCOPES, *(f"{prefix}GLOB" for prefix in (WRITE_GROUP, XDS_NODE, XDS_GROUP)))
            raise ValueError(f"no such scope: {scope!r} (one of {', '.join(known)})")
    return value


Scopes = Annotated[frozenset[str], Field(min_length=1), AfterValidator(_known_scopes)]


class TokenSettings(Section):
    """A token with some scopes: ``read``, ``write:group/GLOB``, ``secrets:read``, ``backup``, ``xds``,
    ``xds:node/GLOB``, ``xds:group/GLOB``, ``admin``."""

    name: str = Field(min_length=1, max_length=100)
    sha256: Digest
    scopes: Scopes


class CertificateSettings(Section):
    """What client certificates may do whose URI, DNS name or common name fits: the first entry that does decides."""

    uri: str = ""
    dns: str = ""
    cn: str = ""
    name: str = Field(min_length=1, max_length=100)
    scopes: Scopes

    @model_validator(mode="after")
    def _one_name(self) -> CertificateSettings:
        if sum(map(bool, (self.uri, self.dns, self.cn))) != 1:
            raise ValueError("one of uri, dns and cn is expected")
        self.rule()
        return self

    def rule(self) -> CertificateRule:
        """Raises ``PatternError``."""
        kind = Kind.URI if self.uri else Kind.DNS if self.dns else Kind.CN
        pattern = PrincipalPattern(self.uri or self.dns or self.cn, kind)
        return CertificateRule(pattern, Grant(self.name, self.scopes))


class ClaimSettings(Section):
    """What a node says of itself: globs in which ``{x}`` stands for what the principal bound."""

    id: str | None = None
    cluster: str | None = None
    metadata: dict[str, str] = {}


class NodeRuleSettings(Section):
    """Which nodes a principal may be, and in which groups; what is left out may be anything."""

    principal: str
    node: ClaimSettings = ClaimSettings()
    where: str = ""
    groups: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _readable(self) -> NodeRuleSettings:
        self.rule()
        return self

    def rule(self) -> NodeRule:
        """Raises ``ValueError`` for a pattern or a filter that cannot be read."""
        where = None
        if self.where:
            try:
                where = compile_filter(self.where)
                where.check(NODE_SHAPE)
            except (FilterSyntaxError, EvaluationError) as error:
                raise PatternError(f"where: {error}") from None
        return NodeRule(
            PrincipalPattern(self.principal),
            _claim(self.node.id),
            _claim(self.node.cluster),
            {key: ClaimPattern(text) for key, text in self.node.metadata.items()},
            where,
            tuple(map(ClaimPattern, self.groups)),
        )


def _claim(text: str | None) -> ClaimPattern | None:
    return ClaimPattern(text) if text is not None else None


class NodesSettings(Section):
    """Which principal may be which node. ``mode`` is ``enforce`` where there are rules, else ``off``."""

    mode: Literal["off", "audit", "enforce"] | None = None
    rules: tuple[NodeRuleSettings, ...] = Field((), max_length=1_000)

    @field_validator("mode", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return "off" if value is False else value  # what YAML makes of a bare off

    @model_validator(mode="after")
    def _no_closed_door(self) -> NodesSettings:
        if self.mode in ("audit", "enforce") and not self.rules:
            raise ValueError(f"mode {self.mode} needs rules: without any, no client would be let in")
        return self

    def node_rules(self) -> NodeRules:
        """The same for the doors."""
        mode = self.mode or ("enforce" if self.rules else "off")
        return NodeRules(Mode(mode), tuple(rule.rule() for rule in self.rules))


class AuthSettings(Section):
    """Who may do what. Tokens are given as SHA-256 in hex: ``printf %s TOKEN | sha256sum``.

    Those in ``token_sha256`` may do everything.
    """

    token_sha256: tuple[Digest, ...] = ()
    tokens: tuple[TokenSettings, ...] = ()
    certificates: tuple[CertificateSettings, ...] = Field((), max_length=1_000)
    nodes: NodesSettings = NodesSettings()

    @field_validator("token_sha256", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        return tuple(value.split()) if isinstance(value, str) else value

    def access(self) -> Access:
        """All of it for the doors."""
        return Access(self.accepted(), tuple(entry.rule() for entry in self.certificates), self.nodes.node_rules())

    def told(self) -> dict[str, object]:
        """What the audit list says of it: who may do what, no secrets."""
        return {
            "tokens": {token.name: sorted(token.scopes) for token in self.tokens},
            "tokens_for_everything_n": len(self.token_sha256),
            "certificates": {entry.name: sorted(entry.scopes) for entry in self.certificates},
            "mode": self.nodes.node_rules().mode.value,
            "rules": [rule.principal for rule in self.nodes.rules],
        }

    def has_administrator(self) -> bool:
        """May any holder of a credential do everything?"""
        scopes = (*(each.scopes for each in self.tokens), *(each.scopes for each in self.certificates))
        return bool(self.token_sha256) or any(ADMIN in each for each in scopes)

    def accepted(self) -> Tokens:
        """All tokens with their grants."""
        scoped = [(token.sha256, Grant(token.name, token.scopes)) for token in self.tokens]
        # A token without a name is called by the begin of its hash: whoever writes has to be told apart.
        nameless = [(digest, Grant(f"token-{digest[:8]}")) for digest in self.token_sha256]
        return Tokens([*scoped, *nameless])
