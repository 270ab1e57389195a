"""The secret with which servers of one store prove themselves to each other, and its change without a restart."""

from __future__ import annotations

from hmac import compare_digest

from xds.store.member_register import GONE_AFTER_S, SharedSecret

ACCEPTED_S = 60.0  # how long the secret of before is accepted


def sent(secret: SharedSecret) -> str:
    """What a server sends: the new secret once all members have heard of it."""
    return secret.previous if secret.previous and secret.age_s < GONE_AFTER_S else secret.current


def accepts(secret: SharedSecret, given: str) -> bool:
    """Whether this is the secret, or was it until a moment ago."""
    known = [secret.current]
    if secret.previous and secret.age_s < ACCEPTED_S:
        known.append(secret.previous)
    return any(compare_digest(each.encode(), given.encode()) for each in known)
