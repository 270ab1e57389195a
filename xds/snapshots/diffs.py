"""The differences between two sets, computed once for all streams.

The results are kept in bounded memos, keyed by the ids of the sets, so that a push costs each further stream a few
look-ups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from xds.model.names import WILDCARD
from xds.model.snapshot import Change, ResourceSet, diff, diff_among
from xds.snapshots.cluster_references import assignments_of
from xds.snapshots.interest import Interest
from xds.snapshots.memo import Memo
from xds.snapshots.set_diff import SetDiff, subscriptions_of

MEMO_ENTRIES = 1024
UNDER_ROUTE = "/*"
NAMES_BUDGET = 100_000  # names in each memo of names: some 100 bytes each


SetIds = tuple[int, int]  # the ids of the older set (0 for none) and of the newer set


NameSets = tuple[frozenset[str], ...]
ChangeOf = Callable[[ResourceSet | None, ResourceSet], Change]  # `Diffs.change`


class Diffs:
    """The differences between the sets that clients hold and the sets that they should hold."""

    __slots__ = ("_lacking", "_made", "_missing", "_unaccepted", "_unknown")

    def __init__(self) -> None:
        self._made: Memo[SetIds, SetDiff] = Memo(MEMO_ENTRIES)
        self._missing: Memo[tuple[Interest, int], tuple[str, ...]] = Memo(MEMO_ENTRIES, NAMES_BUDGET, _missing_cost)
        self._lacking: Memo[tuple[frozenset[str], int, int], frozenset[str]] = Memo(
            MEMO_ENTRIES, NAMES_BUDGET, lambda key, lacking: len(key[0]) + len(lacking)
        )

        self._unaccepted: Memo[tuple[Interest, int, NameSets, int], frozenset[str]] = Memo(
            MEMO_ENTRIES, NAMES_BUDGET, lambda key, unaccepted: len(key[0].names) + len(unaccepted)
        )

        # With the length of unknown names: clients may invent them.
        self._unknown: Memo[tuple[frozenset[str], int], frozenset[str]] = Memo(
            MEMO_ENTRIES, NAMES_BUDGET, lambda key, unknown: len(key[0]) + sum(map(len, unknown))
        )

    def begin_age(self) -> None:
        """Begin an age: drop the results that were not used in the last one (`Memo.begin_age`)."""
        for memo in (self._made, self._missing, self._lacking, self._unaccepted, self._unknown):
            memo.begin_age()

    def keep(self, *made: SetDiff) -> None:
        """Keep differences that were computed elsewhere."""
        for each in made:
            self._made.put(set_ids(each.old, each.new), each)

    def between(self, old: ResourceSet | None, new: ResourceSet) -> SetDiff:
        """The difference between two sets; None is the empty set."""
        return self._made.get(set_ids(old, new), self._make, old, new)

    def change(self, old: ResourceSet | None, new: ResourceSet) -> Change:
        """The change from ``old`` to ``new``; None is the empty set."""
        return self.between(old, new).change

    def _make(self, old: ResourceSet | None, new: ResourceSet) -> SetDiff:
        return SetDiff(old, new, self._diff(old, new))

    def _diff(self, old: ResourceSet | None, new: ResourceSet) -> Change:
        if old is None or (old.mixture is None and new.mixture is None):
            return diff(old, new)
        # Of mixed sets only the mixed-in names are compared, because their bases were compared before.
        before, old_names = (old.mixture.base, old.mixture.earlier_names) if old.mixture else (old, ())
        after, new_names = (new.mixture.base, new.mixture.earlier_names) if new.mixture else (new, ())
        changed = self.change(before, after).names if before is not after else ()
        return diff_among(old, new, (*changed, *sorted({*old_names, *new_names})))

    def assignments(self, old: ResourceSet | None, new: ResourceSet, uncertain: Iterable[str] = ()) -> frozenset[str]:
        """The names of the assignments of clusters that differ between two sets.

        Clusters in ``uncertain`` count as well: the client may hold them in any version (rule 18), and warms them again
        when they change back.
        """
        names = self.between(old, new).assignments
        if uncertain:
            names |= assignments_of((name for name in uncertain if name in new.resources), new)
        return names

    def begun(self, old: ResourceSet | None, new: ResourceSet, anew: Iterable[str], type_url: str) -> frozenset[str]:
        """The names of a type to which a client with ``old`` subscribes by another config source when it reads ``new``.

        The resources ``anew`` are new to the client, even if both sets have them.
        """
        names = {each.name for each in self.between(old, new).begun if each.type_url == type_url}
        for name in anew:
            if name in new.resources:
                names.update(each.name for each in subscriptions_of(new.resources[name]) if each.type_url == type_url)
        return frozenset(names)

    def missing(self, interest: Interest, released: ResourceSet) -> tuple[str, ...]:
        """The subscribed names that no resource of the set has, sorted."""
        if not interest.names:
            return ()
        return self._missing.get((interest, released.id), lambda: tuple(interest.missing(released)))

    def unaccepted(
        self, interest: Interest, acked: ResourceSet, doubted: NameSets, number: int, offered: Sequence[Sequence[str]]
    ) -> frozenset[str]:
        """The subscribed names that ``acked`` lacks, that are ``doubted``, or that are in the response in flight.

        ``offered`` are the names in this response and those that it removes, ``number`` is its `Response.number`.
        """

        def find() -> frozenset[str]:
            return interest.names.intersection({*self.missing(interest, acked)}.union(*doubted, *offered))

        return self._unaccepted.get((interest, acked.id, doubted, number), find)

    def unknown(self, names: frozenset[str], resource_set: ResourceSet) -> frozenset[str]:
        """The names that no resource of the set has."""
        return self._unknown.get((names, resource_set.id), _unknown, names, resource_set)

    def lacking(self, names: frozenset[str], old: ResourceSet | None, new: ResourceSet) -> frozenset[str]:
        """The names of resources in ``new`` that ``old`` lacks, and the names that neither set has."""
        if old is None or not names:
            return names
        key = (names, old.id, new.id)
        return self._lacking.get(key, lambda: lacking(names, old, new, self.change(old, new)))


def set_ids(old: ResourceSet | None, new: ResourceSet) -> SetIds:
    """The key of the difference between two sets."""
    return (old.id if old is not None else 0, new.id)


def resolve(names: Iterable[str], resource_set: ResourceSet) -> Iterable[str]:
    """The names of the resources with these names or aliases; ``*`` means all, ``r/*`` the hosts of a route ``r``."""
    if WILDCARD in names:
        return resource_set.resources.keys()
    if resource_set.type.narrowed_by:
        routes = {name.removesuffix(UNDER_ROUTE) for name in names if name.endswith(UNDER_ROUTE)}
        if routes:
            return [*names, *(name for name in resource_set.resources if name.rpartition("/")[0] in routes)]
    by_alias = resource_set.by_alias
    return [by_alias.get(name, name) for name in names] if by_alias else names


def _missing_cost(key: tuple[Interest, int], names: tuple[str, ...]) -> int:
    return len(key[0].names) + len(names)


def _unknown(names: frozenset[str], resource_set: ResourceSet) -> frozenset[str]:
    for known in (resource_set.resources, resource_set.by_alias):
        names = names.difference(known) if known else names
    return names


def lacking(names: frozenset[str], old: ResourceSet, new: ResourceSet, change: Change) -> frozenset[str]:
    """As `Diffs.lacking`; ``change`` is that from ``old`` to ``new``."""
    nowhere = names.difference(old.resources).difference(new.resources)
    return names.intersection((*change.added, *change.changed)) | nowhere
