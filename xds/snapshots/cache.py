"""One idea: the snapshot of each group is here, with all results that are computed once for all streams.

Streams hold no copies. Diffs, releases and encoded responses are kept in bounded memos, keyed by the identity of the
sets involved, so that a push costs each further stream a few look-ups (docs/internals/design.md#push-path).
`precompute` computes the results that streams need before a push is served; it may run in another thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from xds.model.node import GroupMatch, Locality, Node
from xds.model.resource import Resource
from xds.model.resource_type import ENDPOINT
from xds.model.snapshot import Derivation, ResourceSet, Snapshot, diff, diff_among
from xds.snapshots.diffs import MEMO_ENTRIES, Diffs
from xds.snapshots.interest import InterestTable
from xds.snapshots.lines import Content, GroupLine, GroupSplit, Lines
from xds.snapshots.membership import ChooseGroup, Membership, Rule
from xds.snapshots.memo import Memo
from xds.snapshots.observed_layer import ObservedLayer, touched_by_push, translate_changes
from xds.snapshots.order import DEFAULT_ORDER, GroupOrder, OrderRules
from xds.snapshots.overlay import OverlaidSets, Overlay, Overlays, ViewKey, source_of
from xds.snapshots.release import Releases
from xds.snapshots.removal_log import RefusedVersions, RemovalLog
from xds.snapshots.responses import NO_PARTS, PREPARED_FROM, PartsByName, ResponseBuilder, prepare_parts
from xds.snapshots.set_diff import SetDiff

_REFUSED_LIMIT = 10_000
_DROPPED_KEPT = 16  # groups
_DEFAULT_RULES = OrderRules()
_CHANGES_PER_AGE = 10  # of the memos: pushes, and changes of observed assignments

Translate = Callable[[ResourceSet], ResourceSet | None]


NO_SNAPSHOT = Snapshot("", 0)  # of a client whose node has not matched a group yet


@dataclass(frozen=True, slots=True)
class View:
    """The snapshot of a group that a stream follows, for one API version and one source.

    ``api_version`` is ``v2`` for clients on the v2 transport, else empty. ``order`` has the settings of the group.
    ``source`` is the locality whose overlay is applied; None for no overlay. ``log`` is the removal log of the group.
    """

    group: str
    snapshot: Snapshot
    log: RemovalLog
    api_version: str = ""
    order: GroupOrder = DEFAULT_ORDER
    source: Locality | None = None


@dataclass(frozen=True, slots=True)
class Precomputed:
    """The difference between two snapshots.

    * ``diffs``: the differences between their sets;
    * ``parts``: the encoded parts of large sets, by lineage.
    """

    diffs: list[SetDiff] = field(default_factory=list)
    parts: dict[int, PartsByName] = field(default_factory=dict)


NOTHING_PRECOMPUTED = Precomputed()


_NO_OVERLAYS: Mapping[Locality, Overlay] = {}


@dataclass(slots=True)
class _Group:
    """One served group. ``views`` are those of its lines."""

    lines: Lines
    proceed_on_nack: bool = False
    views: dict[tuple[GroupLine, ViewKey], View] = field(default_factory=dict)


class SnapshotCache:
    """All groups that are served.

    ``identifier`` is sent to clients as ``control_plane.identifier``. ``nonce_prefix`` must differ between processes.
    ``translations`` maps an API version to the function that translates a set to it; the function returns None for a
    type that the version does not have. ``rules`` say how long clients may need what a push removed.
    """

    def __init__(
        self,
        identifier: str = "",
        *,
        nonce_prefix: str = "",
        translations: Mapping[str, Translate] | None = None,
        response_bytes_limit: int = 256 << 20,
        rules: OrderRules = _DEFAULT_RULES,
    ) -> None:
        self.epoch = 0  # grows when nodes may belong to other groups: a group was added or dropped, a selector changed
        self._groups: dict[str, _Group] = {}
        self._dropped: dict[str, RemovalLog] = {}  # the logs of the last groups that were dropped: clients have these
        self.membership = Membership(self._groups.__contains__)
        self._orders: Mapping[str, GroupOrder] = {}
        self._overlays: dict[str, Overlays] = {}
        self._observed: dict[str, ObservedLayer] = {}
        self._translate_to = dict(translations or {})
        self._translated: Memo[tuple[str, int], ResourceSet | None] = Memo(MEMO_ENTRIES)
        self._changes = 0
        self._rules = rules
        self._refused = RefusedVersions()
        self.changed_refusals: dict[tuple[str, str], None] = {}  # resources whose refused versions are to be stored
        self.interests = InterestTable()
        self.diffs = Diffs()
        self.no_view = View("", NO_SNAPSHOT, self._new_log(""))  # of a client without a group
        self.releases = Releases(self.diffs.between)
        self.responses = ResponseBuilder(identifier, nonce_prefix, self.diffs.change, response_bytes_limit)

    # -- publishing -------------------------------------------------------------------------------------------------

    def set(
        self,
        snapshot: Snapshot,
        retained: Sequence[tuple[float, Snapshot]] = (),
        on_nack: str = "hold",
        precomputed: Precomputed = NOTHING_PRECOMPUTED,
        now_s: float = 0.0,
        split: GroupSplit | None = None,
        is_stored: bool = False,
    ) -> None:
        """Serve this snapshot to its group; while ``split`` has a base, to the nodes of its wave.

        ``retained`` are the earlier revisions with the times of their pushes, oldest first (after a restart).
        ``is_stored``: it was pushed before a restart, so its clients may have it already.
        ``precomputed`` is the result of `precompute` for this snapshot. ``on_nack`` is the setting ``hold`` or
        ``proceed``. ``now_s`` is the time of the push, on the clock of the streams.
        """
        name = snapshot.group
        group = self._groups.get(name)
        self._count_change()
        self.diffs.keep(*precomputed.diffs)
        served = self._with_observed(group.lines.head if group is not None else None, snapshot)
        if group is None:
            dropped = self._dropped.pop(name, None)
            log = dropped if dropped is not None and not retained else self._new_log(name)
            log.rules = self.rules_of(name)
            lines = Lines(Content(snapshot, served), log, self._translate)
            group = self._groups[name] = _Group(lines)
            self.epoch += 1
        lines, before = group.lines, [each.pushed for each in group.lines.contents()]
        self.epoch += lines.change(split, now_s, is_push=True)
        base = self._next_base(lines, split)
        is_base_new = base is not lines.base
        lines.base = base
        lines.head.pushed, lines.head.snapshot = snapshot, served
        self.responses.drop_parts(before, [each.pushed for each in lines.contents()])
        lines.note_pushes(now_s, retained, is_base_new=is_base_new, is_stored=is_stored or bool(retained))
        proceed = on_nack == "proceed"
        is_base_same = base is not None and not is_base_new and proceed == group.proceed_on_nack
        group.proceed_on_nack = proceed
        group.views = {key: each for key, each in group.views.items() if is_base_same and key[0] is not GroupLine.HEAD}
        self.responses.keep_parts(precomputed.parts)

    def split(self, group: str, split: GroupSplit | None, now_s: float) -> None:
        """Serve the present contents of a group to other nodes: its rollout took a step, or has ended."""
        state = self._groups[group]
        if state.lines.change(split, now_s, is_push=False):
            before, state.lines.base = state.lines.base, self._next_base(state.lines, split)
            state.lines.note_pushes(now_s, is_base_new=state.lines.base is not before)
            state.views.clear()
            self.epoch += 1

    def _next_base(self, lines: Lines, split: GroupSplit | None) -> Content | None:
        """The base that is served with the next head, which has not replaced the present one yet."""
        if split is None or split.base is None:
            return None
        if lines.base is not None and lines.base.pushed is split.base:
            return lines.base
        before = lines.base or lines.head
        overlaid = lines.base.overlaid if lines.base is not None else OverlaidSets()
        return Content(split.base, self._with_observed(before, split.base), overlaid)

    def _count_change(self) -> None:
        """Begin a new age of the memos every few changes, because their entries keep older sets in memory."""
        self._changes += 1
        if self._changes % _CHANGES_PER_AGE == 0:
            for memo in (self.responses, self.releases, self.diffs, self._translated):
                memo.begin_age()

    def precompute(self, snapshot: Snapshot) -> Precomputed:
        """The results that streams need when this snapshot is served next; may run in another thread."""
        return precompute(self.pushed(snapshot.group), snapshot, self.responses.parts_of)

    def drop(self, group: str) -> None:
        """Stop serving a group. Its nodes keep their configuration (rule 9), and may have it when they return."""
        dropped = self._groups.pop(group, None)
        if dropped is not None:
            self._dropped[group] = dropped.lines.logs(GroupLine.HEAD)[""]
            for oldest in [*self._dropped][:-_DROPPED_KEPT]:
                del self._dropped[oldest]
            self.responses.drop_parts([each.pushed for each in dropped.lines.contents()])
            self.epoch += 1

    def configure(self, rules: Iterable[Rule], orders: Mapping[str, GroupOrder]) -> None:
        """Set the rules by which nodes belong to groups, and the order settings of groups."""
        self.membership.assign(rules)
        self._orders = dict(orders)
        for name, group in self._groups.items():
            group.views.clear()
            for log in group.lines.all_logs():
                log.rules = self.rules_of(name)
        self.epoch += 1

    def choose_groups(self, choose: ChooseGroup | None = None) -> None:
        """Choose the groups of nodes by this function from now on; None calls the present function again.

        Open streams follow when they are notified.
        """
        if choose is not None:
            self.membership.choose = choose
        self.epoch += 1

    def observe(self, group: str, put: Mapping[str, Resource], removed: Collection[str] = ()) -> bool:
        """Put live assignments in the place of pushed ones, in this and later snapshots; drop those in ``removed``.

        All other live assignments stay. This makes no revision. The live assignments outlive their group. Returns
        whether the served content of the group changed.
        """
        layer = self._observed.setdefault(group, ObservedLayer())
        touched = layer.change(put, removed)
        if not layer.resources:
            del self._observed[group]
        state = self._groups.get(group)
        if not touched or state is None:
            return False
        changes = [self._observe(layer, each, touched) for each in state.lines.contents()]
        if any(changes):
            self._count_change()
            state.views.clear()
        return any(changes)

    def _observe(self, layer: ObservedLayer, content: Content, touched: Collection[str]) -> bool:
        before, served = content.snapshot, layer.reapply(content.pushed, content.snapshot, touched)
        if served is before or served.get(ENDPOINT).digest == before.get(ENDPOINT).digest:
            return False
        self._note_difference(before, served, touched)
        content.snapshot = served
        return True

    def observed(self, group: str) -> Mapping[str, Resource]:
        """The observed assignments of a group, by name."""
        layer = self._observed.get(group)
        return layer.resources if layer is not None else {}

    def observed_groups(self) -> list[str]:
        """The groups that have observed assignments, also those without a snapshot."""
        return list(self._observed)

    def _with_observed(self, previous: Content | None, pushed: Snapshot) -> Snapshot:
        """The pushed snapshot with the observed assignments. ``previous`` is what was served before, if anything."""
        layer = self._observed.get(pushed.group)
        if layer is None or previous is None:
            return layer.apply(pushed) if layer is not None else pushed
        before, after = layer.base(previous.pushed), layer.base(pushed)
        touched = touched_by_push(before, after, layer, self.diffs)
        is_amended = before.lineage_id == after.lineage_id and previous.snapshot is not previous.pushed
        served = layer.reapply(pushed, previous.snapshot, touched) if is_amended else layer.apply(pushed)
        self._note_difference(previous.snapshot, served, touched)
        return served

    def _note_difference(self, before: Snapshot, after: Snapshot, touched: Collection[str]) -> None:
        """Store the change between two served sets of assignments, and between their translations."""
        old, new = before.get(ENDPOINT), after.get(ENDPOINT)
        if old is new:
            return
        self.diffs.keep(SetDiff(old, new, diff_among(old, new, touched)))
        for api_version, translate in self._translate_to.items():
            translated = self._translated.find((api_version, old.id))
            if translated is not None and new.observed:
                newer = translate_changes(translated, new, touched, translate)
                self._translated.put((api_version, new.id), newer)
                if newer is not None:
                    self.diffs.keep(SetDiff(translated, newer, diff_among(translated, newer, touched)))

    def overlay(self, group: str, overlays: Overlays) -> frozenset[Locality]:
        """Apply these overlays to the group's snapshot, this one and later ones.

        Returns the sources whose overlay changed: the served content of their nodes may have changed.
        """
        before = self._overlays.get(group, _NO_OVERLAYS)
        changed = frozenset(s for s in {*before, *overlays} if before.get(s) is not overlays.get(s))
        if overlays:
            self._overlays[group] = dict(overlays)
        else:
            self._overlays.pop(group, None)
        state = self._groups.get(group)
        if state is not None:
            state.views = {key: view for key, view in state.views.items() if key[1][1] not in changed}
            for content in state.lines.contents():
                content.overlaid.keep_sources(overlays.keys())
        return changed

    def is_overlaid(self, group: str) -> bool:
        """Whether the group has overlays."""
        return group in self._overlays

    def prepare_overlays(self, snapshot: Snapshot) -> None:
        """Compute the replacements of overlays for a snapshot before it is served; may run in another thread."""
        observed = self.observed(snapshot.group)
        for overlay in self._overlays.get(snapshot.group, _NO_OVERLAYS).values():
            overlay.prepare(snapshot.get(overlay.type_url), observed)

    def get(self, group: str, line: GroupLine = GroupLine.HEAD) -> Snapshot | None:
        """What the nodes of a line are served: the pushed snapshot with the observed assignments.

        None without such a group.
        """
        state = self._groups.get(group)
        return state.lines.content(line).snapshot if state is not None else None

    def served(self, group: str) -> list[Snapshot]:
        """All that the nodes of a group are served: the head, and the base while a rollout runs."""
        state = self._groups.get(group)
        return [each.snapshot for each in state.lines.contents()] if state is not None else []

    def all_pushed(self, group: str) -> list[Snapshot]:
        """The same as it was pushed."""
        state = self._groups.get(group)
        return [each.pushed for each in state.lines.contents()] if state is not None else []

    def line(self, group: str, node: Node | None) -> GroupLine:
        """The line of a node of a group. What has no node is on the line of those that no wave has reached."""
        state = self._groups.get(group)
        return state.lines.line(node) if state is not None else GroupLine.HEAD

    def is_split(self, group: str) -> bool:
        """Whether the nodes of a group are served different contents."""
        state = self._groups.get(group)
        return state is not None and state.lines.base is not None

    def pushed(self, group: str) -> Snapshot | None:
        """The newest snapshot of a group as it was pushed; None without such a group."""
        state = self._groups.get(group)
        return state.lines.head.pushed if state is not None else None

    def groups(self) -> list[str]:
        """Names of all groups."""
        return sorted(self._groups)

    def retained(self, group: str) -> list[int]:
        """The revisions of the removal log of a group, oldest first. The store keeps them for the next start."""
        state = self._groups.get(group)
        return state.lines.logs(GroupLine.HEAD)[""].revisions() if state is not None else []

    def rules_of(self, group: str) -> OrderRules:
        """The order rules with the settings of a group."""
        order = self._orders.get(group, DEFAULT_ORDER)
        delay_s, drain_s = order.removal_delay_s, order.listener_drain_s
        return replace(
            self._rules,
            removal_delay_s=delay_s if delay_s is not None else self._rules.removal_delay_s,
            listener_drain_s=drain_s if drain_s is not None else self._rules.listener_drain_s,
        )

    def log(self, group: str, api_version: str = "", line: GroupLine = GroupLine.HEAD) -> RemovalLog:
        """The removal log of a line of a group. Of one that was dropped, as it was then; of any other, an empty one."""
        state = self._groups.get(group)
        if state is None:
            return self._dropped.get(group) or self._new_log(group)
        logs = state.lines.logs(line)
        log = logs.get(api_version if api_version in self._translate_to else "")
        if log is None:  # most groups have no client of another API version
            newest = self._translate(state.lines.content(line).snapshot, api_version)
            log = logs[api_version] = logs[""].translated(self._translate_to[api_version], newest)
        return log

    def end_removals(self, group: str, now_s: float) -> None:
        """End what the removal logs of a group have (`RemovalLog.end`)."""
        state = self._groups.get(group)
        for log in state.lines.all_logs() if state is not None else ():
            log.end(now_s)

    def note_refused(self, type_url: str, refused: Mapping[str, Iterable[str]]) -> None:
        """A node refused these versions, by name: no client is given them in place of another version."""
        for name, versions in refused.items():
            new = [(type_url, name, version) for version in versions if (type_url, name, version) not in self._refused]
            if new:
                self._refused.add(new)
                self.changed_refusals[type_url, name] = None
        while len(self._refused) > _REFUSED_LIMIT:
            oldest = self._refused.take_oldest()
            self.changed_refusals[oldest[:2]] = None

    def refused_versions(self) -> dict[tuple[str, str], list[str]]:
        """The versions that some node refused, by type URL and name."""
        versions: dict[tuple[str, str], list[str]] = {}
        for url, name, version in self._refused:
            versions.setdefault((url, name), []).append(version)
        return versions

    def may_return(self, type_url: str, name: str, versions: Iterable[str]) -> bool:
        """Whether one of these versions is in the log of a group, so that a client could be given it again."""
        logs = [log for group in self._groups.values() for log in group.lines.all_logs()]
        return any(log.has(type_url, name, version) for log in logs for version in versions)

    def _new_log(self, group: str) -> RemovalLog:
        return RemovalLog(self.rules_of(group), self.diffs.between, self._refused)

    # -- what a stream follows --------------------------------------------------------------------------------------

    def match(self, node: Node) -> GroupMatch | None:
        """The group of a node, and the rule that chose it; None while no group matches."""
        return self.membership.match(node)

    def resolve(self, node: Node, api_version: str = "") -> View | None:
        """The view of a node; None while no group matches."""
        match = self.match(node)
        if match is None:
            return None
        return self.view(match.group, api_version, node.locality, self.line(match.group, node))

    def view(
        self, group: str, api_version: str = "", locality: Locality | None = None, line: GroupLine = GroupLine.HEAD
    ) -> View | None:
        """The view of a line of a group for an API version and a locality; None if there is no such group."""
        state = self._groups.get(group)
        if state is None:
            return None
        overlays = self._overlays.get(group)
        source = source_of(overlays, locality) if overlays is not None and locality is not None else None
        view = state.views.get((line, (api_version, source)))
        if view is None:
            view = state.views[line, (api_version, source)] = self._new_view(group, state, line, api_version, source)
        return view

    def _new_view(self, group: str, state: _Group, line: GroupLine, api_version: str, source: Locality | None) -> View:
        content = state.lines.content(line)
        snapshot = self._translate(content.snapshot, api_version)
        if source is not None:
            snapshot = self._overlaid(content, snapshot, self._overlays[group][source], (api_version, source))
        order = self._orders.get(group, DEFAULT_ORDER)
        if order.proceed_on_nack is None:
            order = replace(order, proceed_on_nack=state.proceed_on_nack)
        return View(group, snapshot, self.log(group, api_version, line), api_version, order, source)

    def _overlaid(self, content: Content, snapshot: Snapshot, overlay: Overlay, key: ViewKey) -> Snapshot:
        """The snapshot of an API version with an overlay."""
        base, put = self._resolve_overrides(content.snapshot, overlay, key[0])
        if base is None or snapshot.sets.get(base.type.type_url) is not base:
            return snapshot  # resources that were pushed in the types of the API version are served as pushed
        whole = content.overlaid.apply(key, base, put, self.diffs)
        if whole is base:
            return snapshot
        return snapshot.with_set(whole)

    def _resolve_overrides(
        self, pushed: Snapshot, overlay: Overlay, api_version: str
    ) -> tuple[ResourceSet | None, Mapping[str, Resource]]:
        """The set that an overlay applies to in an API version, and its replacements."""
        base = pushed.sets.get(overlay.type_url)
        put = overlay.replacements(base) if base is not None else {}
        if base is None or api_version not in self._translate_to:
            return base, put
        translated = self._translate_set(base, api_version)
        replacements = self._translate_to[api_version](
            ResourceSet(base.type, base.version_info, put, derivation=Derivation(origin_id=base.id))
        )
        if translated is None or replacements is None:
            return translated, {}
        return translated, {n: each for n, each in replacements.resources.items() if n in translated.resources}

    def _translate(self, snapshot: Snapshot, api_version: str) -> Snapshot:
        if api_version not in self._translate_to:
            return snapshot
        # Resources that were pushed in the types of that version take precedence over translated ones.
        sets = {s.type.type_url: t for s in snapshot if (t := self._translate_set(s, api_version)) is not None}
        by_url = {translated.type.type_url: translated for translated in sets.values()}
        by_url.update((url, own) for url, own in snapshot.sets.items() if url not in sets)
        return Snapshot(snapshot.group, snapshot.revision, by_url)

    def _translate_set(self, resource_set: ResourceSet, api_version: str) -> ResourceSet | None:
        key = (api_version, resource_set.id)
        return self._translated.get(key, lambda: self._translate_to[api_version](resource_set))


def precompute(
    old: Snapshot | None, new: Snapshot, parts_of: Callable[[ResourceSet], PartsByName] = lambda _: NO_PARTS
) -> Precomputed:
    """The results that streams which hold ``old`` need when ``new`` is served.

    ``parts_of`` returns the parts of a set that are already encoded. A snapshot of 10,000 clusters takes 25 ms.
    Otherwise the first stream of the group would block the event loop for that time.
    """
    results = Precomputed()
    for type_url, after in new.sets.items():
        before = old.get(type_url) if old is not None else None
        if len(after) >= PREPARED_FROM and not parts_of(after):
            results.parts[after.lineage_id] = prepare_parts(after, parts_of(before) if before is not None else NO_PARTS)
        if before is after:
            continue
        set_diff = SetDiff(before, after, diff(before, after))
        if after.type.is_route_target:
            _ = set_diff.assignments  # computed here, not by the first stream
        results.diffs.append(set_diff)
    return results
