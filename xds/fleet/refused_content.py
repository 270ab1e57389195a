"""The content behind an open NACK record: which resources are rejected, which are suspected, and what resolves it.

A NACK rejects a whole response and often does not name the rejected resource. The engine searches for it by offering
parts of the response (`xds.protocol.rejections`). All NACKs of one search belong to one record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Self

from xds.fleet.order_state import pushed_base
from xds.fleet.state import NackRecord
from xds.model.resource import Resource
from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import ResourceSet
from xds.protocol.events import Nacked

MESSAGE_LIMIT = 64 * 1024
NAMES_LIMIT = 100
KEPT_NAMES_LIMIT = 1000  # names that are stored across restarts

Wants = Callable[[str], bool]
AckedNames = Collection[str] | None
"""The names in the ACKed response; None if the client has everything that it subscribes to."""


def all_names(name: str) -> bool:
    """Selects all names."""
    return True


class RefusedContent:
    """Content that a client rejects.

    ``guilty`` are the names that are known to be rejected, ``suspects`` those that may be. The rejected version of a
    name is the one in ``refused``, the set of the first rejected response. ``suspects`` is shared with that response
    until some names are excluded.
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
        self._note_guilty(event)

    @classmethod
    def restored(cls, record: NackRecord, versions: Mapping[str, str], guilty: Sequence[str]) -> Self:
        """A record from before a restart. ``versions`` are the rejected versions by name."""
        restored = cls.__new__(cls)
        members = {name: Resource(record.type_url, name, b"", version) for name, version in versions.items()}
        restored.refused = ResourceSet(resource_type(record.type_url), record.version, members)
        restored.guilty = tuple(name for name in guilty if name in versions)
        restored.suspects = tuple(name for name in versions if name not in frozenset(guilty))
        restored._digests = set()
        restored.record = record
        return restored

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
        """Whether a NACK rejects the same content, or a part of it that the engine offered in its search."""
        response = event.response
        if response.digest in self._digests:
            return True
        rejected = event.guilty or response.names
        common = frozenset(chain(self.guilty, self.suspects)).intersection(rejected)
        return any(_version(response.resource_set, name) == _version(self.refused, name) for name in common)

    def repeat(self, event: Nacked, now: float) -> bool:
        """Count another NACK. True if it adds a guilty name."""
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
        self._note_guilty(event)
        return len(self.guilty) > known

    def _note_guilty(self, event: Nacked) -> None:
        if event.guilty:
            offered = frozenset(event.response.names)
            self.guilty += tuple(name for name in event.guilty if name not in self.guilty)
            self.suspects = tuple(name for name in self.suspects if name not in offered)
            self._update_record()

    def _update_record(self) -> None:
        names = (*self.guilty, *(name for name in self.suspects if name not in self.guilty))
        shown, guilty = names[:NAMES_LIMIT], self.guilty[:NAMES_LIMIT]
        self.record = replace(self.record, names=shown, resources=len(names), guilty=guilty)

    # ACKs

    def clear_suspects(self, acked: ResourceSet, acked_names: AckedNames) -> bool:
        """Remove the suspects whose rejected version is in the set ``acked``: the client accepted them.

        If one suspect remains, it is guilty: the client accepted all others of the response that it rejected. True if
        this adds a guilty name.
        """
        known = len(self.guilty)
        accepted = {name for name in self.suspects if self._is_accepted(name, acked, acked_names)}
        if accepted:
            self.suspects = tuple(name for name in self.suspects if name not in accepted)
            if len(self.suspects) == 1 and not self.guilty:
                self.guilty, self.suspects = tuple(self.suspects), ()
            if self.names:
                self._update_record()
        return len(self.guilty) > known

    def is_resolved_by(self, acked: ResourceSet, acked_names: AckedNames, wants: Wants = all_names) -> bool:
        """Whether a client that ACKed this set no longer rejects anything; ``wants`` selects the names that count."""
        pushed = pushed_base(acked)
        return all(self._is_name_resolved(name, acked, pushed, acked_names) for name in self._suspected_names(wants))

    def is_left_out(self, acked: ResourceSet, wants: Wants) -> bool:
        """Whether a client with this set lacks rejected content that is still pushed and subscribed to."""
        pushed, refused = pushed_base(acked), self.refused
        return any(
            _version(pushed, name) == _version(refused, name) != _version(acked, name)
            for name in self._suspected_names(wants)
        )

    def is_wanted(self, wants: Wants) -> bool:
        """Whether the client subscribes to any of the names."""
        return any(True for _ in self._suspected_names(wants))

    def _suspected_names(self, wants: Wants) -> Iterator[str]:
        return filter(wants, chain(self.guilty, self.suspects))

    def _is_name_resolved(self, name: str, acked: ResourceSet, pushed: ResourceSet, acked_names: AckedNames) -> bool:
        """Whether the client accepted the rejected version or a newer one, or the name is no longer pushed."""
        pushed_version, held_version = _version(pushed, name), _version(acked, name)
        if pushed_version and pushed_version == _version(self.refused, name):
            return self._is_accepted(name, acked, acked_names)
        return not pushed_version or held_version == pushed_version

    def _is_accepted(self, name: str, acked: ResourceSet, acked_names: AckedNames) -> bool:
        return _version(acked, name) == _version(self.refused, name) and (acked_names is None or name in acked_names)

    def concerns(self, target: ResourceSet) -> bool:
        """Whether a pushed set contains rejected content."""
        names = self.names
        if not names:
            return self.refused.origin_id == target.origin_id or self.refused.digest == target.digest
        return any(self._is_in(name, target) for name in names)

    def concerns_more_than(self, base: ResourceSet, target: ResourceSet) -> bool:
        """Whether a pushed set contains rejected content that ``base`` does not.

        A response of SotW has the whole set, so suspects are also what ``base`` has as well.
        """
        if not self.names:
            return self.concerns(target) and not self.concerns(base)
        return any(self._is_in(name, target) and not self._is_in(name, base) for name in self.names)

    def _is_in(self, name: str, target: ResourceSet) -> bool:
        resources, refused = target.resources, self.refused
        return name in resources and refused.overlaid.get(name, _version(refused, name)) == resources[name].version


def _version(resource_set: ResourceSet, name: str) -> str:
    resource = resource_set.resources.get(name)
    return resource.version if resource is not None else ""
