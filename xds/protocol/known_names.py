"""The names of resources that a client may know: limits for requests count only the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from xds.model.snapshot import ResourceSet
from xds.protocol.client import ClientState
from xds.protocol.name_budget import NAME_OVERHEAD, check_at_once
from xds.protocol.requests import StreamLimits
from xds.snapshots.cache import View
from xds.snapshots.diffs import Diffs


def known_sets(type_url: str, view: View | None, client: ClientState | None) -> Iterator[ResourceSet]:
    """The sets of a type that were pushed, released to the client, or removed; none while no group matches."""
    if view is not None:
        yield view.snapshot.get(type_url)
        if client is not None:
            yield client.release_of(type_url)
        yield view.log.last(type_url)


def unknown_among(names: frozenset[str], sets: Iterable[ResourceSet], diffs: Diffs) -> frozenset[str]:
    """The names that no resource of the sets has."""
    for each in sets:
        if not names:
            break
        names = diffs.unknown(names, each)
    return names


def check_unread(
    limits: StreamLimits, names: int, versions: int, size: int, subscribed: Collection[str], sets: Sequence[ResourceSet]
) -> None:
    """Refuse a request of ``size`` bytes with so many names and versions that its client cannot know them all.

    ``subscribed`` are the names that it subscribes to, ``sets`` as in `known_sets`. Raises ``LimitError``.
    """
    known = sum(len(each.resources) + len(each.by_alias) for each in sets)
    limits.check_count(names - known - len(subscribed), versions - known)
    # Each name that it knows may be in the request twice: once with its version.
    known_bytes = sum(_size_of(each) for one in sets for each in (one.resources, one.by_alias)) + _size_of(subscribed)
    check_at_once(size - 2 * known_bytes, limits.unknown_name_bytes)


def _size_of(names: Collection[str]) -> int:
    """The bytes that a request needs at most for these names, or for these names with their versions."""
    return len("".join(names).encode()) + NAME_OVERHEAD * len(names)
