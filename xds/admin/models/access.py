"""Whether a credential may be a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedRule:
    """The result of one rule of ``auth.nodes``.

    * ``rule``: its position, from 1 on;
    * ``principal``: the principals that it is about, as a pattern;
    * ``allows``: whether it allows the node;
    * ``detail``: why it does not; empty if it does.
    """

    schema_name: ClassVar[str] = "TrialItem"

    rule: int
    principal: str
    allows: bool
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessVerdict:
    """Whether a credential may be a node, by its scopes and the rules of ``auth.nodes``.

    * ``principal``: the first principal of the credential; empty for none;
    * ``principals``: all principals of the credential;
    * ``name``: the name of the token, or of the rule for the certificate; empty for none;
    * ``scopes``: the scopes of the credential;
    * ``group``: the group of the node; null if no group matches. The node is checked again once one does;
    * ``chosen_by``: why it is in that group, as ``rule`` in ``GroupCandidateItem``; null if no group matches;
    * ``mode``: ``enforce`` (a node that is not allowed is rejected), ``audit`` (it is logged) or ``off``;
    * ``allowed``: the result of scopes and rules, whatever ``mode`` is;
    * ``reason``: why the node is not allowed; empty if it is;
    * ``rules``: the result of each rule.
    """

    schema_name: ClassVar[str] = "VerdictItem"

    principal: str
    principals: tuple[str, ...]
    name: str
    scopes: tuple[str, ...]
    node: str
    group: str | None
    chosen_by: str | None
    mode: str
    allowed: bool
    reason: str
    rules: tuple[TriedRule, ...]
