"""The order of names in lists: numbers within names count as numbers, ``c2`` before ``c10``. Case does not matter."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import lru_cache

# The keys of names are kept, since a list is ordered again for each page. Longer names than usual are not.
_KEPT_NAMES = 1 << 14
_KEPT_LENGTH = 200
_DIGITS = re.compile(r"0*([0-9]+)")


def natural_key(name: str) -> str:
    """A sort key. Different names have different keys, so a list can be continued after one of them.

    The length of a number precedes its digits, so that texts compare as numbers do.
    """
    return _kept_key(name) if len(name) <= _KEPT_LENGTH else _key(name)


def _key(name: str) -> str:
    return f"{_DIGITS.sub(_measured, name.casefold())}\0{name}"


_kept_key = lru_cache(maxsize=_KEPT_NAMES)(_key)


def _measured(number: re.Match[str]) -> str:
    return f"{len(number[1]):04}{number[1]}"


class OrderedNames:
    """A set of many names that is kept in order, so that a page of it costs no sorting."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._keys: list[str] = []

    def add(self, name: str) -> None:
        """Add a name; nothing if it is there."""
        key = natural_key(name)
        at = bisect_left(self._keys, key)
        if at == len(self._keys) or self._keys[at] != key:
            self._keys.insert(at, key)
            self._names.insert(at, name)

    def discard(self, name: str) -> None:
        """Remove a name if it is there."""
        key = natural_key(name)
        at = bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at] == key:
            del self._keys[at], self._names[at]

    def behind(self, name: str) -> list[str]:
        """The names behind ``name``, which need not be there; all for an empty one."""
        return self._names[bisect_right(self._keys, natural_key(name)) if name else 0 :]
