"""Principals, the pattern language, and which node a principal may be."""

from __future__ import annotations

import string
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from xds.access.authorisation import (
    ANONYMOUS,
    Access,
    CertificateRule,
    ClaimPattern,
    Identity,
    NodeAuthMode,
    NodeRule,
    NodeRules,
    PatternError,
    Principal,
    PrincipalKind,
    PrincipalPattern,
    glob_escaped,
    scope_refusal,
    trials,
)
from xds.access.certificate import Certificate
from xds.access.tokens import ADMIN, READ, XDS, Grant, Tokens
from xds.filter.filter import compile_filter
from xds.model.node import Locality, Node

ANY_TEXT = st.text(string.ascii_letters + string.digits + "*?[]{}!-._/ é", max_size=12)
SEGMENT = st.text(string.ascii_letters + string.digits + "*?[]!-._ é", min_size=1, max_size=8)
EDGE_1 = Identity(
    Grant("edge-1", frozenset({XDS})), Certificate(("spiffe://corp/ns/shop/sa/edge-1",), ("e1.corp",), "E")
)


def uri(value: str) -> Principal:
    return Principal(PrincipalKind.URI, value)


# -- patterns of principals --------------------------------------------------------------------------------------------


@given(ns=SEGMENT, sa=SEGMENT)
def test_a_capture_is_one_segment_literally(ns: str, sa: str) -> None:
    pattern = PrincipalPattern("spiffe://corp/ns/{ns}/sa/{sa}")
    assert pattern.match(uri(f"spiffe://corp/ns/{ns}/sa/{sa}")) == {"ns": ns, "sa": sa}


@given(st.lists(ANY_TEXT, max_size=6))
def test_a_capture_never_holds_a_divider(parts: list[str]) -> None:
    value = "/".join(parts)
    found = PrincipalPattern("uri:{a}/x-{b}").match(uri(value))
    segments = value.split("/")
    fits = len(segments) == 2 and segments[0] != "" and segments[1].startswith("x-") and len(segments[1]) > 2
    assert found == ({"a": segments[0], "b": segments[1][2:]} if fits else None)


@given(SEGMENT, SEGMENT)
def test_a_name_that_stands_twice_is_the_same_twice(one: str, other: str) -> None:
    found = PrincipalPattern("uri:{a}/{a}").match(uri(f"{one}/{other}"))
    assert (found == {"a": one}) is (one == other)


@given(st.text("ab*?/", max_size=8), st.text("ab/", max_size=8))
def test_a_glob_stays_within_its_segment(pattern: str, value: str) -> None:
    assume("**" not in pattern.split("/") and pattern)
    globs, parts = pattern.split("/"), value.split("/")
    fits = len(globs) == len(parts) and all(map(fnmatchcase, parts, globs))
    assert (PrincipalPattern(f"uri:{pattern}").match(uri(value)) is not None) is fits


@pytest.mark.parametrize(
    ("pattern", "principal", "fits"),
    [
        ("spiffe://corp/ops/*", uri("spiffe://corp/ops/ann"), True),
        ("spiffe://corp/ops/*", uri("spiffe://corp/ops/ann/proxy"), False),
        ("spiffe://corp/ops/**", uri("spiffe://corp/ops/ann/proxy"), True),
        ("spiffe://corp/ops/**", uri("spiffe://corp/ops"), False),
        ("spiffe://corp/**", uri("spiffe://corporation/x"), False),
        ("spiffe://corp/a", uri("SPIFFE://corp/a"), False),
        ("dns:*.edge.corp", Principal(PrincipalKind.DNS, "E1.Edge.CORP"), True),
        ("dns:*.edge.corp", Principal(PrincipalKind.DNS, "a.b.edge.corp"), False),
        ("cn:{sa}.{ns}", Principal(PrincipalKind.CN, "web.shop"), True),
        ("token:edge-*", Principal(PrincipalKind.TOKEN, "edge-eu"), True),
        # Principals of different kinds differ, even if their text is equal.
        ("token:root", uri("token:root"), False),
        ("cn:root", uri("cn:root"), False),
        ("spiffe://corp/a", Principal(PrincipalKind.CN, "spiffe://corp/a"), False),
        ("uri:token:root", uri("token:root"), True),
    ],
)
def test_patterns_that_match_a_principal(pattern: str, principal: Principal, fits: bool) -> None:
    assert (PrincipalPattern(pattern).match(principal) is not None) is fits


@pytest.mark.parametrize(
    "wrong", ["edge-1", "", "jwt:x", "dns:", "uri:{a}{b}", "uri:{a}*", "uri:{a", "uri:a}", "uri:{}", "uri:a/**/b"]
)
def test_patterns_that_cannot_be_read(wrong: str) -> None:
    with pytest.raises(PatternError):
        PrincipalPattern(wrong)


