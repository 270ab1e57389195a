"""What a group holds at a revision, and what a change makes of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from weakref import ref

from xds.model.errors import NotFoundError
from xds.model.resource import Resource
from xds.model.resource_type import alias_of, type_url_of
from xds.model.snapshot import Change, Snapshot
from xds.store.base import NO_META, Delta, Entry, Meta

Key = tuple[str, str]  # (type_url, name)

_ETAG_DIGEST_BYTES = 4


class BlobIds(dict[Key, str]):
    """What the store calls the resources of a group, in pushed order.

    One that was amended knows from which other it was made, and the keys that may differ: a push of one resource to a
    large group must not cost a look at all of them.
    """

    __slots__ = ("__weakref__", "_base", "_touched")

    def __init__(self, lines: Mapping[Key, str] | Iterable[tuple[Key, str]] = ()) -> None:
        super().__init__(lines)
        self._base: ref[BlobIds] | None = None
        self._touched: tuple[Key, ...] = ()

    def amended(self, put: Mapping[Key, str], delete: Iterable[Key]) -> BlobIds:
        """A put of a key that exists keeps its place, a new one goes last. Raises ``KeyError``."""
        made = BlobIds(self)
        made.update(put)
        gone = tuple(delete)
        for key in gone:
            del made[key]
        made._base, made._touched = ref(self), tuple(dict.fromkeys((*put, *gone)))
        return made

    def replaced(self, lines: Mapping[Key, str]) -> BlobIds:
        """All of it in their place; known as made from this where the keys and their order stay."""
        made = BlobIds(lines)
        if list(made) == list(self):
            pairs = zip(made.items(), self.values(), strict=True)
            made._base, made._touched = ref(self), tuple(key for (key, blob), before in pairs if blob != before)
        return made

    def touched_since(self, base: object) -> tuple[Key, ...] | None:
        """The keys that may differ from ``base``; None when this was not made from it."""
        return self._touched if self._base is not None and self._base() is base else None


@dataclass(frozen=True, eq=False)
class Content:
    """A snapshot together with what the store calls its resources. ``blob_ids`` is in pushed order."""

    snapshot: Snapshot
    blob_ids: BlobIds
    meta: Meta = NO_META

    @property
    def group(self) -> str:
        return self.snapshot.group

    @property
    def revision(self) -> int:
        return self.snapshot.revision

    def __len__(self) -> int:
        return len(self.blob_ids)

    def get(self, key: Key) -> Resource | None:
        """One resource by type URL and name."""
        return self.snapshot.get(key[0]).resources.get(key[1])

    def resources(self) -> Iterator[Resource]:
        """All resources in pushed order."""
        for type_url, name in self.blob_ids:
            yield self.snapshot.sets[type_url].resources[name]

    def entries(self) -> Iterator[Entry]:
        """The manifest's lines, in pushed order."""
        for (type_url, name), blob in self.blob_ids.items():
            yield Entry(type_url, name, blob)

    def versions(self) -> dict[str, str]:
        """version_info by type label."""
        return {type_label(found.type.type_url): found.version_info for found in self.snapshot}

    @cached_property
    def etag(self) -> str:
        """Identifies revision and content, without quotes: ``r42-1f3a9c07``. The same on every replica."""
        digest = blake2b(digest_size=_ETAG_DIGEST_BYTES)
        for type_url, found in sorted(self.snapshot.sets.items()):
            digest.update(type_url.encode() + found.digest)
        return f"r{self.revision}-{digest.hexdigest()}"


def type_label(type_url: str) -> str:
    """How a type is called in answers: its alias, or the message name where the alias means another type (v2)."""
    alias = alias_of(type_url)
    return alias if type_url_of(alias) == type_url else type_url.rpartition("/")[2]


def blob_ids(entries: Iterable[Entry], held: BlobIds | None = None) -> BlobIds:
    """A manifest as a mapping, order kept; ``held`` is what it replaces."""
    lines = {(type_url, name): blob for type_url, name, blob in entries}
    return held.replaced(lines) if held is not None else BlobIds(lines)


def amended(held: BlobIds, delta: Delta) -> BlobIds:
    """``held`` after ``delta``. Raises ``NotFoundError`` for the deletion of what is not there."""
    for key in delta.delete:
        if key not in held:
            raise NotFoundError(f"no {type_label(key[0])} resource named {key[1]!r}")
    return held.amended(blob_ids(delta.put), delta.delete)


def changes(old: BlobIds, new: BlobIds) -> dict[str, Change]:
    """What differs, by type URL; types without a difference are left out."""
    added, changed, removed = (dict[str, list[str]]() for _ in range(3))
    touched = new.touched_since(old)
    for key in new if touched is None else (key for key in touched if key in new):
        before = old.get(key)
        if before is None:
            added.setdefault(key[0], []).append(key[1])
        elif before != new[key]:
            changed.setdefault(key[0], []).append(key[1])
    gone = old.keys() - new.keys() if touched is None else [key for key in touched if key not in new]
    for type_url, name in gone:
        removed.setdefault(type_url, []).append(name)
    types = dict.fromkeys((*added, *changed, *removed))
    return {
        url: Change(tuple(added.get(url, ())), tuple(changed.get(url, ())), tuple(sorted(removed.get(url, ()))))
        for url in types
    }
