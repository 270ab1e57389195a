"""Bearer tokens and what they allow. Only the SHA-256 of a token is known to us.

Scopes: ``read`` (everything but secret values), ``write:group/GLOB`` (push to the groups that match), ``secrets:read``
(secret values, besides ``read``), ``backup`` (take backups: everything there is, secret values too), ``xds`` (be an xDS
client, of any node), ``xds:node/GLOB`` and ``xds:group/GLOB`` (be one of these nodes, in these groups; each narrows),
``admin`` (everything).
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
XDS_NODE = "xds:node/"
XDS_GROUP = "xds:group/"
PLAIN_SCOPES = (READ, SECRETS, BACKUP, XDS, ADMIN)

_WITH_GLOB = (WRITE_GROUP, XDS_NODE, XDS_GROUP)
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a caller may do. ``name`` is that of its token or of its certificate's rule, or the certificate's own.

    It is empty for tokens without one, and where there are no credentials.
    """

    name: str = ""
    scopes: frozenset[str] = frozenset({ADMIN})

    def allows(self, scope: str) -> bool:
        """True when one of the scopes covers this one."""
        if ADMIN in self.scopes or scope in self.scopes:
            return True
        if scope == XDS and any(held.startswith((XDS_NODE, XDS_GROUP)) for held in self.scopes):
            return True  # which nodes it may be is judged when one is named
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

    def assign(self, other: Tokens) -> None:
        """From now on these are the accepted ones."""
        self._grants = other._grants

    def __bool__(self) -> bool:
        return bool(self._grants)

    def admit(self, authorization: str) -> Grant | None:
        """The grant behind an ``Authorization`` value, ``Bearer <token>``; None for nobody we know."""
        if not self._grants:
            return EVERYTHING
        found = self.find(authorization)
        return found[1] if found is not None else None

    def find(self, authorization: str) -> tuple[bytes, Grant] | None:
        """The token of an ``Authorization`` value, by its hash, and its grant; None for none of ours.

        Compares with every token, each in constant time.
        """
        scheme, _, token = authorization.partition(" ")
        given = sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        found = [grant for digest, grant in self._grants if compare_digest(digest, given)]
        return (given, found[0]) if found and scheme.lower() == "bearer" else None

    def named(self, name: str) -> tuple[bytes, Grant] | None:
        """The first token of this name, by its hash."""
        return next((known for known in self._grants if name and known[1].name == name), None)

    def of(self, digest: bytes) -> Grant | None:
        """The grant of a token by its hash."""
        return next((grant for known, grant in self._grants if known == digest), None)


def write_scope(group: str) -> str:
    """What a push to a group needs."""
    return WRITE_GROUP + group


def is_scope(text: str) -> bool:
    """True for a scope that a token can be given."""
    return text in PLAIN_SCOPES or any(text.startswith(each) and len(text) > len(each) for each in _WITH_GLOB)
