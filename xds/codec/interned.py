"""Resources that were read before and are still in use: a snapshot that is pushed again is mostly what it was.

Finding a cluster here takes a tenth of reading and checking it. Kept are only those whose message says all about
them and that nothing was found in, so that reading them again would give the very same.
"""

from __future__ import annotations

from weakref import ref

from xds.model.resource import Resource


class _Kept(ref[Resource]):
    """A ``WeakValueDictionary`` has such ones too, and makes them in Python, in twice the time."""

    __slots__ = ("key",)
    key: tuple[str, bytes]


_interned: dict[tuple[str, bytes], _Kept] = {}


def find(type_url: str, body: bytes) -> Resource | None:
    """The resource that these canonical bytes were read as."""
    kept = _interned.get((type_url, body))
    return None if kept is None else kept()


def keep(resource: Resource) -> None:
    """Remember it as long as somebody else holds on to it."""
    kept = _Kept(resource, _forget)
    kept.key = resource.type_url, resource.body
    _interned[kept.key] = kept


def _forget(kept: ref[Resource]) -> None:
    """Called for each whose last holder let go, from any thread; another may have been read of the same bytes since.

    One that comes between the two lines is forgotten too early: it will be read again.
    """
    assert isinstance(kept, _Kept)
    if _interned.get(kept.key) is kept:
        _interned.pop(kept.key, None)
