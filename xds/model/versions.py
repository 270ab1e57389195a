"""Resource versions and ``version_info``: strings that depend on content only.

The ``version_info`` of a type is the caller's label for the push, or else the revision with a hash of the set:
``5+1f3a9c07``. A set that is derived from a pushed one (overlays, a fetched part, lingering resources) gets the label
of the pushed set with its own hash. A caller's label is served unchanged, and gets a hash only for a derived set.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

HASH_CHARS = 8


def short_hash(digest: bytes) -> str:
    """The part of a set's digest that a version_info shows."""
    return digest.hex()[:HASH_CHARS]


def default_version_info(revision: int, digest: bytes) -> str:
    """The version_info of a type that changed in a push without a label."""
    return f"{revision}+{short_hash(digest)}"


def derived_version_info(label: str, digest: bytes, made: bytes) -> str:
    """The version_info of a set derived from another: ``digest`` is that of the pushed set, ``made`` of the served
    one.
    """
    return f"{version_stem(label, digest)}+{short_hash(made)}"


def version_stem(label: str, digest: bytes) -> str:
    """A set's label without the hash of the set, if it ends with that hash."""
    return label.removesuffix(f"+{short_hash(digest)}")


_VERSION_BYTES = 10


def content_version(body: bytes, aliases: Sequence[str] = (), ttl_s: float | None = None) -> str:
    """The resource version: a hash of what clients receive, equal on every replica and after restarts (rule 55)."""
    digest = blake2b(body, digest_size=_VERSION_BYTES)
    if aliases or ttl_s is not None:
        # The wrapper is part of the resource; length prefixes keep the encoding unambiguous.
        ttl = float(ttl_s) if ttl_s is not None else None
        digest.update(repr((len(body), tuple(aliases), ttl)).encode())
    return digest.hexdigest()
