"""Resources: named, versioned, serialized xDS objects."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """A resource named by another one, as found at push time.

    ``type_url`` and ``name`` say what is meant. ``source`` says where a client will ask for it: ``ads``, ``api`` (a
    gRPC stream of its own), ``rest`` (a poll), ``path``, ``self``, or ``config`` for a plain mention such as a route's
    cluster.

    The name ``*`` means all there are of a type that is discovered as a whole. As a plain mention of a cluster it means
    that the resource may lead to any cluster: something in it cannot be read, a script for instance.
    """

    type_url: str
    name: str
    source: str = "config"


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Resource:
    """One xDS object as it is stored and served.

    ``body`` is the canonical (deterministic) serialization of the message itself, without its ``Any``.
    ``version`` is the content hash, the same on every replica: see ``content_version``. ``ttl_s`` is told to Delta
    clients only. ``aliases`` are further names a Delta client may subscribe by.

    ``references`` and ``first_check_s`` are found in the message and are no part of the version: a later release may
    find more. ``first_check_s`` is of a cluster with active health checks: how long it takes at most until the first
    check says whether a new endpoint is healthy. 0 where nothing is checked.
    """

    type_url: str
    name: str
    body: bytes
    version: str
    aliases: tuple[str, ...] = ()
    ttl_s: float | None = None
    references: tuple[Reference, ...] = ()
    first_check_s: float = 0.0
