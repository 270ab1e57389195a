"""A mapping that shares most of its entries with the mapping that it was amended from.

Clients keep the sets that they ACKed. With 10,000 assignments that change one by one, a copy of the whole mapping costs
0.1 ms per change, and 0.3 MB for each client that stays at another version. An `AmendedMapping` costs 2 us and 10 KB.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TypeVar

V = TypeVar("V")

SHARED_FROM = 1024  # entries; smaller mappings are copied
_CHANGED_LIMIT = 256  # entries that may differ from the shared mapping


class AmendedMapping(Mapping[str, V]):
    """The entries of ``base`` without the keys ``removed``, and the entries ``put``; immutable.

    An entry of ``put`` keeps its place in ``base``, unless its key is in ``removed``. Other entries of ``put`` come
    last.
    """

    __slots__ = ("_base", "_put", "_removed", "_size")

    def __init__(self, base: dict[str, V], put: dict[str, V], removed: frozenset[str]) -> None:
        """``removed`` are keys of ``base``. ``base`` and ``put`` must not be changed afterwards."""
        self._base = base
        self._put = put
        self._removed = removed
        self._size = len(base) - len(removed) + sum(1 for key in put if key in removed or key not in base)

    def __getitem__(self, key: str) -> V:
        if key in self._put:
            return self._put[key]
        if key in self._removed:
            raise KeyError(key)
        return self._base[key]

    def __contains__(self, key: object) -> bool:
        return key in self._put or (key in self._base and key not in self._removed)

    def __iter__(self) -> Iterator[str]:
        base, removed = self._base, self._removed
        for key in base:
            if key not in removed:
                yield key
        for key in self._put:
            if key in removed or key not in base:
                yield key

    def __len__(self) -> int:
        return self._size

    def amended(self, put: Mapping[str, V], removed: Collection[str]) -> Mapping[str, V]:
        """This mapping with the entries ``put`` and without the keys ``removed``, all of which it must have."""
        all_put, all_removed = {**self._put, **put}, self._removed
        if removed:
            for key in removed:
                all_put.pop(key, None)
            all_removed = all_removed.union(key for key in removed if key in self._base)
        if len(all_put) + len(all_removed) > _CHANGED_LIMIT:
            return _copied(self._base, all_put, all_removed)
        return AmendedMapping(self._base, all_put, all_removed)


def amend(mapping: Mapping[str, V], put: Mapping[str, V], removed: Collection[str], *, shares: bool) -> Mapping[str, V]:
    """The mapping with the entries ``put`` and without the keys ``removed``, all of which it must have.

    ``shares``: a large mapping is shared with the result, which is slower to read as a whole.
    """
    if isinstance(mapping, AmendedMapping):
        return mapping.amended(put, removed)
    if shares and len(mapping) >= SHARED_FROM and isinstance(mapping, dict):
        return AmendedMapping[V](mapping, {}, frozenset()).amended(put, removed)
    amended = {**mapping, **put}
    for key in removed:
        del amended[key]
    return amended


def _copied(base: dict[str, V], put: dict[str, V], removed: frozenset[str]) -> dict[str, V]:
    amended = dict(base)
    for key in removed:
        del amended[key]
    amended.update(put)
    return amended
