"""What returning clients may hold: the retained revisions of groups, and the groups that nodes followed.

A client that opens a new stream shows a version_info (SotW) or resource versions (Delta) of an earlier stream.
`RevisionHistory` finds the set that they name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

from xds.model.label import stem
from xds.model.snapshot import Derivation, ResourceSet
from xds.protocol.diffs import MEMO_ENTRIES, NAMES_BUDGET, Diffs
from xds.protocol.holdings import fed_by, has_all, leads_within, named_by
from xds.protocol.memo import Memo
from xds.protocol.mixtures import mixture_of
from xds.protocol.overlay import OverlaidSets

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
        bases = [each for each in history if stem(each.version_info, each.digest) == label]
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
