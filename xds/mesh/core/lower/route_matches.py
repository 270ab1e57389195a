"""Matches of a router as matches of Envoy's routes, with the places of their parts in the entry. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from xds.codec.findings import FieldPath
from xds.mesh.core.entries.router import HeaderMatch, HttpMatch, QueryParamMatch, Route, ServiceRouter
from xds.mesh.core.lower.envoy_fields import Json
from xds.mesh.core.lower.lowered import EntryPlace

_METHOD = ":method"


def lower_match(http: HttpMatch | None) -> Json:
    """A match. Without a condition on the path it has the prefix ``/``. Prefixes are compared as text, as in Consul."""
    if http is None:
        return {"prefix": "/"}
    headers = [_header(one) for one in http.header]
    if http.methods:
        headers.append({"name": _METHOD, "string_match": _regex("|".join(http.methods))})
    parameters = [_parameter(one) for one in http.query_param]
    return {
        **_path(http),
        **({"case_sensitive": False} if http.case_insensitive else {}),
        **({"headers": headers} if headers else {}),
        **({"query_parameters": parameters} if parameters else {}),
    }


def _path(http: HttpMatch) -> Json:
    if http.path_exact:
        return {"path": http.path_exact}
    return _regex(http.path_regex) if http.path_regex else {"prefix": http.path_prefix or "/"}


def _regex(text: str) -> Json:
    return {"safe_regex": {"regex": text}}


def _header(match: HeaderMatch) -> Json:
    inverted = {"invert_match": True} if match.invert else {}
    if match.present:
        return {"name": match.name, "present_match": True, **inverted}
    return {"name": match.name, "string_match": _text(match), **inverted}


def _text(match: HeaderMatch) -> Json:
    if match.exact:
        return {"exact": match.exact}
    if match.prefix:
        return {"prefix": match.prefix}
    return {"suffix": match.suffix} if match.suffix else _regex(match.regex)


def _parameter(match: QueryParamMatch) -> Json:
    if match.present:
        return {"name": match.name, "present_match": True}
    return {"name": match.name, "string_match": {"exact": match.exact} if match.exact else _regex(match.regex)}


def root_rewrite(route: Route) -> Json:
    """The rewrite of a prefix without a slash at its end to ``/``; empty where a route has no such rewrite.

    A slash behind the prefix is removed too: ``/api/users`` becomes ``/users``, not ``//users``.
    """
    http = route.match.http if route.match is not None else None
    prefix = http.path_prefix if http is not None else ""
    if http is None or not prefix or prefix.endswith("/"):
        return {}
    if route.destination is None or route.destination.prefix_rewrite != "/":
        return {}
    begins = f"{'(?i)' if http.case_insensitive else ''}^{re.escape(prefix)}"
    return {"pattern": {"regex": f"{begins}(/?)(.*)"}, "substitution": "/\\2"}


def match_places(route: Route, path: FieldPath, service: str, where: FieldPath) -> Iterator[EntryPlace]:
    """The places of the parts of a match. ``path`` is the lowered route, ``where`` the route in the entry."""
    http = route.match.http if route.match is not None else None
    if http is None:
        return
    match, origin = (*path, "match"), (*where, "Match", "HTTP")
    pairs: list[tuple[FieldPath, FieldPath]] = [
        ((), ()),
        (("path",), ("PathExact",)),
        (("prefix",), ("PathPrefix",)),
        (("safe_regex",), ("PathRegex",)),
        (("headers",), ("Methods",)),
    ]
    pairs += [(("headers", at), ("Header", at)) for at in range(len(http.header))]
    pairs += [(("query_parameters", at), ("QueryParam", at)) for at in range(len(http.query_param))]
    for field, own in pairs:
        yield EntryPlace((*match, *field), ServiceRouter.kind, service, (*origin, *own))
