"""Resources: named, versioned, serialized xDS objects. Their versions depend only on content.

The ``version_info`` of a type is the caller's label for the push, or else the revision with a hash of the set:
``5+1f3a9c07``. A set that is derived from a pushed set (overlays, a fetched part, lingering resources) has the label of
the pushed set with its own hash. So a caller's label is served unchanged unless the set is derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

HASH_CHARS = 8  # hex digits of the hash of a set in a version_info
_VERSION_BYTES = 10


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference from one resource to another, found when the resource is pushed.

    ``source`` says where a client will request the target: ``ads``, ``api`` (a separate gRPC stream), ``rest`` (a
    poll), ``path``, ``self``, or ``config`` for a name that is not requested, such as the cluster of a route.

    The name ``*`` means every resource of a type that clients request as a whole. With the source ``config`` and the
    type of clusters it means that the resource may lead to any cluster, because part of it (a script) cannot be
    analysed.

    ``source_hash`` is the hash of the config source, 0 for none. Envoy subscribes once for each name and config source,
    so equal references share a subscription (docs/internals/clients.md#config-sources).
    """

    type_url: str
    name: str
    source: str = "config"
    source_hash: int = 0


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Resource:
    """One xDS object as it is stored and served.

    * ``body``: the canonical (deterministic) serialization of the message, without its ``Any``;
    * ``version``: the hash of the content, the same on every replica (`content_version`);
    * ``aliases``: further names to which a Delta client may subscribe;
    * ``ttl_s``: the TTL, sent to Delta clients only; None for none.

    The other fields are not part of the version:

    * ``references``: derived from the message; a later release of this software may derive more;
    * ``first_check_s``: the longest time of a cluster's first active health check of a new endpoint; 0 for resources
      without health checks; derived from the message as well;
    * ``is_lowered``: the server made the resource from config entries and the upstreams of its group; nobody pushed it.
    """

    type_url: str
    name: str
    body: bytes
    version: str
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None
    references: tuple[Reference, ...] = ()
    first_check_s: float = 0.0
    is_lowered: bool = False


def short_hash(digest: bytes) -> str:
    """The hex digits of a set's digest in a version_info."""
    return digest.hex()[:HASH_CHARS]


def default_version_info(revision: int, digest: bytes) -> str:
    """The version_info of a type that a push without a label changed."""
    return f"{revision}+{short_hash(digest)}"


def derived_version_info(label: str, digest: bytes, derived: bytes) -> str:
    """The version_info of a set that is derived from a pushed one.

    ``label`` and ``digest`` are those of the pushed set, ``derived`` is the digest of the derived set.
    """
    return f"{version_stem(label, digest)}+{short_hash(derived)}"


def version_stem(label: str, digest: bytes) -> str:
    """The label of a set without the hash of the set, if the label ends with that hash."""
    return label.removesuffix(f"+{short_hash(digest)}")


def content_version(body: bytes, aliases: Sequence[str] = (), ttl_s: float | None = None) -> str:
    """The resource version: a hash of what clients receive, equal on every replica and after restarts (rule 55)."""
    digest = blake2b(body, digest_size=_VERSION_BYTES)
    if aliases or ttl_s is not None:
        # The wrapper is part of the resource. Lengths make the hashed text unambiguous.
        ttl = float(ttl_s) if ttl_s is not None else None
        digest.update(repr((len(body), tuple(aliases), ttl)).encode())
    return digest.hexdigest()
