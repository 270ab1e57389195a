"""The names of resources that a client may know: limits for requests count only the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xds.model.snapshot import ResourceSet
from xds.protocol.cache import SnapshotCache, View
from xds.protocol.client import ClientState


def known_sets(
    type_url: str, view: View | None, client: ClientState | None, cache: SnapshotCache
) -> Iterator[ResourceSet]:
    """The sets of a type that were pushed, released to the client, or retained; none while no group matches."""
    if view is not None:
        yield view.snapshot.get(type_url)
        if client is not None:
            yield client.release_of(type_url)
        yield from cache.retained_sets((view.group,), type_url, view.api_version)


def unknown_among(names: frozenset[str], sets: Iterable[ResourceSet]) -> frozenset[str]:
    """The names that no resource of the sets has."""
    for each in sets:
        for known in (each.resources, each.by_alias):
            names = names.difference(known) if known else names
        if not names:
            break
    return names


def number_of_names(sets: Iterable[ResourceSet]) -> int:
    """How many names and aliases the sets have; those of several sets count several times."""
    return sum(len(each.resources) + len(each.by_alias) for each in sets)
