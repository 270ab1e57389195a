"""The versioned snapshot cache: group to snapshot, and everything that is computed once for all streams.

Streams hold no copies. Diffs, unions, drafts and encoded responses are memoized here by the identity of the sets
involved, in bounded caches, so that a push costs each further stream a few dictionary look-ups (DESIGN 3.3).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from xds.model.node import GroupMatch, Locality, Node
from xds.model.resource import Resource
from xds.model.snapshot import Change, ResourceSet, Snapshot, diff, diff_among
from xds.model.versions import version_stem
from xds.protocol.builder import ResponseBuilder
from xds.protocol.foresight import NOTHING_FORESEEN, Foresight, assignments_of, sets_key
from xds.protocol.holdings import fed_by, has_all, lacking, leads_within, named_by
from xds.protocol.membership import Membership, Rule
from xds.protocol.memo import Memo
from xds.protocol.mixtures import mixture_of
from xds.protocol.order import DEFAULT_ORDER, GroupOrder
from xds.protocol.overlay import Overlay, Overlays, lay, source_of
from xds.protocol.release import Releases
from xds.protocol.subscription import Interest

RETAINED_REVISIONS = 10
_PUSHES_PER_AGE = 10  # of the memo of responses
_MEMO_ENTRIES = 1024
_NAMES_BUDGET = 100_000  # names kept by each memo of names: some 100 bytes each
_FORMER_GROUPS = 2  # a client may have left amid the transition from one to the other
_FOLLOWED_LIMIT = 50_000  # nodes
_LAID_LIMIT = 64  # overlaid sets of a group that a client may come back with

Translate = Callable[[ResourceSet], ResourceSet | None]


@dataclass(frozen=True, slots=True)
class View:
    """What a stream follows: a group's snapshot, in a variant of the API (``v2``) where the client needs one.

    ``order`` is what the group says of its order; ``source`` the locality whose overlay lies over it, None for none.
    """

    group: str
    snapshot: Snapshot
    variant: str = ""
    order: GroupOrder = DEFAULT_ORDER
    source: Locality | None = None


_ViewKey = tuple[str, Locality | None]  # variant, source
_NO_OVERLAYS: Overlays = {}


class _Laid(NamedTuple):
    """A set that was made by laying an overlay over ``base``; the very ``base`` where that came to nothing."""

    base: ResourceSet
    whole: ResourceSet


@dataclass(slots=True)
class _Group:
    snapshot: Snapshot
    proceed_on_nack: bool
    retained: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=RETAINED_REVISIONS))
    views: dict[_ViewKey, View] = field(default_factory=dict)
    laid: dict[_ViewKey, _Laid] = field(default_factory=dict)  # the latest of each view
    # What was laid over: sets of the stand-ins only, the latest last.
    stand_ins: deque[ResourceSet] = field(default_factory=lambda: deque(maxlen=_LAID_LIMIT))


class SnapshotCache:
    """All groups being served.

    ``identifier`` is told to clients as ``control_plane.identifier``. ``nonce_prefix`` must differ between processes.
    ``variants`` maps a variant to the function that translates a set for it (None: nothing of it can be told).
    """

    def __init__(
        self,
        identifier: str = "",
        *,
        nonce_prefix: str = "",
        variants: Mapping[str, Translate] | None = None,
        response_bytes_limit: int = 256 << 20,
    ) -> None:
        self.epoch = 0  # grows whenever nodes may belong elsewhere: a group came or went, a selector changed
        self._groups: dict[str, _Group] = {}
        self.membership = Membership(self._groups.__contains__)
        self._orders: Mapping[str, GroupOrder] = {}
        self._overlays: dict[str, Overlays] = {}
        self._followed: dict[str, tuple[str, ...]] = {}  # by node id, the one that changed longest ago first
        self._variants = dict(variants or {})
        self._translated: Memo[tuple[str, int], ResourceSet | None] = Memo(_MEMO_ENTRIES)
        self._changes: Memo[tuple[int, int], Change] = Memo(_MEMO_ENTRIES)
        self._assignments: Memo[tuple[int, int], frozenset[str]] = Memo(_MEMO_ENTRIES)
        self._parts: Memo[tuple[int, frozenset[str], int, int], ResourceSet] = Memo(_MEMO_ENTRIES)
        self._missing: Memo[tuple[Interest, int], tuple[str, ...]] = Memo(_MEMO_ENTRIES, _NAMES_BUDGET, _names_cost)
        self._lacking: Memo[tuple[frozenset[str], int, int], frozenset[str]] = Memo(
            _MEMO_ENTRIES, _NAMES_BUDGET, lambda key, lacking: len(key[0]) + len(lacking)
        )
        self._fed: Memo[tuple[object, ...], ResourceSet | None] = Memo(_MEMO_ENTRIES)
        self._mixtures: Memo[tuple[object, ...], ResourceSet | None] = Memo(_MEMO_ENTRIES)
        self._recalled: Memo[tuple[int, ...], tuple[Mapping[str, str], ResourceSet | None]] = Memo(
            _MEMO_ENTRIES, _NAMES_BUDGET, lambda key, recalled: 2 * len(recalled[0])
        )
        self._pushes = 0
        self.releases = Releases(self.change)
        self.responses = ResponseBuilder(identifier, nonce_prefix, self.change, response_bytes_limit)

    # -- publishing -------------------------------------------------------------------------------------------------

    def set(
        self,
        snapshot: Snapshot,
        retained: Sequence[Snapshot] = (),
        on_nack: str = "hold",
        foreseen: Foresight = NOTHING_FORESEEN,
    ) -> None:
        """Serve this snapshot to its group; ``retained`` are earlier revisions, oldest first (after a restart).

        ``foreseen`` is what was computed for the step from the snapshot before.
        """
        group = self._groups.get(snapshot.group)
        proceed = on_nack == "proceed"
        if group is None:
            self._groups[snapshot.group] = group = _Group(snapshot, proceed)
            self.epoch += 1
        for earlier in (*retained, group.snapshot):
            _let_go_of_frames(earlier, snapshot)
        group.retained.extend(retained)
        group.retained.append(snapshot)
        group.snapshot, group.proceed_on_nack = snapshot, proceed
        group.views.clear()
        self._pushes += 1
        if self._pushes % _PUSHES_PER_AGE == 0:
            for memo in (
                self.responses,
                self.releases,
                self._translated,
                self._changes,
                self._assignments,
                self._parts,
                self._missing,
                self._lacking,
                self._fed,
                self._mixtures,
                self._recalled,
            ):
                memo.begin_age()
        self._remember(foreseen)

    def drop(self, group: str) -> None:
        """The group is no more; its nodes keep what they have."""
        if self._groups.pop(group, None) is not None:
            self.epoch += 1

    def configure(self, rules: Iterable[Rule], orders: Mapping[str, GroupOrder]) -> None:
        """Which nodes belong to which group by selector, and which groups have a say of their own on the order."""
        self.membership.assign(rules)
        self._orders = dict(orders)
        for group in self._groups.values():
            group.views.clear()
        self.epoch += 1

    def overlay(self, group: str, overlays: Overlays) -> frozenset[Locality]:
        """From now on these lie over all that the group is served, now and by later pushes.

        Returns the sources whose nodes may be served something else now; the same object is the same overlay.
        """
        before = self._overlays.get(group, _NO_OVERLAYS)
        changed = frozenset(s for s in {*before, *overlays} if before.get(s) is not overlays.get(s))
        if overlays:
            self._overlays[group] = dict(overlays)
        else:
            self._overlays.pop(group, None)
        found = self._groups.get(group)
        if found is not None:
            found.views = {key: view for key, view in found.views.items() if key[1] not in changed}
            found.laid = {key: laid for key, laid in found.laid.items() if key[1] in overlays}
        return changed

    def is_overlaid(self, group: str) -> bool:
        """Whether anything is laid over what the group is served."""
        return group in self._overlays

    def prepare_overlays(self, snapshot: Snapshot) -> None:
        """Make now what overlays put into a snapshot that will be served; may run in another thread."""
        for overlay in self._overlays.get(snapshot.group, _NO_OVERLAYS).values():
            overlay.over(snapshot.get(overlay.type_url))

    def get(self, group: str) -> Snapshot | None:
        """The snapshot of a group, as it was pushed."""
        found = self._groups.get(group)
        return found.snapshot if found is not None else None

    def groups(self) -> list[str]:
        """Names of all groups."""
        return sorted(self._groups)

    def retained(self, group: str) -> list[int]:
        """The revisions of a group that a client that comes back may name, oldest first."""
        found = self._groups.get(group)
        return [snapshot.revision for snapshot in found.retained] if found is not None else []

    # -- what a stream follows --------------------------------------------------------------------------------------

    def match(self, node: Node) -> GroupMatch | None:
        """The group of a node, and why."""
        return self.membership.match(node)

    def resolve(self, node: Node, variant: str = "") -> View | None:
        """The view of a node; None while no group matches."""
        match = self.match(node)
        return self._view(self._groups[match.group], variant, node.locality) if match is not None else None

    def view(self, group: str, variant: str = "", locality: Locality | None = None) -> View | None:
        """What a group's streams of a variant follow, from a locality; None where there is no such group."""
        found = self._groups.get(group)
        return self._view(found, variant, locality) if found is not None else None

    def followed(self, node_id: str, group: str) -> None:
        """The node follows this group now. Told apart from its answers, so that it is known when it comes back."""
        before = self._followed.pop(node_id, ())
        self._followed[node_id] = (group, *(each for each in before if each != group))[:_FORMER_GROUPS]
        if len(self._followed) > _FOLLOWED_LIMIT:
            del self._followed[next(iter(self._followed))]

    def former(self, node_id: str) -> tuple[str, ...]:
        """The groups that a node followed last, the latest first: what it holds is from them."""
        return self._followed.get(node_id, ())

    def recall(
        self, group: str, type_url: str, version_info: str, variant: str = "", former: Sequence[str] = ()
    ) -> ResourceSet | None:
        """The retained set that a reconnecting SotW client names by version_info; None where nobody knows it.

        ``former`` groups, where the client may have it from, are searched before ``group``. A label counts where it
        means one content only. A set that was mixed of several revisions is put together again and counts if it has
        the hash that the label says.
        """
        history = self._history((*former, group), type_url, variant)
        named = [found for found in history if found.version_info == version_info]
        if named:
            return named[0] if len({found.digest for found in named}) == 1 else None
        laid = self._laid_named(version_info, history, (*former, group))
        return laid[1] if laid is not None else self._mixed_named(version_info, history)

    def _mixed_named(self, version_info: str, history: Sequence[ResourceSet]) -> ResourceSet | None:
        """The mixed set of a label: a retained one, with names as others of the history have them."""
        label, mark, shown = version_info.rpartition("+")
        if not mark:
            return None
        bases = [each for each in history if version_stem(each.version_info, each.digest) == label]
        for base in bases:
            others = [each for each in history if each is not base]
            key: tuple[object, ...] = (shown, base.id, *(each.id for each in others))
            made = partial(mixture_of, base, others, shown, self.change)
            found = self._mixtures.get(key, made)
            if found is not None:
                return found
        return None

    def part(
        self,
        held: ResourceSet,
        names: frozenset[str],
        clusters: ResourceSet | None,
        groups: Sequence[str],
        variant: str = "",
        fed: ResourceSet | None = None,
    ) -> ResourceSet:
        """Some names of a set that a client holds, as it asks for no others; ``clusters`` are those it has.

        What the set lacks the client may have been led to since ("answered at once, from the revision it holds"): it is
        taken from the first revision after the set where it leads to no cluster that the client lacks, else where it
        leads to none but ``fed``, if that is all that is known. A later one may open what no filter guards yet.
        """
        key = (held.id, names, clusters.id if clusters is not None else 0, fed.id if fed is not None else 0)
        return self._parts.get(key, lambda: self._part(held, names, clusters, groups, variant, fed))

    def _part(
        self,
        held: ResourceSet,
        names: frozenset[str],
        clusters: ResourceSet | None,
        groups: Sequence[str],
        variant: str,
        fed: ResourceSet | None,
    ) -> ResourceSet:
        members = {name: held.resources[name] for name in sorted(names) if name in held.resources}
        history = self._history(groups, held.type.type_url, variant)
        base = held.mixture.base if held.mixture is not None else held
        at = next((at for at, found in enumerate(history) if found is base), None)
        if at is None:
            fitting = [at for at, found in enumerate(history) if has_all(found, members)]
            at = fitting[-1] if members and fitting else len(history)
        for name in sorted(names - members.keys()):
            versions = [found.resources[name] for found in history[:at] if name in found.resources]
            if versions:
                served = [each for each in versions if leads_within(each, clusters)]
                served = served or [each for each in versions if leads_within(each, fed)] or versions
                members[name] = served[-1]
        return ResourceSet(held.type, held.version_info, members, origin_id=held.origin_id)

    def served_names(self, group: str, type_url: str, variant: str = "") -> Collection[str]:
        """The names of a type that a group is served now."""
        view = self.view(group, variant)
        return view.snapshot.get(type_url).resources.keys() if view is not None else ()

    def recall_versions(
        self,
        group: str,
        type_url: str,
        versions: Mapping[str, str],
        variant: str = "",
        former: Sequence[str] = (),
        remembered: Sequence[ResourceSet] = (),
    ) -> ResourceSet | None:
        """The set of retained resources that a reconnecting Delta client names by resource version.

        ``remembered`` are sets that it held when it was here last.

        A set that matches exactly is returned itself; otherwise one is put together from all retained revisions.
        Names whose version is not retained are left out.
        """
        groups = self._held((*former, group))
        history = self._history((*former, group), type_url, variant)
        laid = [laid.whole for held in groups for laid in held.laid.values()]
        stand_ins = [made for held in groups for made in reversed(held.stand_ins)]
        history = [*remembered, *history, *(made for made in (*laid, *stand_ins) if made.type.type_url == type_url)]
        # Clients that come back together say the same mapping, which the entry keeps: its id is not given away.
        key = (id(versions), *(found.id for found in history))
        return self._recalled.get(key, lambda: (versions, named_by(versions, history)))[1]

    # -- computed once ----------------------------------------------------------------------------------------------

    def _remember(self, foreseen: Foresight) -> None:
        for key, change in foreseen.changes.items():
            self._changes.put(key, change)
        for key, names in foreseen.assignments.items():
            self._assignments.put(key, names)

    def missing(self, interest: Interest, released: ResourceSet) -> tuple[str, ...]:
        """Names asked for that nothing in the set answers, sorted."""
        if not interest.names:
            return ()
        return self._missing.get((interest, released.id), lambda: tuple(interest.missing(released)))

    def lacking(self, names: frozenset[str], old: ResourceSet | None, new: ResourceSet) -> frozenset[str]:
        """Those of some names that a holder of ``old`` lacks of ``new``, or that neither has."""
        if old is None or not names:
            return names
        key = (names, old.id, new.id)
        return self._lacking.get(key, lambda: lacking(names, old, new, self.change(old, new)))

    def change(self, old: ResourceSet | None, new: ResourceSet) -> Change:
        """What differs between two sets."""
        return self._changes.get(sets_key(old, new), lambda: self._diff(old, new))

    def _diff(self, old: ResourceSet | None, new: ResourceSet) -> Change:
        if old is None or (old.mixture is None and new.mixture is None):
            return diff(old, new)
        # Of mixed sets only the names that were mixed in need a look: what they are made of was compared already.
        before, kept_before = (old.mixture.base, old.mixture.kept) if old.mixture else (old, ())
        after, kept_after = (new.mixture.base, new.mixture.kept) if new.mixture else (new, ())
        between = self.change(before, after).names if before is not after else ()
        return diff_among(old, new, (*between, *sorted({*kept_before, *kept_after})))

    def assignments(self, old: ResourceSet | None, new: ResourceSet, doubted: Iterable[str] = ()) -> frozenset[str]:
        """Names of the assignments that clusters which differ between two sets, or may differ, refer to."""
        change = self.change(old, new)
        clusters = (*change.added, *change.changed)
        names = frozenset[str]()
        if clusters:
            names = self._assignments.get(sets_key(old, new), lambda: assignments_of(clusters, new))
        if doubted:
            # Rule 18: the client may hold these in any version, and warms them when they change back.
            names |= assignments_of((name for name in doubted if name in new.resources), new)
        return names

    def refers_to(self, snapshot: Snapshot, clusters: str, assignments: frozenset[str]) -> bool:
        """Does a set of clusters that a group is or was served refer to one of these assignments?"""
        held = self._groups.get(snapshot.group)
        snapshots = (snapshot, *(reversed(held.retained) if held is not None else ()))
        sets = dict.fromkeys(each.get(clusters) for each in snapshots)
        return any(not assignments.isdisjoint(self.assignments(None, each)) for each in sets)

    def fed_by(
        self, assignments: frozenset[str], clusters: str, groups: Sequence[str], variant: str = ""
    ) -> ResourceSet | None:
        """The clusters of groups that take their endpoints from these assignments: who names them has those."""
        history = self._history(groups, clusters, variant)
        return self._fed.get((assignments, *(each.id for each in history)), lambda: fed_by(assignments, history))

    def _view(self, group: _Group, variant: str, locality: Locality | None) -> View:
        overlays = self._overlays.get(group.snapshot.group)
        source = source_of(overlays, locality) if overlays is not None and locality is not None else None
        view = group.views.get((variant, source))
        if view is None:
            snapshot = self._translate(group.snapshot, variant)
            if overlays is not None and source is not None:
                snapshot = self._overlaid(group, snapshot, overlays[source], (variant, source))
            order = self._orders.get(snapshot.group, DEFAULT_ORDER)
            if order.proceed_on_nack is None:
                order = replace(order, proceed_on_nack=group.proceed_on_nack)
            view = group.views[variant, source] = View(snapshot.group, snapshot, variant, order, source)
        return view

    def _overlaid(self, group: _Group, snapshot: Snapshot, overlay: Overlay, key: _ViewKey) -> Snapshot:
        """The snapshot of a variant with an overlay over it."""
        base, put = self._stand_ins(group.snapshot, overlay, key[0])
        if base is None or snapshot.sets.get(base.type.type_url) is not base:
            return snapshot  # of the variant's own types, resources are served as pushed
        whole = lay(base, put)
        before, group.laid[key] = group.laid.get(key), _Laid(base, whole)
        if before is not None and before.whole is not whole:
            # Without this, all names of both sets would be compared: what they lie over was compared already.
            change = self.change(before.base, base)
            names = (*change.added, *change.changed, *change.removed, *before.whole.overlaid, *whole.overlaid)
            self._changes.put(sets_key(before.whole, whole), diff_among(before.whole, whole, names))
        if whole is base:
            return snapshot
        group.stand_ins.append(ResourceSet(base.type, whole.version_info, put, origin_id=base.origin_id))
        return Snapshot(snapshot.group, snapshot.revision, {**snapshot.sets, base.type.type_url: whole})

    def _stand_ins(
        self, pushed: Snapshot, overlay: Overlay, variant: str
    ) -> tuple[ResourceSet | None, Mapping[str, Resource]]:
        """The set of a variant that an overlay is laid over, and what is put into it."""
        base = pushed.sets.get(overlay.type_url)
        put = overlay.over(base) if base is not None else {}
        if base is None or variant not in self._variants:
            return base, put
        held = self._translate_set(base, variant)
        made = self._variants[variant](ResourceSet(base.type, base.version_info, put, origin_id=base.id))
        if held is None or made is None:
            return held, {}
        return held, {name: resource for name, resource in made.resources.items() if name in held.resources}

    def _translate(self, snapshot: Snapshot, variant: str) -> Snapshot:
        if variant not in self._variants:
            return snapshot
        # Resources pushed in the variant's own types are served as pushed, before translated ones.
        sets = {s.type.type_url: t for s in snapshot if (t := self._translate_set(s, variant)) is not None}
        by_url = {translated.type.type_url: translated for translated in sets.values()}
        by_url.update((url, own) for url, own in snapshot.sets.items() if url not in sets)
        return Snapshot(snapshot.group, snapshot.revision, by_url)

    def _translate_set(self, resource_set: ResourceSet, variant: str) -> ResourceSet | None:
        key = (variant, resource_set.id)
        return self._translated.get(key, lambda: self._variants[variant](resource_set))

    def _history(self, groups: Sequence[str], type_url: str, variant: str) -> list[ResourceSet]:
        """The distinct sets of a type among the retained revisions, group by group, newest first."""
        snapshots = (
            self._translate(snapshot, variant) for held in self._held(groups) for snapshot in reversed(held.retained)
        )
        return list(dict.fromkeys(snapshot.sets[type_url] for snapshot in snapshots if type_url in snapshot.sets))

    def _laid_named(
        self, label: str, history: Sequence[ResourceSet], groups: Sequence[str]
    ) -> tuple[int, ResourceSet] | None:
        """The overlaid set that a version_info names, with the position of what it lies over."""
        positions = {base.id: position for position, base in enumerate(history)}
        for held in self._held(groups):
            for base, whole in held.laid.values():
                if whole.version_info == label and base.id in positions:
                    return positions[base.id], whole
            for made in reversed(held.stand_ins):
                base_at = next((at for at, base in enumerate(history) if base.origin_id == made.origin_id), None)
                if made.version_info == label and base_at is not None and history[base_at].type == made.type:
                    return base_at, lay(history[base_at], made.resources)
        return None

    def _held(self, groups: Sequence[str]) -> list[_Group]:
        return [self._groups[group] for group in dict.fromkeys(groups) if group in self._groups]


def _names_cost(key: tuple[Interest, int], names: tuple[str, ...]) -> int:
    return len(key[0].names) + len(names)


def _let_go_of_frames(old: Snapshot, new: Snapshot) -> None:
    """What was prepared of a set that is replaced serves few clients any more."""
    for resource_set in old:
        if new.sets.get(resource_set.type.type_url) is not resource_set:
            resource_set.frames = {}
