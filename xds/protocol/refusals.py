"""What a client rejects of one type: the bad resources are found, and all others are sent without them.

A NACK rejects a whole response and rarely says which resource is bad. So new content is sent without the suspects,
alternating with halves of the suspects (docs/design.md#refusals). A resource that was rejected alone, or by name, is
left out until its content changes; the client's last accepted version takes its place.

    event                       what becomes of the names in the response
    NACK that names some        those are refused; the others are offered again
    NACK of one resource        it is refused
    NACK of several             suspects, in two halves, before the suspects from earlier
    ACK                         neither suspects nor refused any more; the next group of suspects is cut in halves
    the same, of a full-state   what is left of a refused response, once all else in it was accepted, is refused: to
    set                         try it would be to send the refused response again
    content changes             no suspect: it is news
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from copy import copy

from xds.model.snapshot import ResourceSet

_NOTHING: frozenset[str] = frozenset()
Groups = tuple[tuple[str, ...], ...]


class Refusals:
    """The refusals of one watch; made at its first NACK.

    ``refused`` and ``suspects`` map names to the version that is meant. ``probe`` are suspects that are tried now;
    ``is_news_due``: their turn was the last one.
    ``refused_set`` is what was released at the first NACK: a full-state set waits until that changes. ``whole`` are
    the suspects of the last refused response that had everything: name to version.
    """

    __slots__ = ("groups", "is_news_due", "probe", "refused", "refused_set", "suspects", "whole")

    def __init__(self, refused: Mapping[str, str] | None = None) -> None:
        self.refused: dict[str, str] = dict(refused or {})
        self.suspects: dict[str, str] = {}
        self.groups: Groups = ()
        self.probe: frozenset[str] = _NOTHING
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
        """What the client's next stream begins with: first it is sent what nobody suspects."""
        made = Refusals(self.refused)
        made.suspects, made.groups, made.whole = dict(self.suspects), self.groups, dict(self.whole)
        return made

    def join(self, earlier: Refusals) -> None:
        """Add what was refused earlier, of names that nothing newer is known of."""
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
        """A response with these names and versions was refused; returns those now known to be refused.

        ``is_whole``: it had, besides, all that the client has.
        """
        guilty = tuple(name for name in offered if name in named) or (tuple(offered) if len(offered) == 1 else ())
        rest = [name for name in offered if name not in guilty]
        self._clear(offered)
        self.refused.update((name, offered[name]) for name in guilty)
        if rest and not guilty:
            self.suspects = {**{name: offered[name] for name in rest}, **self.suspects}
            self.groups = (*_halves(rest), *self.groups)
            self.whole = {name: offered[name] for name in rest} if is_whole else {}
        self.probe = _NOTHING
        return guilty

    def note_ack(self, accepted: Mapping[str, str]) -> None:
        """A response with these names and versions was accepted; or is, as a client shows that comes back."""
        was_probe = bool(self.probe)
        left = {name: version for name, version in self.whole.items() if accepted.get(name) != version}
        mine = (*self.refused.items(), *self.suspects.items())
        self._clear([name for name, version in mine if accepted.get(name) == version])
        self.probe = _NOTHING
        if was_probe and self.groups and len(self.groups[0]) > 1:
            self.groups = (*_halves(self.groups[0]), *self.groups[1:])
        self.whole = left
        if len(left) == 1 and left.items() <= self.suspects.items():
            self._clear(left)
            self.refused |= left

    def left_out(self, released: ResourceSet) -> frozenset[str]:
        """The names that are not offered now: refused in this very version, or suspected and not tried yet."""
        return self.found_in(released) - self.probe

    def found_in(self, released: ResourceSet) -> frozenset[str]:
        """The names that are refused or suspected in this very version."""
        resources = released.resources
        return frozenset(
            name
            for names in (self.refused, self.suspects)
            for name, version in names.items()
            if (found := resources.get(name)) is not None and found.version == version
        )

    def begin_probe(self) -> bool:
        """Try the next suspects; False when there are none."""
        if not self.groups:
            return False
        if len(self.whole) > 1 and self.whole.keys() <= set(self.groups[0]):
            self.groups = (*_halves(self.groups[0]), *self.groups[1:])  # to try them all would be to send it again
        self.probe = frozenset(self.groups[0])
        return True

    def forgive(self, names: Collection[str]) -> None:
        """Rule 53: what a client asks for explicitly is answered, whatever was refused."""
        self._clear(names)

    def forget_changed(self, released: ResourceSet, goal: ResourceSet) -> None:
        """What was refused in another version than what is released now, or will be, is news."""
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


def _halves(names: Sequence[str]) -> Groups:
    middle = (len(names) + 1) // 2
    return tuple(half for half in (tuple(names[:middle]), tuple(names[middle:])) if half)


def named_in(message: str, names: Collection[str]) -> frozenset[str]:
    """The resources that a client's error text names as wrong, of those it was sent; empty where it names none.

    Envoy names them for CDS and LDS ("Error adding/updating cluster(s) bad: ..."), gRPC always ("[resource index 0:
    bad: ...]"). Other texts hold names of other things, so nothing is read out of them.
    """
    if "(s) " in message:
        before = r"(?:\(s\) |, |; |\n)"
    elif "resource index " in message:
        before = r"resource index \d+: "
    else:
        return _NOTHING
    likely = [name for name in names if name and f"{name}: " in message]
    return frozenset(name for name in likely if re.search(f"{before}{re.escape(name)}: ", message))
