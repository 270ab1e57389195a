"""What a version_info says: whose push it was, and what is served.

A label that nobody chose is the revision with a hash of the set: ``5+1f3a9c07``. Of what is made of a set (overlays, a
part that is fetched, resources that a client keeps for a while) the label is that of the set with the other hash. A
caller's own label is served as given and gets a hash only where something is made of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

HASH_CHARS = 8


def short_hash(digest: bytes) -> str:
    """What a label shows of the digest of a set."""
    return digest.hex()[:HASH_CHARS]


def default_version_info(revision: int, digest: bytes) -> str:
    """The version_info of a type whose content changed with a push that says no label."""
    return f"{revision}+{short_hash(digest)}"


def derived_version_info(label: str, digest: bytes, made: bytes) -> str:
    """The version_info of what is made of a set: ``digest`` is that of the set, ``made`` that of what is served."""
    return f"{version_stem(label, digest)}+{short_hash(made)}"


def version_stem(label: str, digest: bytes) -> str:
    """A set's label without the hash of the set; as it is where it does not end with that."""
    return label.removesuffix(f"+{short_hash(digest)}")


_VERSION_BYTES = 10


def content_version(body: bytes, aliases: Sequence[str] = (), ttl_s: float | None = None) -> str:
    """The resource version: a hash of what a client would get, independent of replica and restart (rule 55)."""
    digest = blake2b(body, digest_size=_VERSION_BYTES)
    if aliases or ttl_s is not None:
        # A change of the wrapper is a change of the resource; length prefixes keep the encoding unambiguous.
        ttl = float(ttl_s) if ttl_s is not None else None
        digest.update(repr((len(body), tuple(aliases), ttl)).encode())
    return digest.hexdigest()
