"""Checks of routes that Envoy rejects although each field is valid: regular expressions, headers. Pure.

Entries are stored without these checks, as in Consul. An upstream with such a route in its chain is refused, so that no
proxy gets a route that it would reject.
"""

from __future__ import annotations

from collections.abc import Iterator

from xds.codec.findings import FieldPath, short_repr
from xds.codec.format_commands import command_problem
from xds.consul.shared import HeaderModifiers
from xds.filter.regular_expressions import LargePatternError, program_size
from xds.mesh.core.chain.chain import DiscoveryChain, RouterNode, SplitterNode
from xds.mesh.core.entries.router import Route, ServiceRouter
from xds.mesh.core.entries.splitter import ServiceSplitter
from xds.mesh.core.lower.mesh_names import service_of
from xds.mesh.core.lower.route_matches import root_rewrite
from xds.mesh.core.lower.upstream_context import UpstreamContext

_Place = tuple[str, str, FieldPath]
_PERCENT_HINT = "write %% for a percent sign"
_SIZE_HINT = (
    "Envoy refuses it unless its runtime says otherwise (re2.max_program_size.error_level): make it simpler, or set "
    "regex_program_size of the upstreams document to what the proxies allow"
)


def check_routes(context: UpstreamContext) -> None:
    """Check the regular expressions and header changes in the routes and splits of a chain."""
    chain = context.chain
    start = chain.start
    if isinstance(start, RouterNode):
        for index, route in enumerate(start.routes):
            _check_regexes(context, route.definition, ("Routes", index))
            destination = route.definition.destination
            if destination is not None:
                place: _Place = (ServiceRouter.kind, chain.service, ("Routes", index, "Destination"))
                _check_headers(context, place, destination.request_headers, destination.response_headers)
    for name, node in _splitters(chain):
        for split in node.splits:
            definition, place = split.definition, (ServiceSplitter.kind, name, ("Splits",))
            _check_headers(context, place, definition.request_headers, definition.response_headers)


def _splitters(chain: DiscoveryChain) -> Iterator[tuple[str, SplitterNode]]:
    for _, node in sorted(chain.nodes.items()):
        if isinstance(node, SplitterNode):
            yield service_of(chain, node), node


# Regular expressions


def _check_regexes(context: UpstreamContext, route: Route, path: FieldPath) -> None:
    for text, where in _regexes(route):
        if text:
            _check_regex(context, text, (*path, *where))


def _regexes(route: Route) -> Iterator[tuple[str, FieldPath]]:
    """The regular expressions of a route, each with its field. The rewrite of a prefix may need one."""
    http = route.match.http if route.match is not None else None
    if http is None:
        return
    yield http.path_regex, ("Match", "HTTP", "PathRegex")
    yield from ((one.regex, ("Match", "HTTP", "Header", at, "Regex")) for at, one in enumerate(http.header))
    yield from ((one.regex, ("Match", "HTTP", "QueryParam", at, "Regex")) for at, one in enumerate(http.query_param))
    rewrite = root_rewrite(route)
    if rewrite:
        yield rewrite["pattern"]["regex"], ("Destination", "PrefixRewrite")


def _check_regex(context: UpstreamContext, text: str, path: FieldPath) -> None:
    service, limit = context.chain.service, context.proxies.regex_program_size
    try:
        size = program_size(text)
    except LargePatternError as error:
        context.refuse("large_regex", f"{short_repr(text)}: {error}", ServiceRouter.kind, service, path, _SIZE_HINT)
        return
    except ValueError as error:
        detail = f"{short_repr(text)} is not a regular expression of RE2: {error}"
        context.refuse("bad_regex", detail, ServiceRouter.kind, service, path)
        return
    if size > limit:
        detail = f"{short_repr(text)} has a program size of {size}; {limit} are allowed"
        context.refuse("large_regex", detail, ServiceRouter.kind, service, path, _SIZE_HINT)


# Headers


def _check_headers(
    context: UpstreamContext, place: _Place, request: HeaderModifiers | None, response: HeaderModifiers | None
) -> None:
    kind, name, path = place
    # The leg of a splitter cannot be named: flattened legs come from several splitters.
    is_leg = kind == ServiceSplitter.kind
    for field, changes in (("RequestHeaders", request), ("ResponseHeaders", response)):
        if changes is None:
            continue
        where = path if is_leg else (*path, field)
        for key in {**changes.add, **changes.set, **dict.fromkeys(changes.remove)}:
            if key.startswith(":") or key.lower() == "host":
                context.refuse("fixed_header", f"Envoy does not change the header {key}", kind, name, where)
        for key, value in {**changes.add, **changes.set}.items():
            problem = command_problem(value)
            if problem:
                detail = f"header {key}: {short_repr(value)} {problem}"
                context.refuse("bad_header_value", detail, kind, name, where, _PERCENT_HINT)