def test_a_uri_that_looks_like_another_kind_has_its_kind() -> None:
    assert str(uri("token:root")) == "uri:token:root"
    assert str(uri("spiffe://corp/a")) == "spiffe://corp/a"


# -- claims ------------------------------------------------------------------------------------------------------------


@given(ANY_TEXT, ANY_TEXT)
def test_an_escaped_text_matches_itself_alone(text: str, other: str) -> None:
    assert fnmatchcase(text, glob_escaped(text))
    assert fnmatchcase(other, glob_escaped(text)) is (text == other)


@given(bound=SEGMENT, claimed=ANY_TEXT)
@pytest.mark.parametrize(("pattern", "prefix", "suffix"), [("{x}", "", ""), ("a-{x}", "a-", ""), ("{x}.b", "", ".b")])
def test_bound_values_are_literal(pattern: str, prefix: str, suffix: str, bound: str, claimed: str) -> None:
    found = ClaimPattern(pattern).matches(claimed, {"x": bound})
    assert found is (claimed == f"{prefix}{bound}{suffix}")


@given(bound=SEGMENT, rest=ANY_TEXT, other=ANY_TEXT)
def test_bound_values_match_nothing_more_beside_a_glob(bound: str, rest: str, other: str) -> None:
    pattern = ClaimPattern("{x}.*")
    assert pattern.matches(f"{bound}.{rest}", {"x": bound})
    assert pattern.matches(other, {"x": bound}) is other.startswith(f"{bound}.")


def test_a_rule_needs_what_it_uses() -> None:
    with pytest.raises(PatternError, match=r"captures no \{ns\}"):
        NodeRule(PrincipalPattern("cn:{sa}"), groups=(ClaimPattern("{ns}-*"),))


# -- rules -------------------------------------------------------------------------------------------------------------


def rule(principal: str = "spiffe://corp/ns/{ns}/sa/{sa}", **claims: Any) -> NodeRule:
    made: dict[str, Any] = {key: ClaimPattern(claims[key]) for key in ("id", "cluster") if key in claims}
    if "metadata" in claims:
        made["metadata"] = {key: ClaimPattern(text) for key, text in claims["metadata"].items()}
    if "where" in claims:
        made["where"] = compile_filter(claims["where"])
    return NodeRule(PrincipalPattern(principal), groups=tuple(map(ClaimPattern, claims.get("groups", ()))), **made)


def access(*rules: NodeRule, mode: NodeAuthMode = NodeAuthMode.ENFORCE) -> Access:
    return Access(nodes=NodeRules(mode, rules))


@pytest.mark.parametrize(
    ("claims", "node", "group", "reason"),
    [
        ({"id": "{sa}"}, Node("edge-1"), "g", ""),
        ({"id": "{sa}"}, Node("edge-2"), "g", "node.id 'edge-2' does not match 'edge-1'"),
        ({"id": "{sa}.{ns}.*"}, Node("edge-1.shop.x"), "g", ""),
        ({"cluster": "{ns}"}, Node("n", "shop"), "g", ""),
        ({"cluster": "{ns}"}, Node("n", "bank"), "g", "node.cluster 'bank' does not match 'shop'"),
        ({"metadata": {"NS": "{ns}"}}, Node("n", metadata={"NS": "shop"}), "g", ""),
        ({"metadata": {"NS": "{ns}"}}, Node("n"), "g", "node.metadata.NS '' does not match 'shop'"),
        ({"metadata": {"NS": "{ns}"}}, Node("n", metadata={"NS": ["shop"]}), "g", "node.metadata.NS is not a string"),
        ({"where": "node.locality.region == eu"}, Node("n", locality=Locality("eu")), "g", ""),
        ({"where": "node.locality.region == eu"}, Node("n"), "g", "does not match the filter"),
        ({"groups": ["{ns}-*", "common"]}, Node("n"), "shop-1", ""),
        ({"groups": ["{ns}-*", "common"]}, Node("n"), "common", ""),
        ({"groups": ["{ns}-*"]}, Node("n"), "bank-1", "group 'bank-1' does not match 'shop-*'"),
        ({"groups": ["{ns}-*"]}, Node("n"), "", ""),  # no group matches yet; checked again when one does
        ({}, Node("any"), "any", ""),
    ],
)
def test_conditions_of_a_rule_on_a_node(claims: dict[str, Any], node: Node, group: str, reason: str) -> None:
    refusal = access(rule(**claims)).refusal(EDGE_1, node, group)
    assert (refusal is None) is (not reason)
    assert reason in (refusal.reason if refusal is not None else "")


def test_one_rule_that_allows_is_enough_and_any_name_counts() -> None:
    refused = rule(id="other")
    assert access(refused, rule("dns:*.corp", id="edge-*")).refusal(EDGE_1, Node("edge-9"), "g") is None
    assert access(refused, rule("cn:E")).refusal(EDGE_1, Node("edge-9"), "g") is None
    assert access(refused).refusal(EDGE_1, Node("edge-9"), "g") is not None


