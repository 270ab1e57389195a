"""The ``auth`` section of the settings: tokens, client certificates, node rules. `load_settings` reads it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from xds.access.authorisation import (
    Access,
    CertificateRule,
    ClaimPattern,
    NodeAuthMode,
    NodeRule,
    NodeRules,
    PatternError,
    PrincipalKind,
    PrincipalPattern,
)
from xds.access.tokens import (
    ADMIN,
    GLOB_SCOPES,
    PLAIN_SCOPES,
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
        raise ValueError("expected the SHA-256 of the token in lower-case hex, not the token")
    return value


Digest = Annotated[str, AfterValidator(_check_digest)]


def _known_scopes(value: frozenset[str]) -> frozenset[str]:
    for scope in sorted(value):
        if not is_scope(scope):
            known = (*PLAIN_SCOPES, *(f"{prefix}GLOB" for prefix in GLOB_SCOPES))
            raise ValueError(f"unknown scope: {scope!r} (one of {', '.join(known)})")
    return value


Scopes = Annotated[frozenset[str], Field(min_length=1), AfterValidator(_known_scopes)]
# The store has it with each change.
Actor = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")]


class TokenSettings(Section):
    """A token and its scopes: ``read``, ``write:group/GLOB``, ``secrets:read``, ``backup``, ``xds``, ``xds:node/GLOB``,
    ``xds:group/GLOB``, ``register:SERVICE-GLOB``, ``admin``."""

    name: Actor
    sha256: Digest
    scopes: Scopes


class CertificateSettings(Section):
    """The scopes of client certificates with a matching URI, DNS name or common name. The first match decides."""

    uri: str = ""
    dns: str = ""
    cn: str = ""
    name: Actor
    scopes: Scopes

    @model_validator(mode="after")
    def _one_name(self) -> CertificateSettings:
        if sum(map(bool, (self.uri, self.dns, self.cn))) != 1:
            raise ValueError("give exactly one of uri, dns and cn")
        self.rule()
        return self

    def rule(self) -> CertificateRule:
        """Raises ``PatternError``."""
        kind = PrincipalKind.URI if self.uri else PrincipalKind.DNS if self.dns else PrincipalKind.CN
        pattern = PrincipalPattern(self.uri or self.dns or self.cn, kind)
        return CertificateRule(pattern, Grant(self.name, self.scopes))


class ClaimSettings(Section):
    """Claims of a node: globs in which ``{x}`` stands for the text that the principal pattern has captured."""

    id: str | None = None
    cluster: str | None = None
    metadata: dict[str, str] = {}


class NodeRuleSettings(Section):
    """The nodes that a principal may be, and their groups. A field that is left out allows any value."""

    principal: str
    node: ClaimSettings = ClaimSettings()
    where: str = ""
    groups: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _readable(self) -> NodeRuleSettings:
        self.rule()
        return self

    def rule(self) -> NodeRule:
        """Raises ``ValueError`` for an invalid pattern or filter."""
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
    """Node authorisation. ``mode`` defaults to ``enforce`` with rules, and to ``off`` without."""

    mode: Literal["off", "audit", "enforce"] | None = None
    rules: tuple[NodeRuleSettings, ...] = Field((), max_length=1_000)

    @field_validator("mode", mode="before")
    @classmethod
    def _off(cls, value: object) -> object:
        return "off" if value is False else value  # YAML reads a bare off as false

    @model_validator(mode="after")
    def _mode_has_rules(self) -> NodesSettings:
        if self.mode in ("audit", "enforce") and not self.rules:
            raise ValueError(f"mode {self.mode} needs rules: without rules every client would be rejected")
        return self

    def node_rules(self) -> NodeRules:
        """The rules as the servers use them."""
        mode = self.mode or ("enforce" if self.rules else "off")
        return NodeRules(NodeAuthMode(mode), tuple(rule.rule() for rule in self.rules))


class AuthSettings(Section):
    """Authentication and authorisation. Tokens are given as SHA-256 in hex: ``printf %s TOKEN | sha256sum``.

    The tokens in ``token_sha256`` have all scopes.
    """

    token_sha256: tuple[Digest, ...] = ()
    tokens: tuple[TokenSettings, ...] = ()
    certificates: tuple[CertificateSettings, ...] = Field((), max_length=1_000)
    nodes: NodesSettings = NodesSettings()

    @model_validator(mode="after")
    def _one_entry_a_token(self) -> AuthSettings:
        """Of two entries of one token, one would decide its scopes, and the other would be ignored."""
        entries = [(token.sha256, f"token {token.name!r}") for token in self.tokens]
        entries += [(digest, "token_sha256") for digest in self.token_sha256]
        for digest, _ in entries:
            others = [other for each, other in entries if each == digest]
            if len(others) > 1:
                raise ValueError(f"one token has several entries: {', '.join(others)}")
        return self

    @field_validator("token_sha256", mode="before")
    @classmethod
    def _words(cls, value: object) -> object:
        return tuple(value.split()) if isinstance(value, str) else value

    def access(self) -> Access:
        """The rules as the servers use them."""
        return Access(self.accepted(), tuple(entry.rule() for entry in self.certificates), self.nodes.node_rules())

    def audit_summary(self) -> dict[str, object]:
        """The settings for the audit list, without secrets."""
        return {
            "tokens": {token.name: sorted(token.scopes) for token in self.tokens},
            "tokens_for_everything_n": len(self.token_sha256),
            "certificates": {entry.name: sorted(entry.scopes) for entry in self.certificates},
            "mode": self.nodes.node_rules().mode.value,
            "rules": [rule.principal for rule in self.nodes.rules],
        }

    def has_administrator(self) -> bool:
        """Whether any credential has the scope ``admin``."""
        scopes = (*(each.scopes for each in self.tokens), *(each.scopes for each in self.certificates))
        return bool(self.token_sha256) or any(ADMIN in each for each in scopes)

    def accepted(self) -> Tokens:
        """All tokens with their grants."""
        scoped = [(token.sha256, Grant(token.name, token.scopes)) for token in self.tokens]
        # A token without a name is named by the start of its hash, so that the audit list can tell tokens apart.
        nameless = [(digest, Grant(f"token-{digest[:8]}")) for digest in self.token_sha256]
        return Tokens([*scoped, *nameless])
