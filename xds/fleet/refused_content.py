"""The content behind an open NACK record: which resources are rejected, which are suspected, and what resolves it.

A NACK rejects a whole response and seldom says which resource is wrong. The engine finds out by offering parts
(``protocol.refusals``). All NACKs of that search belong to one record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Self

from xds.fleet.order_state import pushed_of
from xds.fleet.state import NackRecord
from xds.model.resource import Resource
from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import ResourceSet
from xds.protocol.events import Nacked

MESSAGE_LIMIT = 64 * 1024
NAMES_LIMIT = 100
KEPT_NAMES_LIMIT = 1000  # names that are stored across restarts

Wants = Callable[[str], bool]
AckedNames = (
    Collection[str] | None
)  # the names in the response that was taken; None: the client holds all that it asks for


def everything(name: str) -> bool:
    """The client subscribes to all names."""
    return True


class RefusedContent:
    """Content that a client rejects.

    ``guilty`` are the names that are known to be rejected; some of ``suspects`` are. The rejected version of a name is
    that in ``refused``, the set that was offered first. As long as nothing is known, the names are shared with the
    response.
    """

    __slots__ = ("_digests", "guilty", "record", "refused", "suspects")

    def __init__(self, record_id: int, node: str, group: str, event: Nacked, now: float) -> None:
        response = event.response
        self.refused: ResourceSet = response.resource_set
        self.guilty: tuple[str, ...] = ()
        self.suspects: Collection[str] = response.names
        self._digests = {response.digest}
        self.record = NackRecord(
            id=record_id,
            node=node,
            group=group,
            type=alias_of(event.type_url),
            type_url=event.type_url,
            version=response.version_info,
            nonce=event.nonce,
            code=event.error.code,
            message=event.error.message[:MESSAGE_LIMIT],
            first=now,
            last=now,
            names=(*response.names[:NAMES_LIMIT], *response.removed[:NAMES_LIMIT])[:NAMES_LIMIT],
            resources=len(response.names) + len(response.removed),
        )
        self._learn(event)

    @classmethod
    def restored(cls, record: NackRecord, versions: Mapping[str, str], guilty: Sequence[str]) -> Self:
        """A record from before a restart. ``versions`` are the rejected versions by name."""
        found = cls.__new__(cls)
        members = {name: Resource(record.type_url, name, b"", version) for name, version in versions.items()}
        found.refused = ResourceSet(resource_type(record.type_url), record.version, members)
        found.guilty = tuple(name for name in guilty if name in versions)
        found.suspects = tuple(name for name in versions if name not in frozenset(guilty))
        found._digests = set()
        found.record = record
        return found

    @property
    def names(self) -> Collection[str]:
        """The guilty names, or the suspects while none is known."""
        return self.guilty or self.suspects

    @property
    def refused_versions(self) -> dict[str, str]:
        """The rejected versions of the guilty names and of some suspects."""
        names = (*self.guilty, *islice(self.suspects, NAMES_LIMIT))
        return {name: _version(self.refused, name) for name in names[:KEPT_NAMES_LIMIT]}

    @property
    def size(self) -> int:
        """The number of characters of message and names."""
        return len(self.record.message) + sum(map(len, chain(self.record.names, self.record.guilty)))

    # NACKs

    def is_about(self, event: Nacked) -> bool:
        """Is this a NACK of the same content, or of a part of it that the engine offered in its search?"""
        response = event.response
        if response.digest in self._digests:
            return True
        named = event.guilty or response.names
        meant = frozenset(chain(self.guilty, self.suspects)).intersection(named)
        return any(_version(response.resource_set, name) == _version(self.refused, name) for name in meant)

    def repeat(self, event: Nacked, now: float) -> bool:
        """Count another NACK. True when it makes a guilty name known."""
        known = len(self.guilty)
        self._digests.add(event.response.digest)
        self.record = replace(
            self.record,
            count=self.record.count + 1,
            last=now,
            nonce=event.nonce,
            code=event.error.code,
            message=event.error.message[:MESSAGE_LIMIT],
        )
        self._learn(event)
        return len(self.guilty) > known

    def _learn(self, event: Nacked) -> None:
        if event.guilty:
            offered = frozenset(event.response.names)
            self.guilty += tuple(name for name in event.guilty if name not in self.guilty)
            self.suspects = tuple(name for name in self.suspects if name not in offered)
            self._show()

    def _show(self) -> None:
        names = (*self.guilty, *(name for name in self.suspects if name not in self.guilty))
        shown, guilty = names[:NAMES_LIMIT], self.guilty[:NAMES_LIMIT]
        self.record = replace(self.record, names=shown, resources=len(names), guilty=guilty)

    # ACKs

    def clear(self, held: ResourceSet, told: AckedNames) -> None:
        """The client has ACKed ``held``: suspects that it accepted as they were offered are no longer suspected."""
        accepted = {name for name in self.suspects if self._is_taken(name, held, told)}
        if accepted:
            self.suspects = tuple(name for name in self.suspects if name not in accepted)
            if len(self.suspects) == 1 and self.refused.type.full_state:
                self.guilty, self.suspects = (*self.guilty, *self.suspects), ()  # all others were accepted
            if self.names:
                self._show()

    def is_mended(self, held: ResourceSet, told: AckedNames, wants: Wants = everything) -> bool:
        """Has a client with this set everything that was rejected? ``wants`` selects the names it subscribes to."""
        pushed = pushed_of(held)
        return all(self._mended(name, held, pushed, told) for name in self._meant(wants))

    def is_left_out(self, held: ResourceSet, wants: Wants) -> bool:
        """Is rejected content left out for a client with this set, although it is still pushed and subscribed to?"""
        pushed, refused = pushed_of(held), self.refused
        return any(
            _version(pushed, name) == _version(refused, name) != _version(held, name) for name in self._meant(wants)
        )

    def is_wanted(self, wants: Wants) -> bool:
        """Does the client subscribe to any of the rejected names?"""
        return any(True for _ in self._meant(wants))

    def _meant(self, wants: Wants) -> Iterator[str]:
        return filter(wants, chain(self.guilty, self.suspects))

    def _mended(self, name: str, held: ResourceSet, pushed: ResourceSet, told: AckedNames) -> bool:
        """Has the client accepted the name after all, or a newer version of it, or is it no longer pushed?"""
        wanted, has = _version(pushed, name), _version(held, name)
        if wanted and wanted == _version(self.refused, name):
            return self._is_taken(name, held, told)
        return not wanted or has == wanted

    def _is_taken(self, name: str, held: ResourceSet, told: AckedNames) -> bool:
        return _version(held, name) == _version(self.refused, name) and (told is None or name in told)

    def concerns(self, target: ResourceSet) -> bool:
        """Does a pushed set contain rejected content?"""
        names = self.names
        if not names:
            return self.refused.origin_id == target.origin_id or self.refused.digest == target.digest
        resources, refused = target.resources, self.refused
        return any(
            name in resources and refused.overlaid.get(name, _version(refused, name)) == resources[name].version
            for name in names
        )


def _version(held: ResourceSet, name: str) -> str:
    found = held.resources.get(name)
    return found.version if found is not None else ""
