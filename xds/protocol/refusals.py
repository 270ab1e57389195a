"""The rejected resources of one type: the search for the bad resources in rejected responses.

A NACK rejects a whole response and rarely names the bad resource. So new content is sent "without the suspects,
alternating with halves of the suspects" (docs/protocol.md#refusals). A resource that was rejected alone or by name is
left out until its content changes; the client's last accepted version takes its place.

    event                       what becomes of the resources in the response
    NACK that names resources   the named ones are rejected, and the others are offered again
    NACK of one resource        it is rejected
    NACK of several resources   they are suspects, in two halves, to be tried before earlier suspects
    ACK                         they are neither suspects nor rejected; if suspects were tried, the next group of them
                                is halved
    ACK, full-state set         also, if only one suspect of a rejected set is left, it is rejected: a set that contains
                                it is the set that was rejected
    content changes             the changed resource is neither a suspect nor rejected: it is new content
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy

from xds.model.names import NO_NAMES
from xds.model.snapshot import ResourceSet

Groups = tuple[tuple[str, ...], ...]


class Refusals:
    """The rejected resources of one watch; made at its first NACK.

    * ``refused``: name to rejected version of the resources that are known to be bad;
    * ``suspects``: name to version of those that may be bad; ``groups``: the suspects in the order in which they are
      tried, a group at a time;
    * ``probe``: the suspects that are tried in the response in flight;
    * ``is_news_due``: the next response has new content without suspects, because the last one tried suspects;
    * ``refused_set``: the set that was released at the first NACK: a full-state set waits until that changes;
    * ``whole``: name to version of the suspects of the last rejected response that contained all resources.
    """

    __slots__ = ("groups", "is_news_due", "probe", "refused", "refused_set", "suspects", "whole")

    def __init__(self, refused: Mapping[str, str] | None = None) -> None:
        self.refused: dict[str, str] = dict(refused or {})
        self.suspects: dict[str, str] = {}
        self.groups: Groups = ()
        self.probe: frozenset[str] = NO_NAMES
        self.is_news_due = True
        self.refused_set: ResourceSet | None = None
        self.whole: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self.refused or self.suspects)

    def copy(self) -> Refusals:
        """An independent object in the same state."""
        made = copy(self)
        made.refused, made.suspects, made.whole = dict(self.refused), dict(self.suspects), dict(self.whole)
        return made

    def for_new_stream(self) -> Refusals:
        """The state for the client's next stream, which is first sent the content without suspects."""
        made = Refusals(self.refused)
        made.suspects, made.groups, made.whole = dict(self.suspects), self.groups, dict(self.whole)
        return made

    def join(self, earlier: Refusals) -> None:
        """Add earlier rejections, except of names of which this object already has one."""
        known = self.refused.keys() | self.suspects.keys()
        older = earlier.copy()
        older._clear(known)
        if not self.whole:
            self.whole = older.whole
        self.refused |= older.refused
        self.suspects |= older.suspects
        self.groups = (*self.groups, *older.groups)

    def note_nack(
        self, offered: Mapping[str, str], named: Collection[str], *, is_whole: bool = False
    ) -> tuple[str, ...]:
        """A response with these names and versions was rejected; returns the names that are now known to be bad.

        ``is_whole``: the response contained all resources that the client is to have.
        """
        guilty = tuple(name for name in offered if name in named) or (tuple(offered) if len(offered) == 1 else ())
        rest = [name for name in offered if name not in guilty]
        self._clear(offered)
        self.refused.update((name, offered[name]) for name in guilty)
        if rest and not guilty:
            self.suspects = {**{name: offered[name] for name in rest}, **self.suspects}
            self.groups = (*_halves(rest), *self.groups)
            self.whole = {name: offered[name] for name in rest} if is_whole else {}
        self.probe = NO_NAMES
        return guilty

    def note_ack(self, accepted: Mapping[str, str]) -> None:
        """The client accepted a response with these names and versions, or shows on a new stream that it holds them."""
        was_probe = bool(self.probe)
        self.probe = NO_NAMES
        self.note_proved(accepted, is_halved=was_probe)

    def note_proved(self, accepted: Mapping[str, str], *, is_halved: bool = False) -> None:
        """The client uses these names and versions; ``is_halved``: other suspects are tried in smaller groups now."""
        left = {name: version for name, version in self.whole.items() if accepted.get(name) != version}
        mine = (*self.refused.items(), *self.suspects.items())
        self._clear([name for name, version in mine if accepted.get(name) == version])
        if is_halved and self.groups and len(self.groups[0]) > 1:
            self.groups = (*_halves(self.groups[0]), *self.groups[1:])
        self.whole = left
        if len(left) == 1 and left.items() <= self.suspects.items():
            self._clear(left)
            self.refused |= left

    def left_out(self, released: ResourceSet) -> frozenset[str]:
        """The names that are not offered now: rejected in this version, or suspects that are not tried now."""
        return self.found_in(released) - self.probe

    def found_in(self, released: ResourceSet) -> frozenset[str]:
        """The names that are rejected or suspects in this version."""
        return self.rejected_in(released) | _same(self.suspects, released)

    def rejected_in(self, released: ResourceSet) -> frozenset[str]:
        """The names that are known to be rejected in this version."""
        return _same(self.refused, released)

    def begin_probe(self) -> bool:
        """Offer the next suspects; False when there are none."""
        if not self.groups:
            return False
        if len(self.whole) > 1 and self.whole.keys() <= set(self.groups[0]):
            # To try all of them at once would be to send the rejected set again (rule 16).
            self.groups = (*_halves(self.groups[0]), *self.groups[1:])
        self.probe = frozenset(self.groups[0])
        return True

    def forgive(self, names: Collection[str]) -> None:
        """Forget these names: the client unsubscribed from them, or subscribes again and must be answered (rule 53)."""
        self._clear(names)

    def forget_changed(self, released: ResourceSet, goal: ResourceSet) -> None:
        """Forget rejected versions that are in neither set: the content of these names has changed."""
        sets = released.resources, goal.resources
        gone = [
            name
            for names in (self.refused, self.suspects)
            for name, version in names.items()
            if all((found := each.get(name)) is None or found.version != version for each in sets)
        ]
        if gone:
            self._clear(gone)

    def _clear(self, names: Collection[str]) -> None:
        gone = frozenset(names)
        if not gone.isdisjoint(self.whole):
            self.whole = {}
        self.refused = {name: version for name, version in self.refused.items() if name not in gone}
        self.suspects = {name: version for name, version in self.suspects.items() if name not in gone}
        groups = (tuple(name for name in group if name not in gone) for group in self.groups)
        self.groups = tuple(group for group in groups if group)


def _same(versions: Mapping[str, str], released: ResourceSet) -> frozenset[str]:
    """The names that a set has in these versions."""
    resources = released.resources
    return frozenset(n for n, version in versions.items() if n in resources and resources[n].version == version)


def _halves(names: Sequence[str]) -> Groups:
    middle = (len(names) + 1) // 2
    return tuple(half for half in (tuple(names[:middle]), tuple(names[middle:])) if half)


def named_in(message: str, names: Collection[str]) -> frozenset[str]:
    """The names among ``names`` that a client's error message names as bad; empty if it names none.

    Envoy names bad resources of CDS and LDS ("Error adding/updating cluster(s) bad: ..."), gRPC those of all types
    ("[resource index 0: bad: ...]"). Other messages may contain the names of other things, so they are not searched.
    """
    if "(s) " in message:
        before = r"(?:\(s\) |, |; |\n)"
    elif "resource index " in message:
        before = r"resource index \d+: "
    else:
        return NO_NAMES
    likely = [name for name in names if name and f"{name}: " in message]
    return frozenset(name for name in likely if re.search(f"{before}{re.escape(name)}: ", message))
