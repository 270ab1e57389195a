"""Resource sets under the v2 API, for clients on the v2 transport, and resources that v2 cannot express."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import structlog

from xds.codec.downgrade import downgrade
from xds.fleet.fleet import Fleet
from xds.fleet.node_state import NodeState
from xds.fleet.state import TypeState
from xds.model.resource import Resource, derived_version_info, version_stem
from xds.model.resource_type import V2_URLS, resource_type
from xds.model.snapshot import Derivation, ResourceSet, content_digest
from xds.snapshots.cache import SnapshotCache
from xds.snapshots.lines import GroupLine

V2 = "v2"
V2_TYPES = frozenset(V2_URLS.values())
PROBLEM_LIMIT = 500  # characters
SHOWN_LIMIT = 100

_log = structlog.get_logger(logger_name="xds.envoy.translation")


def translate_to_v2(resource_set: ResourceSet) -> ResourceSet | None:
    """The set under its v2 type URL; None if v2 has no such type. Resources that v2 cannot express are left out."""
    type_url = V2_URLS.get(resource_set.type.type_url)
    if type_url is None:
        return None
    members: dict[str, Resource] = {}
    omitted: dict[str, str] = {}
    for name, resource in resource_set.resources.items():
        downgraded = downgrade(resource)
        if downgraded.resource is not None:
            members[name] = downgraded.resource
        else:
            omitted[name] = downgraded.problem[:PROBLEM_LIMIT]
    if omitted:
        name, problem = next(iter(omitted.items()))
        _log.warning(
            "resource.not_in_v2",
            type=resource_set.type.alias,
            resources_n=len(omitted),
            resource=name,
            error_message=problem,
        )
    version_info = resource_set.version_info
    if version_stem(version_info, resource_set.digest) != version_info:
        digest = content_digest((name, resource.version) for name, resource in members.items())
        version_info = derived_version_info(version_info, resource_set.digest, digest)
    derivation = Derivation(origin_id=resource_set.origin_id, omitted=omitted, observed=resource_set.observed)
    return ResourceSet(resource_type(type_url), version_info, members, derivation=derivation)


def variant_sets(
    cache: SnapshotCache,
    fleet: Fleet,
    group: str,
    type_urls: Collection[str],
    line: GroupLine = GroupLine.HEAD,
) -> dict[str, dict[str, ResourceSet]]:
    """The sets that streams of other APIs than v3 are served on a line: by API and type URL."""
    urls = {V2_URLS.get(type_url, type_url) for type_url in type_urls}
    by_api: dict[str, dict[str, ResourceSet]] = {}
    for api in fleet.apis(group) - {""}:
        view = cache.view(group, api, line=line)
        sets = view.snapshot.sets if view is not None else {}
        by_api[api] = {url: sets[url] for url in urls if url in sets}
    return by_api


@dataclass(frozen=True, slots=True)
class UnexpressedResource:
    """A requested resource that is not sent, because the API of the node cannot express it."""

    name: str
    problem: str


def unexpressed(cache: SnapshotCache, node: NodeState, line: GroupLine) -> dict[str, tuple[UnexpressedResource, ...]]:
    """The requested resources that the API of a connected node cannot express, by type alias. The lists are bounded.

    ``line`` is that of the node.
    """
    by_type: dict[str, tuple[UnexpressedResource, ...]] = {}
    for stream in node.streams:
        view = cache.view(node.group, stream.api, line=line) if stream.api else None
        if view is None:
            continue
        for state in stream.types:
            unsent = islice(_wanted(state, view.snapshot.get(state.type_url).omitted), SHOWN_LIMIT)
            members = dict.fromkeys((*by_type.get(state.type, ()), *unsent))
            if members:
                by_type[state.type] = tuple(members)[:SHOWN_LIMIT]
    return by_type


def _wanted(state: TypeState, omitted: Mapping[str, str]) -> Iterator[UnexpressedResource]:
    # Omitted resources are listed as missing. Both lists are bounded.
    named = {*state.names, *state.missing}
    return (UnexpressedResource(name, problem) for name, problem in omitted.items() if state.wildcard or name in named)
