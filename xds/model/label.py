"""What a version_info says: whose push it was, and what is served.

A label that nobody chose is the revision with a hash of the set: ``5+1f3a9c07``. Of what is made of a set (overlays, a
part that is fetched, resources that a client keeps for a while) the label is that of the set with the other hash. A
caller's own label is served as given and gets a hash only where something is made of it.
"""

from __future__ import annotations

HASH_CHARS = 8


def hash_of(digest: bytes) -> str:
    """What a label shows of the digest of a set."""
    return digest.hex()[:HASH_CHARS]


def default_label(revision: int, digest: bytes) -> str:
    """The version_info of a type whose content changed with a push that says no label."""
    return f"{revision}+{hash_of(digest)}"


def made_label(label: str, digest: bytes, made: bytes) -> str:
    """The version_info of what is made of a set: ``digest`` is that of the set, ``made`` that of what is served."""
    return f"{stem(label, digest)}+{hash_of(made)}"


def stem(label: str, digest: bytes) -> str:
    """A set's label without the hash of the set; as it is where it does not end with that."""
    return label.removesuffix(f"+{hash_of(digest)}")
