"""Resources: named, versioned, serialized xDS objects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference from one resource to another, found at push time.

    ``source`` says where a client will request the target: ``ads``, ``api`` (a
    gRPC stream of its own), ``rest`` (a poll), ``path``, ``self``, or ``config`` for a plain mention such as a route's
    cluster.

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
    """

    type_url: str
    name: str
    body: bytes
    version: str
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None
    references: tuple[Reference, ...] = ()
    first_check_s: float = 0.0
