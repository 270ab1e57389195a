"""Resources as texts, with the references that the codec would find in real ones.

A text is words with blanks between them. Words that begin with ``@`` mean nothing: they tell contents apart.

=========== ==================== ====================================================================================
of          word                 meaning
=========== ==================== ====================================================================================
clusters    ``eds:x``            its assignment is ``x``; without it, the one of its own name
            ``api`` ``rest``     the assignment comes on a stream, or by a poll, of its own
            ``static``           no assignment: its endpoints are its own
            ``of:a,b``           an aggregate of these clusters
            ``in:l``             no assignment: its endpoints name the internal listener ``l``
            ``hc:8``             warm only when its first health check has finished: after 8 seconds
            ``sds:s``            warm only with this secret
            any other word       means nothing
endpoints   ``in:l``             an endpoint that names the internal listener ``l``
            any other word       endpoints; an empty text: none
listeners   ``r``                the routes are the route configuration ``r`` (RDS)
            ``to:a``             an inline route to cluster ``a``
            ``ecds:f`` ``sds:s`` a filter by ECDS, a secret: the listener warms until the client has them
            ``authz``            an authorisation filter
            ``internal``         no socket: requests reach it through a cluster that says ``in:`` only
            ``lua``              code that may choose any cluster
routes      ``a``                a route to cluster ``a``
            ``/admin``           a path that only listeners with ``authz`` should have
            ``lua``              as above
ECDS        ``to:a`` ``lua``     as above, and ``authz``, ``sds:s``
these       ``other``            its references are by another config source than those without this word
all         ``bad``              refused when it is applied
            ``malformed``        refused when the response is read, with everything else in it
=========== ==================== ====================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from tests.support.sansio import Content, Server, make_resource
from xds.model.resource import Reference, Resource, default_version_info
from xds.model.resource_type import CLUSTER, ENDPOINT, EXTENSION_CONFIG, LISTENER, ROUTE, SECRET
from xds.model.snapshot import Snapshot

TARGET = "svc"  # the listener of the sites below
BAD, MALFORMED = "bad", "malformed"
ADMIN, AUTHZ, INTERNAL, OTHER = "/admin", "authz", "internal", "other"
ANY_CLUSTER = "*"
Site = dict[str, dict[str, str]]
_FLAGS = frozenset((BAD, MALFORMED, ADMIN, AUTHZ, INTERNAL, OTHER, "api", "rest", "static", "lua"))


class Text(NamedTuple):
    """The words of a text by their meaning."""

    names: tuple[str, ...] = ()  # words that are nothing else
    flags: frozenset[str] = frozenset()
    to: tuple[str, ...] = ()
    sds: tuple[str, ...] = ()
    ecds: tuple[str, ...] = ()
    eds: str = ""
    check_s: float = 0.0
    members: tuple[str, ...] = ()
    inner: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def parse(text: str) -> Text:
    """The parsed text."""
    words = text.split()
    named: dict[str, list[str]] = {"to": [], "sds": [], "ecds": [], "eds": [], "hc": [], "of": [], "in": []}
    names = []
    for word in words:
        kind, _, name = word.partition(":")
        if name and kind in named:
            named[kind].append(name)
        elif word not in _FLAGS and not word.startswith("@"):
            names.append(word)
    return Text(
        names=tuple(names),
        flags=_FLAGS.intersection(words),
        to=tuple(named["to"]),
        sds=tuple(named["sds"]),
        ecds=tuple(named["ecds"]),
        eds=next(iter(named["eds"]), ""),
        check_s=float(next(iter(named["hc"]), 0)),
        members=tuple(member for each in named["of"] for member in each.split(",")),
        inner=tuple(named["in"]),
    )


def assignment_of(name: str, text: str) -> str:
    """The assignment of a cluster; empty for one that has none."""
    parsed = parse(text)
    return "" if parsed.members or parsed.inner or "static" in parsed.flags else parsed.eds or name


def references_of(url: str, name: str, text: str, source: str = "ads") -> tuple[Reference, ...]:
    """The references of a text. ``source``: where a client requests them, ``ads`` or ``api``."""
    found = dict.fromkeys(_references(url, name, text, source))
    return tuple(replace(each, source_hash=1) for each in found) if OTHER in parse(text).flags else tuple(found)


def _references(url: str, name: str, text: str, source: str) -> Iterator[Reference]:
    parsed = parse(text)
    if url == CLUSTER:
        if assignment := assignment_of(name, text):
            yield Reference(ENDPOINT, assignment, next(iter(parsed.flags & {"api", "rest"}), source))
        yield from (Reference(CLUSTER, member) for member in parsed.members)
        yield from (Reference(LISTENER, listener) for listener in parsed.inner)
    elif url == LISTENER:
        yield from (Reference(ROUTE, route, source) for route in parsed.names)
        yield from (Reference(EXTENSION_CONFIG, each, source) for each in parsed.ecds)
    elif url == ENDPOINT:
        yield from (Reference(LISTENER, listener) for listener in parsed.inner)
    elif url == ROUTE:
        yield from (Reference(CLUSTER, cluster) for cluster in parsed.names)
    if url in (CLUSTER, LISTENER, EXTENSION_CONFIG):
        yield from (Reference(SECRET, secret, source) for secret in parsed.sds)
    if url in (LISTENER, EXTENSION_CONFIG):
        yield from (Reference(CLUSTER, cluster) for cluster in parsed.to)
    if "lua" in parsed.flags:
        yield Reference(CLUSTER, ANY_CLUSTER)


def resources_of(content: Content, source: str = "ads", ttls: Mapping[str, float] | None = None) -> Iterable[Resource]:
    """The resources of texts. ``ttls``: type URL to the TTL of all resources of that type."""
    for url, texts in content.items():
        ttl_s = (ttls or {}).get(url)
        for name, text in texts.items():
            references = references_of(url, name, text, source)
            made = make_resource(url, name, text, ttl_s=ttl_s, references=references)
            yield replace(made, first_check_s=parse(text).check_s if url == CLUSTER else 0.0)


def push(
    server: Server,
    content: Content,
    group: str = "default",
    *,
    source: str = "ads",
    label: str = "",
    on_nack: str = "hold",
    wake: bool = True,
    ttls: Mapping[str, float] | None = None,
) -> Snapshot:
    """Publish texts, with the references that the codec would find in them."""
    resources = resources_of(content, source, ttls)
    return server.push_resources(
        resources, group, label, types=content, on_nack=on_nack, wake=wake, label_of=default_version_info
    )


def site(
    *clusters: str, name: str = TARGET, route: str = "r1", listener: str = "", text: str = "@1", load: str = "1"
) -> Site:
    """A listener with a route configuration for these clusters; or with another text, and no routes."""
    return {
        CLUSTER: dict.fromkeys(clusters, text),
        ENDPOINT: dict.fromkeys(clusters, load),
        LISTENER: {name: listener or route},
        ROUTE: {} if listener else {route: " ".join(clusters)},
    }


def joined(*sites: Site) -> Site:
    """Several sites in one; if they share a name, the last one counts."""
    whole: Site = {}
    for each in sites:
        for url, texts in each.items():
            whole.setdefault(url, {}).update(texts)
    return whole
