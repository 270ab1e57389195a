"""The rejected resources of one type, and the search for the bad resources in rejected responses.

A NACK rejects a whole response and rarely names the bad resource. So new content is sent "without the suspects,
alternating with halves of the suspects" (docs/protocol.md#rejections). A resource that was rejected alone or by name is
left out until its content changes. The client's last accepted version takes its place.

    event                       effect on the resources in the response
    NACK that names resources   the named resources are rejected; the other resources are offered again
    NACK of one resource        the resource is rejected
    NACK of several resources   all become suspects, in two groups that are tried before earlier suspects
    ACK                         all are neither suspect nor rejected; if the response tried suspects, the next group of
                                suspects is halved
    ACK of a full-state set     as above; if one suspect of the last rejected set remains, it is rejected, because a set
                                with it is the rejected set
    content changes             the changed resource is neither suspect nor rejected: it is new content
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy

from xds.model.names import NO_NAMES
from xds.model.snapshot import ResourceSet

Groups = tuple[tuple[str, ...], ...]


class Rejections:
    """The rejected resources of one watch; created at its first NACK.

    * ``rejected``: the resources that are known to be bad, name to version;
    * ``suspects``: the resources that may be bad, name to version;
    * ``groups``: the names of the suspects, in groups that are tried one after the other;
    * ``probe``: the suspects that the response in flight tries;
    * ``is_new_content_due``: the next response has new content without suspects, because the last one tried suspects;
    * ``rejected_set``: the released set at the first NACK; a full-state type is not sent until its set is another one;
    * ``whole_set_suspects``: the suspects of the last rejected response that contained all resources, name to version.
    """

    __slots__ = ("groups", "is_new_content_due", "probe", "rejected", "rejected_set", "suspects", "whole_set_suspects")

    def __init__(self, rejected: Mapping[str, str] | None = None) -> None:
        self.rejected: dict[str, str] = dict(rejected or {})
        self.suspects: dict[str, str] = {}
        self.groups: Groups = ()
        self.probe: frozenset[str] = NO_NAMES
        self.is_new_content_due = True
        self.rejected_set: ResourceSet | None = None
        self.whole_set_suspects: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.rejected or self.suspects)

    def copy(self) -> Rejections:
        """An independent object in the same state."""
        clone = copy(self)
        clone.rejected, clone.suspects = dict(self.rejected), dict(self.suspects)
        clone.whole_set_suspects = dict(self.whole_set_suspects)
        return clone

    def for_new_stream(self) -> Rejections:
        """The state for the client's next stream. The first response on it has the content without suspects."""
        clone = Rejections(self.rejected)
        clone.suspects, clone.groups = dict(self.suspects), self.groups
        clone.whole_set_suspects = dict(self.whole_set_suspects)
        return clone

    def join(self, earlier: Rejections) -> None:
        """Add earlier rejections, except those of names that are already rejected or suspect here."""
        known = self.rejected.keys() | self.suspects.keys()
        older = earlier.copy()
        older._clear(known)
        if not self.whole_set_suspects:
            self.whole_set_suspects = older.whole_set_suspects
        self.rejected |= older.rejected
        self.suspects |= older.suspects
        self.groups = (*self.groups, *older.groups)

    def note_nack(
        self, versions: Mapping[str, str], named: Collection[str], *, is_whole: bool = False
    ) -> tuple[str, ...]:
        """Note the NACK of a response with these resources, name to version; returns the names now known to be bad.

        ``named`` are the names in the error message. ``is_whole``: the response contained all resources of the client.
        """
        guilty = tuple(name for name in versions if name in named) or (tuple(versions) if len(versions) == 1 else ())
        others = [name for name in versions if name not in guilty]
        self._clear(versions)
        self.rejected.update((name, versions[name]) for name in guilty)
        if others and not guilty:
            self.suspects = {**{name: versions[name] for name in others}, **self.suspects}
            self.groups = (*_halves(others), *self.groups)
            self.whole_set_suspects = {name: versions[name] for name in others} if is_whole else {}
        self.probe = NO_NAMES
        return guilty

    def note_ack(self, accepted: Mapping[str, str]) -> None:
        """Note resources that the client ACKed or showed on a new stream, name to version."""
        was_probe = bool(self.probe)
        self.probe = NO_NAMES
        self.note_proved(accepted, is_halved=was_probe)

    def note_proved(self, accepted: Mapping[str, str], *, is_halved: bool = False) -> None:
        """Note resources that the client uses, name to version. ``is_halved``: halve the next group of suspects."""
        whole_set = self.whole_set_suspects
        remaining = {name: version for name, version in whole_set.items() if accepted.get(name) != version}
        doubted = (*self.rejected.items(), *self.suspects.items())
        self._clear([name for name, version in doubted if accepted.get(name) == version])
        if is_halved and self.groups and len(self.groups[0]) > 1:
            self.groups = (*_halves(self.groups[0]), *self.groups[1:])
        self.whole_set_suspects = remaining
        if len(remaining) == 1 and remaining.items() <= self.suspects.items():
            self._clear(remaining)
            self.rejected |= remaining

    def left_out(self, released: ResourceSet) -> frozenset[str]:
        """The names of a set that are not offered now: rejected resources, and suspects that are not tried."""
        return self.doubted_in(released) - self.probe

    def doubted_in(self, released: ResourceSet) -> frozenset[str]:
        """The names that are rejected or suspect in the version that the set has."""
        return self.rejected_in(released) | _names_in_version(self.suspects, released)

    def rejected_in(self, released: ResourceSet) -> frozenset[str]:
        """The names that are rejected in the version that the set has."""
        return _names_in_version(self.rejected, released)

    def begin_probe(self) -> bool:
        """Choose the next group of suspects for the response to send; False when no suspects remain."""
        if not self.groups:
            return False
        whole_set = self.whole_set_suspects
        if len(whole_set) > 1 and whole_set.keys() <= set(self.groups[0]):
            # A response with all of them would be the rejected response again (rule 16).
            self.groups = (*_halves(self.groups[0]), *self.groups[1:])
        self.probe = frozenset(self.groups[0])
        return True

    def forgive(self, names: Collection[str]) -> None:
        """Forget these names: the client unsubscribed, or it subscribes again and must be answered (rule 53)."""
        self._clear(names)

    def forget_changed(self, released: ResourceSet, goal: ResourceSet) -> None:
        """Forget rejections of versions that are in neither set: the content of these names has changed."""
        sets = released.resources, goal.resources
        changed = [
            name
            for names in (self.rejected, self.suspects)
            for name, version in names.items()
            if all((found := each.get(name)) is None or found.version != version for each in sets)
        ]
        if changed:
            self._clear(changed)

    def _clear(self, names: Collection[str]) -> None:
        cleared = frozenset(names)
        if not cleared.isdisjoint(self.whole_set_suspects):
            self.whole_set_suspects = {}
        self.rejected = {name: version for name, version in self.rejected.items() if name not in cleared}
        self.suspects = {name: version for name, version in self.suspects.items() if name not in cleared}
        groups = (tuple(name for name in group if name not in cleared) for group in self.groups)
        self.groups = tuple(group for group in groups if group)


def _names_in_version(versions: Mapping[str, str], released: ResourceSet) -> frozenset[str]:
    """The names of ``versions`` that the set has in the same version."""
    resources = released.resources
    return frozenset(n for n, version in versions.items() if n in resources and resources[n].version == version)


def _halves(names: Sequence[str]) -> Groups:
    middle = (len(names) + 1) // 2
    return tuple(half for half in (tuple(names[:middle]), tuple(names[middle:])) if half)


def named_in(message: str, names: Collection[str]) -> frozenset[str]:
    """The names among ``names`` that a client's error message reports as bad; empty if it reports none.

    Envoy names bad resources of CDS and LDS ("Error adding/updating cluster(s) bad: ..."). gRPC names those of all
    types ("[resource index 0: bad: ...]"). Other messages are not searched: they may contain names of other objects.
    """
    if "(s) " in message:
        before = r"(?:\(s\) |, |; |\n)"
    elif "resource index " in message:
        before = r"resource index \d+: "
    else:
        return NO_NAMES
    likely = [name for name in names if name and f"{name}: " in message]
    return frozenset(name for name in likely if re.search(f"{before}{re.escape(name)}: ", message))
