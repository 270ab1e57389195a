"""The natural order of names: numbers in names are compared as numbers (``c2`` before ``c10``), and case is ignored."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import lru_cache

# Keys are cached because a list is sorted again for each page. Unusually long names are not cached.
_KEPT_NAMES = 1 << 14
_KEPT_LENGTH = 200
_DIGITS = re.compile(r"0*([0-9]+)")


def natural_key(name: str) -> str:
    """The sort key of a name. Different names have different keys, so a list can continue after any name.

    In the key, the length of a number precedes its digits, so that numbers compare by value.
    """
    return _kept_key(name) if len(name) <= _KEPT_LENGTH else _key(name)


def _key(name: str) -> str:
    return f"{_DIGITS.sub(_with_length, name.casefold())}\0{name}"


_kept_key = lru_cache(maxsize=_KEPT_NAMES)(_key)


def _with_length(number: re.Match[str]) -> str:
    return f"{len(number[1]):04}{number[1]}"


class OrderedNames:
    """A set of many names that is kept in natural order, so that a page of it needs no sorting."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._keys: list[str] = []

    def add(self, name: str) -> None:
        """Add a name if the set lacks it."""
        key = natural_key(name)
        at = bisect_left(self._keys, key)
        if at == len(self._keys) or self._keys[at] != key:
            self._keys.insert(at, key)
            self._names.insert(at, name)

    def discard(self, name: str) -> None:
        """Remove a name if the set has it."""
        key = natural_key(name)
        at = bisect_left(self._keys, key)
        if at < len(self._keys) and self._keys[at] == key:
            del self._keys[at], self._names[at]

    def after(self, name: str) -> list[str]:
        """The names after ``name``, which need not be in the set; all names if it is empty."""
        return self._names[bisect_right(self._keys, natural_key(name)) if name else 0 :]
