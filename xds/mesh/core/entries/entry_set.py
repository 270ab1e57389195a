"""A set of config entries, with the lookups that the compiler needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from xds.mesh.core.entries.defaults import ProxyDefaults, ServiceDefaults
from xds.mesh.core.entries.entry import KINDS, ConfigEntry, Key, WrittenKey, key_of
from xds.mesh.core.entries.resolver import ServiceResolver
from xds.mesh.core.entries.router import ServiceRouter
from xds.mesh.core.entries.splitter import ServiceSplitter
from xds.model.compared_name import ComparedName, compared

E = TypeVar("E", ServiceRouter, ServiceSplitter, ServiceResolver, ServiceDefaults, ProxyDefaults)

# The changes of entries: the new content, or None for a deleted entry.
Changes = Mapping[Key, ConfigEntry | None]


@dataclass(frozen=True, slots=True)
class ConfigEntries:
    """Entries by kind and compared name.

    Immutable: ``with_changes`` makes a new set, which shares the unchanged kinds.
    """

    by_kind: Mapping[str, Mapping[ComparedName, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[ConfigEntry]) -> ConfigEntries:
        """A set of these entries. If two have one key, the later one counts."""
        return cls().with_changes({key_of(entry): entry for entry in entries})

    def with_changes(self, changes: Changes) -> ConfigEntries:
        """The set after the changes. A deleted entry need not exist."""
        changed = {kind: dict(self.by_kind.get(kind, {})) for kind in {kind for kind, _ in changes}}
        for (kind, name), entry in changes.items():
            if entry is None:
                changed[kind].pop(name, None)
            else:
                changed[kind][name] = entry
        return ConfigEntries({**self.by_kind, **changed})

    def __len__(self) -> int:
        return sum(map(len, self.by_kind.values()))

    def __iter__(self) -> Iterator[ConfigEntry]:
        """All entries, by kind and name."""
        for kind in KINDS:
            entries = self.by_kind.get(kind, {})
            yield from (entries[name] for name in sorted(entries))

    def get(self, key: Key) -> ConfigEntry | None:
        """The entry of a kind and name."""
        kind, name = key
        entry: ConfigEntry | None = self.by_kind.get(kind, {}).get(name)
        return entry

    def names(self, kind: str) -> Iterable[ComparedName]:
        """The names of a kind's entries, as they are compared."""
        return self.by_kind.get(kind, {}).keys()

    def written(self, keys: Iterable[Key]) -> frozenset[WrittenKey]:
        """Kind and name, as they were written, of the entries that exist among ``keys``."""
        return frozenset((one.kind, one.name) for key in keys if (one := self.get(key)) is not None)

    def find(self, kind: type[E], name: str) -> E | None:
        """The entry of a kind and name, whatever the case of the name; that of proxy-defaults is ``GLOBAL``."""
        entry: E | None = self.by_kind.get(kind.kind, {}).get(compared(name))
        return entry
