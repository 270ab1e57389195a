"""Bearer tokens and their scopes. The server knows only the SHA-256 of a token.

Scopes: ``read`` (everything but secret values), ``write:group/GLOB`` (push to matching groups), ``secrets:read``
(secret values, together with ``read``), ``backup`` (take backups, which contain secret values), ``xds`` (be an xDS
client, for any node), ``xds:node/GLOB`` and ``xds:group/GLOB`` (be one of these nodes, in one of these groups; if both
are given, both must match), ``register:SERVICE-GLOB`` (register instances of matching services, whatever the case of
their names), ``admin`` (everything).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from hmac import compare_digest

from xds.model.compared_name import compared

HEADER = "authorization"
READ = "read"
SECRETS = "secrets:read"
BACKUP = "backup"
XDS = "xds"
ADMIN = "admin"
WRITE_GROUP = "write:group/"
XDS_NODE = "xds:node/"
XDS_GROUP = "xds:group/"
REGISTER = "register:"
REGISTER_ALL = "register:*"
PLAIN_SCOPES = (READ, SECRETS, BACKUP, XDS, ADMIN)

GLOB_SCOPES = (WRITE_GROUP, REGISTER, XDS_NODE, XDS_GROUP)  # prefixes of a glob
_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True, slots=True)
class Grant:
    """The scopes of a caller. ``name`` is that of its token, of the rule for its certificate, or of the certificate.

    ``name`` is empty for a token without a name, and if no credentials are configured.
    """

    name: str = ""
    scopes: frozenset[str] = frozenset({ADMIN})

    def allows(self, scope: str) -> bool:
        """Whether one of the scopes covers ``scope``."""
        if ADMIN in self.scopes or scope in self.scopes:
            return True
        if scope == XDS and any(granted.startswith((XDS_NODE, XDS_GROUP)) for granted in self.scopes):
            return True  # the node is checked when the client names it
        return any(self._covers(scope, prefix) for prefix in (WRITE_GROUP, REGISTER) if scope.startswith(prefix))

    def _covers(self, scope: str, prefix: str) -> bool:
        # A service is the same whatever the case of its name; groups differ by case.
        compare: Callable[[str], str] = compared if prefix == REGISTER else str
        name = compare(scope.removeprefix(prefix))
        globs = (granted.removeprefix(prefix) for granted in self.scopes if granted.startswith(prefix))
        return any(fnmatchcase(name, compare(glob)) for glob in globs)


EVERYTHING = Grant()


class Tokens:
    """The accepted tokens. Without any token every caller has all scopes.

    ``grants`` are pairs of a SHA-256 in hexadecimal and a grant. Raises ``ValueError`` for an invalid SHA-256.
    """

    def __init__(self, grants: Iterable[tuple[str, Grant]] = ()) -> None:
        stripped = [(digest.strip(), grant) for digest, grant in grants]
        if not all(_DIGEST.fullmatch(digest) for digest, _ in stripped):
            raise ValueError("a token hash must be the SHA-256 of the token, in hexadecimal")
        self._grants = [(bytes.fromhex(digest), grant) for digest, grant in stripped]

    def assign(self, other: Tokens) -> None:
        """Replace the accepted tokens."""
        self._grants = other._grants

    def __bool__(self) -> bool:
        return bool(self._grants)

    def admit(self, authorization: str) -> Grant | None:
        """The grant for an ``Authorization`` value, ``Bearer <token>``; None for an unknown token."""
        if not self._grants:
            return EVERYTHING
        match = self.find(authorization)
        return match[1] if match is not None else None

    def find(self, authorization: str) -> tuple[bytes, Grant] | None:
        """The hash and the grant of the token in an ``Authorization`` value; None for an unknown token.

        The token is compared with every known one, each in constant time.
        """
        scheme, _, token = authorization.partition(" ")
        presented = sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        matches = [grant for digest, grant in self._grants if compare_digest(digest, presented)]
        return (presented, matches[0]) if matches and scheme.lower() == "bearer" else None

    def named(self, name: str) -> tuple[bytes, Grant] | None:
        """The hash and the grant of the first token with this name."""
        return next((known for known in self._grants if name and known[1].name == name), None)

    def of(self, digest: bytes) -> Grant | None:
        """The grant of the token with this hash."""
        return next((grant for known, grant in self._grants if known == digest), None)


def write_scope(group: str) -> str:
    """The scope that a push to a group needs."""
    return WRITE_GROUP + group


def register_scope(service: str) -> str:
    """The scope that registering an instance of a service needs."""
    return REGISTER + service


def is_scope(text: str) -> bool:
    """Whether ``text`` is a valid scope."""
    return text in PLAIN_SCOPES or any(text.startswith(each) and len(text) > len(each) for each in GLOB_SCOPES)
