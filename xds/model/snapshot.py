"""Snapshots: all resources of a group at one revision, type by type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import count
from types import MappingProxyType

from xds.model.resource import Resource
from xds.model.resource_type import ResourceType, resource_type

UNION_SUFFIX = "~union"

_ids = count(1)


class ResourceSet:
    """All resources of one type, immutable, shared by every stream that follows it.

    ``resources`` maps name to resource in pushed order. ``id`` is unique in the process and never reused (it keys
    caches); ``digest`` says whether two sets hold the same content. A set that was translated for clients of another
    API names the one that was pushed in ``origin_id``, and in ``omitted`` what it lacks: name to the reason.
    """

    __slots__ = ("__dict__", "id", "omitted", "origin_id", "resources", "type", "version_info")

    def __init__(
        self,
        type: ResourceType,
        version_info: str,
        resources: Mapping[str, Resource],
        *,
        origin_id: int = 0,
        omitted: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.id = next(_ids)
        self.origin_id = origin_id or self.id
        self.omitted = omitted
        self.type = type
        self.version_info = version_info
        self.resources = resources

    def __len__(self) -> int:
        return len(self.resources)

    def __repr__(self) -> str:
        return f"ResourceSet({self.type.alias} {self.version_info} {list(self.resources)[:8]})"

    def versions(self) -> dict[str, str]:
        """Name to resource version."""
        return {name: resource.version for name, resource in self.resources.items()}

    @cached_property
    def digest(self) -> bytes:
        """Hash of names and resource versions, whatever their order."""
        return content_digest((name, resource.version) for name, resource in self.resources.items())

    @cached_property
    def shortest_ttl_s(self) -> float | None:
        """The shortest TTL in the set; None when nothing in it expires."""
        return min((r.ttl_s for r in self.resources.values() if r.ttl_s is not None), default=None)

    @cached_property
    def by_alias(self) -> Mapping[str, str]:
        """Alias to name."""
        return {alias: name for name, resource in self.resources.items() for alias in resource.aliases}


def content_digest(content: Iterable[tuple[str, str]]) -> bytes:
    """Hash of (name, version) pairs in any order; equal digests mean equal content."""
    digest = blake2b(digest_size=16)
    for name, version in sorted(content):
        digest.update(f"{len(name)}:{name}{version};".encode("utf-8", "surrogatepass"))
    return digest.digest()


@dataclass(frozen=True, slots=True)
class Change:
    """What differs from one set to a later one of the same type: names, in the order of the sets."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


_EMPTY: Mapping[str, Resource] = {}


def diff(old: ResourceSet | None, new: ResourceSet | None) -> Change:
    """What a holder of ``old`` must be told to hold ``new``; None is the empty set."""
    if old is new:
        return Change()
    before = old.resources if old is not None else _EMPTY
    after = new.resources if new is not None else _EMPTY
    return Change(
        added=tuple(name for name in after if name not in before),
        changed=tuple(
            name for name, resource in after.items() if name in before and before[name].version != resource.version
        ),
        removed=tuple(name for name in before if name not in after),
    )


def union(old: ResourceSet, new: ResourceSet) -> ResourceSet:
    """``new`` plus what only ``old`` has: what a client is given until nothing refers to the old names any more."""
    kept = {name: resource for name, resource in old.resources.items() if name not in new.resources}
    if not kept:
        return new
    version_info = new.version_info.removesuffix(UNION_SUFFIX) + UNION_SUFFIX
    return ResourceSet(new.type, version_info, {**new.resources, **kept})


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The immutable set of all resources of a group at one revision."""

    group: str
    revision: int
    sets: Mapping[str, ResourceSet] = field(default_factory=dict)

    def __iter__(self) -> Iterator[ResourceSet]:
        return iter(self.sets.values())

    def get(self, type_url: str) -> ResourceSet:
        """The set of a type; an empty one where the snapshot has none."""
        found = self.sets.get(type_url)
        return found if found is not None else empty_set(type_url)

    def resources(self) -> Iterator[Resource]:
        """Every resource, type by type."""
        for resource_set in self.sets.values():
            yield from resource_set.resources.values()


_EMPTY_SETS: dict[str, ResourceSet] = {}
_EMPTY_SETS_LIMIT = 1024
NO_VERSION = "0"


def empty_set(type_url: str) -> ResourceSet:
    """The shared empty set of a type that a snapshot never held; its version_info is ``0``."""
    found = _EMPTY_SETS.get(type_url)
    if found is None:
        found = ResourceSet(resource_type(type_url), NO_VERSION, {})
        if len(_EMPTY_SETS) < _EMPTY_SETS_LIMIT:  # type URLs come from clients: bounded
            _EMPTY_SETS[type_url] = found
    return found


def build_snapshot(
    group: str,
    revision: int,
    resources: Iterable[Resource],
    versions: Mapping[str, str],
    previous: Snapshot | None = None,
) -> Snapshot:
    """Assemble a snapshot.

    ``versions`` maps type URL to version_info; a type in it without resources is kept as an empty set (its last
    resource was removed: that is content too). Sets equal to those of ``previous`` are shared with it, so that
    "unchanged" is an identity.
    """
    by_type: dict[str, dict[str, Resource]] = {type_url: {} for type_url in versions}
    for resource in resources:
        by_type.setdefault(resource.type_url, {})[resource.name] = resource
    sets: dict[str, ResourceSet] = {}
    for type_url, members in by_type.items():
        built = ResourceSet(resource_type(type_url), versions.get(type_url, str(revision)), members)
        before = previous.sets.get(type_url) if previous is not None else None
        same = before is not None and before.version_info == built.version_info and before.digest == built.digest
        sets[type_url] = before if same and before is not None else built
    return Snapshot(group, revision, sets)
