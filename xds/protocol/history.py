"""What returning clients may hold: the retained revisions of groups, and the groups that nodes followed.

A client that opens a new stream shows a version_info (SotW) or resource versions (Delta) of an earlier stream.
`RevisionHistory` finds the set that they name.

A version_info may name a mixed set that this process never made, because it has restarted: a pushed set with some names
as other revisions have them, or without them. The label has the first digits of the set's hash, which is a sum over the
resources (`content_digest`), so that every combination can be tried at the cost of an addition (`mixture_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from xds.model.snapshot import DIGEST_BITS, Derivation, ResourceSet, mix, pair_hash
from xds.model.versions import HASH_CHARS, version_stem
from xds.protocol.diffs import MEMO_ENTRIES, NAMES_BUDGET, ChangeOf, Diffs
from xds.protocol.holdings import fed_by, has_all, leads_within, named_by
from xds.protocol.memo import Memo
from xds.protocol.overlay import OverlaidSets

# Combinations that are looked at: some 3 ms. Of more the later ones, of the oldest sets, are not.
_COMBINATIONS_LIMIT = 1 << 12
_HASH_SHIFT = DIGEST_BITS - 4 * HASH_CHARS
_ALL_BITS = (1 << DIGEST_BITS) - 1


class _Other(NamedTuple):
    """What a name may be instead: in another version, or not there; ``difference`` is what that adds to the sum."""

    difference: int
    name: str
    earlier: ResourceSet | None


def mixture_of(
    base: ResourceSet, history: Sequence[ResourceSet], shown: str, change_of: ChangeOf
) -> ResourceSet | None:
    """The set with this hash that is ``base`` but for names as some of a history have them, the newest first.

    ``shown`` is the hash as labels show it. None where there is none, or where it would take too long to tell.
    """
    choices = _choices(base, history, change_of)
    found = _search(int.from_bytes(base.digest, "big"), choices, _number(shown))
    if found is None:
        return None
    made = base
    for earlier in dict.fromkeys(each.earlier for each in found):
        names = [each.name for each in found if each.earlier is earlier]
        made = mix(made, earlier, names) if earlier is not None else _without(made, names)
    return _labelled(made, base)


def _choices(base: ResourceSet, history: Sequence[ResourceSet], change_of: ChangeOf) -> list[list[_Other]]:
    """For each name in which sets differ, what it may be but what it is in ``base``."""
    others: dict[str, dict[str, _Other]] = {}
    combinations = 1
    for name, version, earlier in _differing(base, history, change_of):
        known = others.get(name, {})
        if version in known:
            continue
        more = combinations // (len(known) + 1) * (len(known) + 2)
        if more > _COMBINATIONS_LIMIT:
            break
        combinations = more
        held = base.resources.get(name)
        before = pair_hash(name, held.version) if held is not None else 0
        after = pair_hash(name, version) if version else 0
        others.setdefault(name, {})[version] = _Other(after - before, name, earlier)
    return [list(each.values()) for each in others.values()]


def _differing(
    base: ResourceSet, history: Sequence[ResourceSet], change_of: ChangeOf
) -> Iterator[tuple[str, str, ResourceSet | None]]:
    """Names with a version that they have elsewhere, and where; an empty version: they are not there."""
    for older in history:
        change = change_of(older, base)
        yield from ((name, older.resources[name].version, older) for name in (*change.removed, *change.changed))
        yield from ((name, "", None) for name in change.added)


def _search(total: int, choices: Sequence[Sequence[_Other]], wanted: int) -> list[_Other] | None:
    """The choices that lead to the hash; the fewest first among the first names."""
    if not choices:
        return [] if (total & _ALL_BITS) >> _HASH_SHIFT == wanted else None
    first, rest = choices[0], choices[1:]
    found = _search(total, rest, wanted)
    if found is not None:
        return found
    for other in first:
        found = _search(total + other.difference, rest, wanted)
        if found is not None:
            return [other, *found]
    return None


def _number(shown: str) -> int:
    try:
        return int(shown, 16) if len(shown) == HASH_CHARS else -1
    except ValueError:
        return -1


def _without(base: ResourceSet, names: Sequence[str]) -> ResourceSet:
    return base.amended(base.version_info, {}, names)


def _labelled(made: ResourceSet, base: ResourceSet) -> ResourceSet:
    """``made`` as if it had been mixed at once."""
    changed = [
        name
        for name in base.resources
        if name not in made.resources or made.resources[name] is not base.resources[name]
    ]
    return mix(base, made, [*changed, *(name for name in made.resources if name not in base.resources)])


_FORMER_GROUPS = 2  # a client may have left amid the transition from one to the other
_FOLLOWED_LIMIT = 50_000  # nodes


class RetainedSets(Protocol):
    """What the cache has of the past of its groups."""

    def retained_sets(self, groups: Sequence[str], type_url: str, api_version: str) -> list[ResourceSet]:
        """The distinct sets of a type among the retained revisions, group by group, newest first."""
        ...

    def overlaid_sets(self, groups: Sequence[str]) -> list[OverlaidSets]:
        """The overlaid sets of each group."""
        ...


class RevisionHistory:
    """Finds sets that returning clients name."""

    __slots__ = ("_diffs", "_fed", "_followed", "_mixtures", "_parts", "_recalled", "_retained")

    def __init__(self, retained: RetainedSets, diffs: Diffs) -> None:
        self._retained = retained
        self._diffs = diffs
        self._followed: dict[str, tuple[str, ...]] = {}  # groups by node id; the node that changed longest ago first
        self._parts: Memo[tuple[int, frozenset[str], int, int], ResourceSet] = Memo(MEMO_ENTRIES)
        self._fed: Memo[tuple[object, ...], ResourceSet | None] = Memo(MEMO_ENTRIES)
        self._mixtures: Memo[tuple[object, ...], ResourceSet | None] = Memo(MEMO_ENTRIES)
        self._recalled: Memo[tuple[int, ...], tuple[Mapping[str, str], ResourceSet | None]] = Memo(
            MEMO_ENTRIES, NAMES_BUDGET, lambda key, recalled: 2 * len(recalled[0])
        )

    def begin_age(self) -> None:
        """Forget what was not asked for since the age before began."""
        for memo in (self._parts, self._fed, self._mixtures, self._recalled):
            memo.begin_age()

    def note_followed(self, node_id: str, group: str) -> None:
        """The node follows this group now."""
        before = self._followed.pop(node_id, ())
        self._followed[node_id] = (group, *(each for each in before if each != group))[:_FORMER_GROUPS]
        if len(self._followed) > _FOLLOWED_LIMIT:
            del self._followed[next(iter(self._followed))]

    def followed(self, node_id: str) -> tuple[str, ...]:
        """The groups that a node followed last, the latest first: what it holds is from them."""
        return self._followed.get(node_id, ())

    def recall(
        self, group: str, type_url: str, version_info: str, api_version: str = "", former: Sequence[str] = ()
    ) -> ResourceSet | None:
        """The retained set with the version_info of a returning SotW client; None where there is none.

        ``former`` groups, where the client may have it from, are searched before ``group``. A label counts where it
        means one content only. A set that was mixed of several revisions is mixed again, and counts if it has the hash
        in the label.
        """
        history = self._retained.retained_sets((*former, group), type_url, api_version)
        named = [each for each in history if each.version_info == version_info]
        if named:
            return named[0] if len({each.digest for each in named}) == 1 else None
        for overlaid in self._retained.overlaid_sets((*former, group)):
            whole = overlaid.named(version_info, history)
            if whole is not None:
                return whole
        return self._mixed(version_info, history)

    def _mixed(self, version_info: str, history: Sequence[ResourceSet]) -> ResourceSet | None:
        """The mixed set of a label: a retained one, with names as others of the history have them."""
        label, mark, shown = version_info.rpartition("+")
        if not mark:
            return None
        bases = [each for each in history if version_stem(each.version_info, each.digest) == label]
        for base in bases:
            others = [each for each in history if each is not base]
            key: tuple[object, ...] = (shown, base.id, *(each.id for each in others))
            made = self._mixtures.get(key, partial(mixture_of, base, others, shown, self._diffs.change))
            if made is not None:
                return made
        return None

    def part(
        self,
        held: ResourceSet,
        names: frozenset[str],
        clusters: ResourceSet | None,
        groups: Sequence[str],
        api_version: str = "",
        fed: ResourceSet | None = None,
    ) -> ResourceSet:
        """The resources of a set that a client holds, if it asks for these names only; ``clusters`` are those it has.

        The client may have subscribed to names that the set lacks since ("answered at once, from the revision it
        holds"). Their resources are taken from the first revision after the set in which they lead to no cluster that
        the client lacks, else in which they lead to no cluster but ``fed``, if that is all that is known. A later
        revision may open what no filter guards yet.
        """
        key = (held.id, names, clusters.id if clusters is not None else 0, fed.id if fed is not None else 0)
        return self._parts.get(key, lambda: self._part(held, names, clusters, groups, api_version, fed))

    def _part(
        self,
        held: ResourceSet,
        names: frozenset[str],
        clusters: ResourceSet | None,
        groups: Sequence[str],
        api_version: str,
        fed: ResourceSet | None,
    ) -> ResourceSet:
        members = {name: held.resources[name] for name in sorted(names) if name in held.resources}
        history = self._retained.retained_sets(groups, held.type.type_url, api_version)
        base = held.mixture.base if held.mixture is not None else held
        at = next((at for at, each in enumerate(history) if each is base), None)
        if at is None:
            places = [at for at, each in enumerate(history) if has_all(each, members)]
            at = places[-1] if members and places else len(history)
        for name in sorted(names - members.keys()):
            versions = [each.resources[name] for each in history[:at] if name in each.resources]
            if versions:
                fitting = [each for each in versions if leads_within(each, clusters)]
                fitting = fitting or [each for each in versions if leads_within(each, fed)] or versions
                members[name] = fitting[-1]
        return ResourceSet(held.type, held.version_info, members, derivation=Derivation(origin_id=held.origin_id))

    def fed_by(
        self, assignments: frozenset[str], clusters: str, groups: Sequence[str], api_version: str = ""
    ) -> ResourceSet | None:
        """The clusters of groups that take their endpoints from these assignments: a client that asks for an
        assignment has its cluster. ``clusters`` is the type URL of clusters."""
        history = self._retained.retained_sets(groups, clusters, api_version)
        return self._fed.get((assignments, *(each.id for each in history)), lambda: fed_by(assignments, history))

    def recall_versions(
        self,
        group: str,
        type_url: str,
        versions: Mapping[str, str],
        api_version: str = "",
        former: Sequence[str] = (),
        remembered: Sequence[ResourceSet] = (),
    ) -> ResourceSet | None:
        """The set of retained resources with the versions that a returning Delta client shows, name by name.

        ``remembered`` are sets that the client held when it left. A set that matches exactly is returned itself;
        otherwise one is put together from all retained revisions. Names whose version is not retained are left out.
        """
        groups = (*former, group)
        history = self._retained.retained_sets(groups, type_url, api_version)
        overlaid = self._retained.overlaid_sets(groups)
        latest = [whole for each in overlaid for whole in each.latest()]
        overrides = [made for each in overlaid for made in each.overrides()]
        history = [*remembered, *history, *(made for made in (*latest, *overrides) if made.type.type_url == type_url)]
        # Clients that return together show the same mapping, which the entry keeps, so that its id is not reused.
        key = (id(versions), *(each.id for each in history))
        return self._recalled.get(key, lambda: (versions, named_by(versions, history)))[1]
