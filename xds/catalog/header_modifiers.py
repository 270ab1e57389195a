"""Changes of the HTTP headers of requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xds.catalog.shape import TEXT_MAP, TEXTS, member


@dataclass(frozen=True, slots=True)
class HeaderModifiers:
    """``add`` appends, ``set`` overwrites, ``remove`` strips."""

    add: Mapping[str, str] = member("Add", TEXT_MAP)
    set: Mapping[str, str] = member("Set", TEXT_MAP)
    remove: tuple[str, ...] = member("Remove", TEXTS)

    @property
    def is_empty(self) -> bool:
        """Whether no header is changed."""
        return not (self.add or self.set or self.remove)


def merge_headers(base: HeaderModifiers | None, override: HeaderModifiers | None) -> HeaderModifiers | None:
    """Both changes in one: on equal keys ``override`` wins; removals of ``base`` come first, without duplicates."""
    if base is None or base.is_empty:
        return override
    if override is None or override.is_empty:
        return base
    removed = dict.fromkeys(base.remove + override.remove)
    return HeaderModifiers({**base.add, **override.add}, {**base.set, **override.set}, tuple(removed))