def test_no_rule_allows_a_client_without_a_credential() -> None:
    refusal = access(rule("token:*"), rule("cn:*"), rule("uri:**")).refusal(ANONYMOUS, Node("n"), "g")
    assert refusal is not None
    assert "a client without credentials may not be node 'n'" in refusal.reason


def test_modes() -> None:
    wrong = rule(id="other")
    assert access(wrong, mode=NodeAuthMode.OFF).refusal(EDGE_1, Node("n"), "g") is None
    for mode, enforced in ((NodeAuthMode.AUDIT, False), (NodeAuthMode.ENFORCE, True)):
        refusal = access(wrong, mode=mode).refusal(EDGE_1, Node("n"), "g")
        assert refusal is not None
        assert refusal.enforced is enforced


def test_every_rule_gives_its_reason_for_a_refusal() -> None:
    rules = NodeRules(NodeAuthMode.AUDIT, (rule("token:x"), rule(id="other"), rule()))
    reasons = [each.why_not for each in trials(rules, EDGE_1, Node("n"), "g")]
    assert reasons == ["no principal matches token:x", "node.id 'n' does not match 'other'", ""]


# -- who asks ----------------------------------------------------------------------------------------------------------


def token(name: str, *scopes: str) -> tuple[str, Grant]:
    return sha256(name.encode()).hexdigest(), Grant(name, frozenset(scopes))


OPS = CertificateRule(PrincipalPattern("spiffe://corp/ops/*"), Grant("ops", frozenset({ADMIN})))
ANN = Certificate(("spiffe://corp/ops/ann",))


def test_a_certificate_without_an_entry_is_an_xds_client_at_most() -> None:
    doors = Access(certificates=(OPS,))
    proxy, ann = doors.admit("", EDGE_1.certificate), doors.admit("", ANN)
    assert proxy is not None
    assert ann is not None
    assert (proxy.grant.name, proxy.grant.scopes) == ("spiffe://corp/ns/shop/sa/edge-1", frozenset({XDS}))
    assert (ann.grant.name, ann.principal) == ("ops", "spiffe://corp/ops/ann")
    assert ann.grant.allows(ADMIN)
    nameless = doors.admit("", Certificate())
    assert nameless is not None
    assert nameless.grant.scopes == {XDS}


def test_nodes_that_the_rules_allow() -> None:
    tokens = Tokens([token("t", READ)])
    assert Access().admit("") is ANONYMOUS
    assert Access().admit("", wants_certificate=True) is None
    assert Access(tokens).admit("") is None
    shown = Access(tokens).admit("Bearer t", ANN)
    assert shown is not None
    assert (shown.principal, shown.grant.scopes) == ("token:t", frozenset({READ}))  # the token decides
    assert Access(tokens).admit("Bearer wrong", ANN) is None  # and an invalid token is not ignored
    assert Access(tokens).admit("", ANN) is not None


def test_a_reload_changes_the_rights_of_connections() -> None:
    doors = Access(Tokens([token("a", XDS), token("b", XDS)]), (OPS,))
    with_a, ann = doors.admit("Bearer a"), doors.admit("", ANN)
    assert with_a is not None
    assert ann is not None
    doors.assign(Access(Tokens([token("b", XDS)]), ()))
    assert doors.renew(with_a) is None
    renewed = doors.renew(ann)
    assert renewed is not None
    assert renewed.grant.scopes == {XDS}
    assert doors.renew(ANONYMOUS) is None
    doors.assign(Access())
    assert doors.renew(ANONYMOUS) is ANONYMOUS


@pytest.mark.parametrize(
    ("scopes", "node", "group", "covers"),
    [
        ({XDS}, "any", "any", True),
        ({ADMIN}, "any", "any", True),
        ({"xds:node/edge-*"}, "edge-1", "any", True),
        ({"xds:node/edge-*"}, "core-1", "any", False),
        ({"xds:group/edge"}, "any", "edge", True),
        ({"xds:group/edge"}, "any", "core", False),
        ({"xds:group/edge"}, "any", "", True),
        ({"xds:node/edge-*", "xds:group/edge"}, "edge-1", "core", False),
        ({"xds:node/edge-*", "xds:group/edge"}, "core-1", "edge", False),
        ({"xds:node/a", "xds:node/b"}, "b", "any", True),
    ],
)
def test_scopes_narrow(scopes: set[str], node: str, group: str, covers: bool) -> None:
    grant = Grant("t", frozenset(scopes))
    assert grant.allows(XDS)
    assert (scope_refusal(grant, node, group) == "") is covers
    refusal = Access().refusal(Identity(grant, None, b"x"), Node(node), group)  # whatever the mode of the rules is
    assert (refusal is None) is covers
