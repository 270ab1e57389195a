"""Tokens: which are accepted, and what a scope covers."""

from __future__ import annotations

from hashlib import sha256

import pytest

from xds.access.tokens import ADMIN, EVERYTHING, READ, SECRETS, XDS, Grant, Tokens, is_scope, write_scope


def digest(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def test_the_bearer_is_found_among_all() -> None:
    reader = Grant("reader", frozenset({READ}))
    tokens = Tokens([(digest("a"), reader), (digest("b"), EVERYTHING)])
    assert tokens.admit("Bearer a") is reader
    assert tokens.admit("bearer b ") is EVERYTHING
    for stranger in ("", "a", "Bearer", "Bearer c", "Basic a", "Bearer \udcff"):
        assert tokens.admit(stranger) is None, stranger


def test_without_tokens_everybody_may_do_everything() -> None:
    assert not Tokens()
    assert Tokens().admit("") is EVERYTHING


@pytest.mark.parametrize("wrong", ["secret", "abcd", "g" * 64, "0" * 65])
def test_only_digests_are_taken(wrong: str) -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        Tokens([(wrong, EVERYTHING)])


def test_rights_of_a_scope() -> None:
    grant = Grant("ci", frozenset({READ, "write:group/edge-*"}))
    assert grant.allows(READ)
    assert grant.allows(write_scope("edge-eu"))
    assert not grant.allows(write_scope("core"))
    assert not any(grant.allows(scope) for scope in (SECRETS, XDS, ADMIN))
    assert all(EVERYTHING.allows(scope) for scope in (READ, SECRETS, XDS, ADMIN, write_scope("any")))
    assert not Grant("x", frozenset({"write:group/read"})).allows(READ)


def test_scopes_by_name() -> None:
    assert all(map(is_scope, ("read", "secrets:read", "xds", "admin", "write:group/*")))
    assert not any(map(is_scope, ("", "write", "write:group/", "Read", "write:node/x")))
