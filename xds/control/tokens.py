"""Bearer tokens and what they allow. Only the SHA-256 of a token is known to us.

Scopes: ``read`` (everything but secret values), ``write:group/GLOB`` (push to the groups that match), ``secrets:read``
(secret values, besides ``read``), ``backup`` (take backups: everything there is, secret values too), ``xds`` (be an xDS
client), ``admin`` (everything).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from hmac import compare_digest

HEADER = "authorization"
READ = "read"
SECRETS = "secrets:read"
BACKUP = "backup"
XDS = "xds"
ADMIN = "admin"
WRITE_GROUP = "write:group/"
PLAIN_SCOPES = (READ, SECRETS, BACKUP, XDS, ADMIN)

_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Grant:
    """What the bearer of a token may do. ``name`` is how logs and answers call it; empty for tokens without one."""

    name: str = ""
    scopes: frozenset[str] = frozenset({ADMIN})

    def allows(self, scope: str) -> bool:
        """True when one of the scopes covers this one."""
        if ADMIN in self.scopes or scope in self.scopes:
            return True
        group = scope.removeprefix(WRITE_GROUP)
        return group != scope and any(
            fnmatchcase(group, held.removeprefix(WRITE_GROUP)) for held in self.scopes if held.startswith(WRITE_GROUP)
        )


EVERYTHING = Grant()


class Tokens:
    """The accepted tokens. Without any, everybody is admitted to everything.

    ``grants`` are (SHA-256 in hexadecimal, grant); raises ``ValueError`` for what is no SHA-256.
    """

    def __init__(self, grants: Iterable[tuple[str, Grant]] = ()) -> None:
        known = [(digest.strip(), grant) for digest, grant in grants]
        if not all(_DIGEST.fullmatch(digest) for digest, _ in known):
            raise ValueError("a token hash must be the SHA-256 of the token, in hexadecimal")
        self._grants = [(bytes.fromhex(digest), grant) for digest, grant in known]

    def __bool__(self) -> bool:
        return bool(self._grants)

    def admit(self, authorization: str) -> Grant | None:
        """The grant behind an ``Authorization`` value, ``Bearer <token>``; None for nobody we know.

        Compares with every token, each in constant time.
        """
        if not self._grants:
            return EVERYTHING
        scheme, _, token = authorization.partition(" ")
        given = sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        found = [grant for digest, grant in self._grants if compare_digest(digest, given)]
        return found[0] if found and scheme.lower() == "bearer" else None


def write_scope(group: str) -> str:
    """What a push to a group needs."""
    return WRITE_GROUP + group


def is_scope(text: str) -> bool:
    """True for a scope that a token can be given."""
    return text in PLAIN_SCOPES or (text.startswith(WRITE_GROUP) and len(text) > len(WRITE_GROUP))
