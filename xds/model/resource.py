"""Resources: named, versioned, serialized xDS objects; their versions, which depend on content only.

The ``version_info`` of a type is the caller's label for the push, or else the revision with a hash of the set:
``5+1f3a9c07``. A set that is derived from a pushed one (overlays, a fetched part, lingering resources) gets the label
of the pushed set with its own hash. A caller's label is served unchanged, and gets a hash only for a derived set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

HASH_CHARS = 8  # of the hash of a set in a version_info
_VERSION_BYTES = 10


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference from one resource to another, found at push time.

    ``source`` says where a client will request the target: ``ads``, ``api`` (a gRPC stream of its own), ``rest`` (a
    poll), ``path``, ``self``, or ``config`` for a plain mention such as a route's cluster.

    The name ``*`` means every resource of a type that clients discover as a whole. As a plain mention of a cluster it
    means that the resource may lead to any cluster: part of it, such as a script, cannot be analysed.
    """

    type_url: str
    name: str
    source: str = "config"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Resource:
    """One xDS object as it is stored and served.

    ``body`` is the canonical (deterministic) serialization of the message itself, without its ``Any``. ``version`` is
    the content hash, the same on every replica: see ``content_version``. ``ttl_s`` is sent to Delta clients only.
    ``aliases`` are further names that a Delta client may subscribe to.

    ``references`` and ``first_check_s`` are derived from the message and are not part of the version: a later release
    may derive more. ``first_check_s`` is the longest that a cluster's first active health check of a new endpoint
    takes; 0 for resources without health checks.

    ``is_lowered``: the server made it from config entries and the upstreams of its group; nobody pushed it. This is not
    part of the version.
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


def content_version(body: bytes, aliases: Sequence[str] = (), ttl_s: float | None = None) -> str:
    """The resource version: a hash of what clients receive, equal on every replica and after restarts (rule 55)."""
    digest = blake2b(body, digest_size=_VERSION_BYTES)
    if aliases or ttl_s is not None:
        # The wrapper is part of the resource; length prefixes keep the encoding unambiguous.
        ttl = float(ttl_s) if ttl_s is not None else None
        digest.update(repr((len(body), tuple(aliases), ttl)).encode())
    return digest.hexdigest()
