"""Bearer tokens: only their SHA-256 is known to us."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest

HEADER = "authorization"


class Tokens:
    """The accepted tokens. Without any, everybody is admitted.

    ``hashes`` are hexadecimal; raises ``ValueError`` for one that is no SHA-256.
    """

    def __init__(self, hashes: Iterable[str] = ()) -> None:
        self._digests = [bytes.fromhex(each.strip()) for each in hashes]
        if any(len(digest) != sha256().digest_size for digest in self._digests):
            raise ValueError("a token hash must be the SHA-256 of the token, in hexadecimal")

    def __bool__(self) -> bool:
        return bool(self._digests)

    def admit(self, authorization: str) -> bool:
        """Judge an ``Authorization`` value, ``Bearer <token>``; always compares with every token."""
        if not self._digests:
            return True
        scheme, _, token = authorization.partition(" ")
        given = sha256(token.strip().encode("utf-8", "surrogateescape")).digest()
        found = [compare_digest(digest, given) for digest in self._digests]
        return any(found) and scheme.lower() == "bearer"
