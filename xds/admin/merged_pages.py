"""Pages and tables of several servers as one. Pure: documents of the API in, documents out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from xds.model.natural_order import natural_key

Json = dict[str, Any]


def nodes_of(pages: Iterable[Json]) -> list[Json]:
    """The nodes of pages that begin behind one id, in natural order of their ids.

    Of a node that several servers know, the one that it is connected to has it; else the one that saw it last.
    """
    found: dict[str, Json] = {}
    for page in pages:
        for node in page["items"]:
            known = found.get(node["id"])
            if known is None or _standing(node) > _standing(known):
                found[node["id"]] = node
    return [found[id] for id in sorted(found, key=natural_key)]


def _standing(node: Mapping[str, Any]) -> tuple[bool, str]:
    return bool(node["connected"]), str(node["last_seen"])


def is_cut(pages: Sequence[Json], items: Sequence[Json], limit: int) -> bool:
    """Whether a merged list goes on behind its first ``limit`` items."""
    return len(items) > limit or any(page.get("next_page_token") for page in pages)


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Numbers by name, added up."""
    total: dict[str, int] = {}
    for each in counts:
        for name, number in each.items():
            total[name] = total.get(name, 0) + number
    return dict(sorted(total.items()))


def ordered(items: Iterable[Json], key: Callable[[Json], Any]) -> list[Json]:
    """Items by descending key."""
    return sorted(items, key=key, reverse=True)
