"""What a push leads to, type by type, before it is committed: labels show it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from xds.control.content import Content, Key
from xds.model.resource import Resource
from xds.model.snapshot import Change, ResourceSet, content_digest, empty_set


def digests_of(
    difference: Mapping[str, Change], held: Content | None, known: Mapping[Key, Resource]
) -> dict[str, bytes]:
    """The digests that the sets of the types that change will have, by type URL; ``known`` holds what comes."""
    bases = {url: held.snapshot.get(url) if held is not None else empty_set(url) for url in difference}
    return {url: _digest(bases[url], change, known) for url, change in difference.items()}


def _digest(base: ResourceSet, change: Change, known: Mapping[Key, Resource]) -> bytes:
    """The digest of a set after a change. It is a sum over all members: what is less is added up."""
    type_url = base.type.type_url
    coming = [(name, known[type_url, name].version) for name in (*change.added, *change.changed)]
    going = [*change.changed, *change.removed]
    if len(going) > len(base) // 2:
        left = base.resources.keys() - going
        return content_digest((*coming, *((name, base.resources[name].version) for name in left)))
    gone = content_digest((name, base.resources[name].version) for name in going)
    total = sum(int.from_bytes(part, "big") for part in (base.digest, content_digest(coming)))
    total -= int.from_bytes(gone, "big")
    return (total % (1 << 8 * len(gone))).to_bytes(len(gone), "big")
