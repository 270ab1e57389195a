"""The table of connected clients, and what is remembered of nodes beyond their connections.

All streams of a client share one `ClientState`. Of a node two things outlive its connections: the versions that it
rejects, and the groups that it followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from xds.model.snapshot import Snapshot
from xds.protocol.client import ClientState
from xds.protocol.group_logs import LeftGroup
from xds.protocol.rejections import NOTHING_REFUSED, RefusedVersions, Versions
from xds.snapshots.cache import NO_SNAPSHOT, SnapshotCache, View
from xds.snapshots.order import OrderRules

ClientKey = tuple[str, str]  # peer address, and node id
NODES_LIMIT = 50_000
_FOLLOWED_PER_NODE = 2  # groups; a client may have disconnected in the transition from one group to the other


class Member(Protocol):
    """A stream in a `Cohort`: it shares the state of its client with other streams."""

    @property
    def client(self) -> ClientState | None:
        """The shared state."""

    def leave_cohort(self) -> object:
        """Give the client a state of its own: it gets a second stream."""


class ClientTable:
    """The states of all connected clients, by (peer address, node id).

    ``rejected`` has the versions that nodes rejected: by node id, type URL and name. The caller sets those
    from before the server started. docs/protocol.md#rejections: "rejections are remembered per node id, also across a
    restart of the server". ``changed_moves`` are the nodes that changed groups, until the caller has stored it.
    """

    def __init__(self, cache: SnapshotCache, rules: OrderRules) -> None:
        self._cache = cache
        self._rules = rules
        self._states: dict[ClientKey, ClientState] = {}
        self._members: dict[ClientKey, Member] = {}  # the only stream of each client whose state others share
        self.rejected: dict[str, RefusedVersions] = {}
        self.changed_moves: dict[str, None] = {}
        # By node id, the present group first; the first node changed groups longest ago.
        self._followed: dict[str, tuple[LeftGroup, ...]] = {}

    def enter(self, key: ClientKey, view: View | None) -> ClientState:
        """The state of the client of a new stream. `exit` must be called once when the stream ends."""
        if key in self._members:
            self._members[key].leave_cohort()
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = ClientState(self._cache, self._rules, view)
            state.refused_before = self.rejected.get(key[1], NOTHING_REFUSED)
        state.streams += 1
        return state

    def exit(self, key: ClientKey) -> None:
        """A stream of the client ended. Its state is dropped with its last stream (rule 80)."""
        state = self._require_state(key)
        if state.streams > 1:
            state.streams -= 1
            return
        self._states.pop(key, None)
        self._members.pop(key, None)
        followed = self._followed.get(key[1])
        if followed is not None and followed[0].group == state.goal.group:  # it may move while it is away
            self._followed[key[1]] = (followed[0]._replace(revision=state.goal.revision), *followed[1:])
        self._note_refused(key[1], state)

    def _note_refused(self, node_id: str, state: ClientState) -> None:
        """Note what a client refuses now, in place of what its node refused before."""
        if state.goal is not NO_SNAPSHOT:  # else it was sent nothing
            refused = state.watches.refused
            for url in {**state.refused_before, **refused}:
                self.note_rejected(node_id, url, refused.get(url, {}))

    def note_rejected(self, node_id: str, type_url: str, versions: Mapping[str, Versions]) -> None:
        """A client of this node rejects these versions, by name."""
        before = self.rejected.pop(node_id, NOTHING_REFUSED)
        after = {url: each for url, each in {**before, type_url: dict(versions)}.items() if each}
        if after:
            self.rejected[node_id] = after
        if len(self.rejected) > NODES_LIMIT:
            del self.rejected[next(iter(self.rejected))]

    def note_followed(self, node_id: str, group: str, goal: Snapshot) -> None:
        """Note that the node follows this group now, so it has left the one before.

        ``goal``: what a client of it was to have last. It may have missed later pushes to the group that it left. Of
        several clients of the node, the one counts that had the latest push.
        """
        before = self._followed.pop(node_id, ())
        if before and before[0].group != group:
            self.changed_moves[node_id] = None
            served = goal if goal.group == before[0].group else self._cache.get(before[0].group)
            revision = before[0].revision or (served.revision if served is not None else 0)
            before = (before[0]._replace(revision=revision), *before[1:])
        former = [each for each in before if each.group != group]
        for i, each in enumerate(former):
            if each.group == goal.group and each.revision < goal.revision:
                self.changed_moves[node_id] = None
                former[i] = each._replace(revision=goal.revision)
        self.restore_followed(node_id, (LeftGroup(group, 0), *former))

    def restore_followed(self, node_id: str, groups: Iterable[LeftGroup]) -> None:
        """Set the groups that a node followed, the latest first: `followed` of an earlier process."""
        self._followed.pop(node_id, None)
        self._followed[node_id] = tuple(groups)[:_FOLLOWED_PER_NODE]
        if len(self._followed) > NODES_LIMIT:
            oldest = next(iter(self._followed))
            del self._followed[oldest]
            self.changed_moves.pop(oldest, None)

    def followed(self, node_id: str) -> tuple[LeftGroup, ...]:
        """The groups that a node followed last: the present one, then the one that it left last.

        The revision of the present one is 0 while the node is connected, then the last one that it was to have.
        """
        return self._followed.get(node_id, ())

    def forget_former_groups(self, node_id: str) -> None:
        """The node changed groups so long ago that none of its connections is that old."""
        if node_id in self._followed:
            self._followed[node_id] = self._followed[node_id][:1]

    def state(self, key: ClientKey) -> ClientState | None:
        """The state of a connected client; None if it has no stream."""
        member = self._members.get(key)
        return member.client if member is not None else self._states.get(key)

    def _require_state(self, key: ClientKey) -> ClientState:
        state = self.state(key)
        assert state is not None, "a client has a state while it has a stream"
        return state

    def share(self, key: ClientKey, member: Member) -> None:
        """The state of a client is shared with others from now on; ``member`` is its only stream."""
        state = self._states.pop(key)
        if state.watches.refused:  # nothing any more: the others do not know what its node refused
            self._note_refused(key[1], state)
            state.watches.forget_refused()
        self._members[key] = member

    def own(self, key: ClientKey, state: ClientState) -> None:
        """The client has a state of its own again."""
        self._members.pop(key, None)
        self._states[key] = state

    def __len__(self) -> int:
        return len(self._states) + len(self._members)
