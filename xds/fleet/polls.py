"""The polls of a node: discovery without a stream (REST xDS, and ``Fetch`` over gRPC). Times are epoch seconds.

Nothing says that a client will not poll again. It is taken for gone when three polls are missing, so its interval is
measured. Envoy polls each subscription at an interval of its own, with jitter, so the interval of a type is the longest
of late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from xds.fleet.refused_content import RefusedContent
from xds.fleet.state import Sync, TypeState
from xds.model.resource_type import alias_of
from xds.protocol.sotw import Fetched

MISSED_POLLS = 3
SHORTEST_INTERVAL_S = 5.0  # also before the second poll


@dataclass(frozen=True, slots=True)
class Poll:
    """One request without a stream.

    ``version_held`` is the version that the client names, ``fetched`` the current response; None if no group matches
    the node.
    """

    type_url: str
    version_held: str
    fetched: Fetched | None

    @property
    def is_synced(self) -> bool:
        """Whether the client has the current content."""
        return self.fetched is not None and not self.fetched.modified

    def resolves(self, refusal: RefusedContent) -> bool:
        """Whether the client, which NACKed on a stream before, has content that it no longer rejects."""
        if self.fetched is None or self.fetched.modified:
            return False
        wants = self.fetched.interest.wants_name
        return refusal.is_wanted(wants) and refusal.is_resolved_by(self.fetched.content, None, wants)

    def state(self, before: TypeState | None, revision: int | None, now: float) -> TypeState:
        """The state of the type; ``before`` is the one at the poll before. It has no text that the client chooses."""
        state = Sync.ORPHANED if self.fetched is None else Sync.SYNCED if self.is_synced else Sync.PENDING
        sent = self.fetched.version_info if self.fetched is not None else ""
        known = {sent, before.version_sent, before.version_acked} if before is not None else {sent}
        interest = self.fetched.interest if self.fetched is not None else None
        return TypeState(
            type=alias_of(self.type_url),
            type_url=self.type_url,
            state=state,
            version_sent=sent,
            version_acked=self.version_held if self.version_held in known else "",
            revision=revision if self.is_synced else None,
            wildcard=interest is not None and interest.wildcard,
            subscribed=len(interest.names) if interest is not None else 0,
            since=before.since if before is not None and before.state is state else now,
        )


@dataclass(frozen=True, slots=True)
class PolledType:
    """The latest poll of a type, and the longest interval of late, measured at ``measured``; 0 before two polls."""

    state: TypeState
    last: float
    interval_s: float = 0.0
    measured: float = 0.0

    @property
    def kept_s(self) -> float:
        """How long after the last poll the client is gone."""
        return MISSED_POLLS * max(SHORTEST_INTERVAL_S, self.interval_s)

    def again(self, state: TypeState, now: float) -> PolledType:
        """This type after one more poll. An interval grows at most threefold, so that an absence is not one."""
        interval_s = min(now - self.last, self.kept_s) if self.interval_s else now - self.last
        if interval_s < self.interval_s and now - self.measured <= self.kept_s:
            return replace(self, state=state, last=now)
        return PolledType(state, now, interval_s, now)


@dataclass(frozen=True, slots=True)
class Polls:
    """The polls of a node, by type alias."""

    by_type: Mapping[str, PolledType]

    @property
    def last(self) -> float:
        """When the last poll was."""
        return max(each.last for each in self.by_type.values())

    @property
    def interval_s(self) -> float:
        """The longest interval of a type."""
        return max(SHORTEST_INTERVAL_S, *(each.interval_s for each in self.by_type.values()))

    @property
    def types(self) -> tuple[TypeState, ...]:
        """The states of the types."""
        return tuple(each.state for each in self.by_type.values())

    def are_going_on(self, now: float) -> bool:
        """Whether fewer than three polls are missing."""
        return now - self.last <= MISSED_POLLS * self.interval_s


NO_POLLS: Mapping[str, PolledType] = {}


def after_poll(polls: Polls | None, poll: Poll, revision: int | None, now: float) -> Polls:
    """The polls of a node after one more; types that it no longer polls are left out."""
    alias, known = alias_of(poll.type_url), polls.by_type if polls is not None else NO_POLLS
    before = known.get(alias)
    state = poll.state(before.state if before is not None else None, revision, now)
    latest = before.again(state, now) if before is not None else PolledType(state, now)
    kept_s = max(each.kept_s for each in (latest, *known.values()))
    others = {name: each for name, each in known.items() if now - each.last <= kept_s}
    return Polls({**others, alias: latest})
