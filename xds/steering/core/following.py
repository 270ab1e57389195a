"""Compares real flows with decided shares: whether the nodes of a source follow the decision.

Proxies find out by health checks or outlier detection that a target is dead, and send its requests elsewhere. The
server may never learn that. So a target that gets clearly less than `LEFT_BELOW` of its share from a source, in two
intervals in a row, has no capacity for that source. With ``errors_above`` the same holds for a target that fails too
many requests.

After a while one source sends a few requests to the target again, as a probe. When they arrive, the target has its
capacity back. A target that the nodes left keeps this small share until then: nodes that consider the target dead send
nothing to the target, so the share costs no request, and no further change. A target that answers with errors would
fail these requests: its probe ends, and the next probe begins after twice the time.

Shares and flows are only compared when the whole window was measured after the share was decided. Proxies follow
only after the update has reached them: for a minute after a rise of a share, the comparison expects only the requests
of the lower share.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import fsum, sqrt

from xds.model.node import Locality
from xds.steering.core.assignment import (
    Assignment,
    Departure,
    FlowRate,
    Observation,
    ObservedFlows,
    Path,
    PathMemory,
    Reason,
    ReasonCode,
)
from xds.steering.core.pacing import has_elapsed
from xds.steering.core.policy import Policy
from xds.steering.core.reasons import locality_label
from xds.steering.core.weights import locality_key

MISSES_LIMIT = 2  # consecutive misses after which the nodes have left the target
# Parts of the requests that a target should get. From the first part on, the nodes follow the share; below the second,
# they left the target. Some nodes may keep old weights for ever: a share that was never followed needs the third.
FOLLOWED_FROM, LEFT_BELOW, NEVER_FOLLOWED_BELOW = 0.5, 0.4, 0.1
# How long proxies may take to follow.
FOLLOW_INTERVALS = 6
# Fewer requests in a window prove nothing.
LEAST_REQUESTS = 20.0
# The share of a probe: enough requests to prove something, within bounds.
PROBE_SHARE, PROBE_SHARE_LIMIT, PROBE_REQUESTS = 0.02, 0.1, 10.0
PROBE_INTERVALS = 6
_PROBE_CHANGE = 1.5  # a probe's share changes when the needed one is this many times larger or smaller
_FIRST_WAIT_INTERVALS = 6
# The longest wait between probes, as a multiple of the first one.
LONGEST_WAIT = 16
_FORGOTTEN_AFTER = 10  # multiple of the last wait, after which a new departure counts as the first one
_SAME_SHARE = 0.2  # a smaller relative change of a share is no change
_NO_FLOW = FlowRate(0.0)


@dataclass(frozen=True, slots=True)
class Following:
    """The result of the comparison.

    ``paths`` are the memory for the next decision. ``departed``: the targets without capacity for any source.
    ``excluded``: by source, the targets without capacity for this source only. ``probes``: by source, the shares of
    probes, by target.
    """

    paths: Mapping[Path, PathMemory] = field(default_factory=dict)
    departed: frozenset[Locality] = frozenset()
    excluded: Mapping[Locality, frozenset[Locality]] = field(default_factory=dict)
    probes: Mapping[Locality, Mapping[Locality, float]] = field(default_factory=dict)
    reasons: Mapping[Locality, tuple[Reason, ...]] = field(default_factory=dict)


def follow(
    policy: Policy, observed: Observation, capacity: Mapping[Locality, float], previous: Assignment, now: float
) -> Following:
    """Compare the flows of all sources with the previous decision.

    A target without ``capacity``, as far as the server knows, is not compared.
    """
    usable = frozenset(name for name, rps in capacity.items() if rps > 0)
    return _Comparison(policy, observed, usable, previous, now).result()


def wait_s(policy: Policy, path: PathMemory) -> float:
    """The time from a departure to the probe, in seconds."""
    relapses = min(max(path.times - 1, 0), LONGEST_WAIT)
    first_s = max(2 * policy.dwell_s, _FIRST_WAIT_INTERVALS * policy.interval_s)
    return first_s * min(LONGEST_WAIT, 1 << relapses)


class _Comparison:
    """One comparison in progress. ``usable``: the targets that have capacity, as far as the server knows."""

    def __init__(
        self, policy: Policy, observed: Observation, usable: frozenset[Locality], previous: Assignment, now: float
    ) -> None:
        self.policy, self.observed, self.usable, self.previous, self.now = policy, observed, usable, previous, now
        self.reasons: dict[Locality, list[Reason]] = {}

    def result(self) -> Following:
        """The result of the comparison."""
        before = self.previous.memory.paths
        paths = {key: path for key, path in before.items() if self._is_known(key)}
        if self.observed.flows is not None:
            for source, assigned in self.previous.sources.items():
                if assigned.is_overlay and source in self.observed.demand:
                    paths |= self._compare(source, assigned.shares(), paths, self.observed.flows)
        paths = self._probe(self._restore(before, paths))
        return self._summarise({key: path for key, path in paths.items() if self._is_worth_keeping(path)})

    def _is_known(self, key: Path) -> bool:
        source, target = key
        return source in self.observed.demand and target in self.usable

    def _is_worth_keeping(self, path: PathMemory) -> bool:
        if path.share > 0 or path.departure is not None:
            return True
        return path.times > 0 and self.now - path.left_at < _FORGOTTEN_AFTER * wait_s(self.policy, path)

    # Comparing

    def _compare(
        self,
        source: Locality,
        shares: Mapping[Locality, float],
        paths: Mapping[Path, PathMemory],
        flows: ObservedFlows,
    ) -> dict[Path, PathMemory]:
        rates = flows.rates.get(source, {})
        total = fsum(rate.rps for rate in rates.values()) * flows.window_s  # the same in whatever order
        names = {*shares, *(target for path_source, target in paths if path_source == source)} & self.usable
        compared = {}
        for target in sorted(names, key=locality_key):
            share = shares.get(target, 0.0)
            path = self._update_share(paths.get((source, target)), share, self.previous.memory.observed_at)
            if (
                share > 0
                and flows.since >= path.since
                and has_elapsed(path.judged_at, self.policy.interval_s, self.now)
            ):
                path = replace(path, judged_at=self.now)
                path = self._judge(source, target, path, share * total, rates.get(target, _NO_FLOW), flows)
            compared[source, target] = path
        return compared

    def _judge(
        self,
        source: Locality,
        target: Locality,
        path: PathMemory,
        expected: float,
        rate: FlowRate,
        flows: ObservedFlows,
    ) -> PathMemory:
        count, errors = rate.rps * flows.window_s, rate.errors_ps * flows.window_s
        if path.departure is not None:
            if not path.probed_at or not path.counted + count:
                return path  # no request of the probe has arrived yet
            sums = {"expected": expected, "counted": count, "failed": errors}
            return replace(path, **{name: getattr(path, name) + more for name, more in sums.items()})
        departure = self._departure(path, self._expected_so_far(path, expected, flows.since), count, errors)
        if departure is None:
            is_seen = path.is_seen or (expected >= LEAST_REQUESTS and count >= FOLLOWED_FROM * expected)
            times = 0 if self.now - path.left_at > _FORGOTTEN_AFTER * wait_s(self.policy, path) else path.times
            return replace(path, misses=0, is_seen=is_seen, times=times)
        path = replace(path, misses=path.misses + 1)
        if path.misses < MISSES_LIMIT:
            return path
        self._add_reason(
            source, ReasonCode.NOT_FOLLOWED, _describe_departure(target, departure, expected, count, errors), target
        )
        return replace(path, departure=departure, left_at=self.now, times=path.times + 1, misses=0)

    def _expected_so_far(self, path: PathMemory, expected: float, measured_from: float) -> float:
        """The requests that must arrive even if the proxies have not followed the last rise of the share yet."""
        if not self._may_lag(path, measured_from) or path.share <= path.risen_from:
            return expected
        return expected * path.risen_from / path.share

    def _may_lag(self, path: PathMemory, at: float) -> bool:
        """Whether nodes may still have had the earlier share at a time."""
        return at - path.since < FOLLOW_INTERVALS * self.policy.interval_s

    def _update_share(self, path: PathMemory | None, share: float, decided_at: float) -> PathMemory:
        """The path with its current share, the time of the last real change, and the share before a rise."""
        if path is None:
            return PathMemory(share, decided_at)
        if abs(share - path.share) <= _SAME_SHARE * max(share, path.share):
            return path
        least = min(path.risen_from, path.share) if self._may_lag(path, decided_at) else path.share
        return replace(path, share=share, since=decided_at, misses=0, risen_from=least)

    def _departure(self, path: PathMemory, expected: float, count: float, errors: float) -> Departure | None:
        limit = self.policy.errors_above
        if limit is not None and count >= LEAST_REQUESTS and errors > limit * count:
            return Departure.ERRORS
        if expected < LEAST_REQUESTS:
            return None
        below = LEFT_BELOW if path.is_seen else NEVER_FOLLOWED_BELOW
        return Departure.LEFT if count < below * expected - sqrt(below * expected) else None

    # Probes

    def _restore(self, before: Mapping[Path, PathMemory], paths: dict[Path, PathMemory]) -> dict[Path, PathMemory]:
        """End the probes that have a result. A target that is back for one source is back for all."""
        ended = {key: self._is_back(key, path) for key, path in paths.items() if path.departure and path.probed_at}
        back = {target for (_, target), is_back in ended.items() if is_back}
        restored = dict(paths)
        for key, path in paths.items():
            source, target = key
            if path.departure is None:
                continue
            if target in back:
                detail = f"{locality_label(target)} gets its requests again: it has its capacity back"
                self._add_reason(source, ReasonCode.FOLLOWED, detail, target)
                restored[key] = replace(_end_probe(path), departure=None, misses=0, is_seen=True, left_at=self.now)
            elif ended.get(key) is False:
                restored[key] = replace(_end_probe(path), left_at=path.probed_at, times=path.times + 1)
            elif path.expected >= PROBE_REQUESTS:  # begin to count again
                restored[key] = replace(path, expected=0.0, counted=0.0, failed=0.0)
        return restored

    def _is_back(self, key: Path, path: PathMemory) -> bool | None:
        """Whether the requests of a probe arrived; None while that is not known yet.

        Counting begins when the first requests arrive: the proxies may follow late.
        """
        is_unlimited = path.departure is Departure.LEFT and self._has_enough_requests(key[0])
        is_over = self.now - path.probed_at >= PROBE_INTERVALS * self.policy.interval_s and not is_unlimited
        if path.expected < PROBE_REQUESTS and not is_over:
            return None
        limit = self.policy.errors_above
        if path.departure is Departure.ERRORS and limit is not None and path.failed > limit * path.counted:
            return False
        if path.counted and path.counted >= FOLLOWED_FROM * path.expected:
            return True
        return False if is_over else None

    def _probe(self, paths: dict[Path, PathMemory]) -> dict[Path, PathMemory]:
        """Begin the probes that are due. One source probes a target: the one with the fewest requests that suffice."""
        due: dict[Locality, list[Locality]] = {}
        probed = {target for (_, target), path in paths.items() if path.departure and path.probed_at}
        for (source, target), path in paths.items():
            if path.departure and target not in probed and self.now - path.left_at >= wait_s(self.policy, path) * 0.9:
                due.setdefault(target, []).append(source)
        for target, sources in due.items():
            source = min(
                sources, key=lambda one: (not self._has_enough_requests(one), self._rps(one), locality_key(one))
            )
            paths[source, target] = replace(paths[source, target], probed_at=self.now)
        return paths

    def _rps(self, source: Locality) -> float:
        return self.observed.demand[source].rps

    def _has_enough_requests(self, source: Locality) -> bool:
        return self._rps(source) * self.policy.interval_s * PROBE_SHARE_LIMIT >= PROBE_REQUESTS

    def _probe_share(self, source: Locality, served: float) -> float:
        """The share of a probe: the ``served`` one, if it still suffices."""
        requests = self._rps(source) * self.policy.interval_s
        needed = 1.5 * PROBE_REQUESTS / requests if requests > 0 else PROBE_SHARE_LIMIT
        share = min(max(needed, PROBE_SHARE), PROBE_SHARE_LIMIT)
        return served if share / _PROBE_CHANGE <= served <= min(share * _PROBE_CHANGE, PROBE_SHARE_LIMIT) else share

    # The result

    def _summarise(self, paths: Mapping[Path, PathMemory]) -> Following:
        departed = {key for key, path in paths.items() if path.departure is not None}
        followed = {
            target for (_, target), path in paths.items() if path.departure is None and path.share > 0 and path.is_seen
        }
        departed_targets = frozenset(target for _, target in departed if target not in followed)
        excluded: dict[Locality, set[Locality]] = {}
        probes: dict[Locality, dict[Locality, float]] = {}
        for source, target in sorted(departed, key=str):
            if target not in departed_targets:
                excluded.setdefault(source, set()).add(target)
            if paths[source, target].probed_at:
                probes.setdefault(source, {})[target] = share = self._probe_share(source, paths[source, target].share)
                detail = f"{share:.0%} of the requests try whether {locality_label(target)} is back"
                self._add_reason(source, ReasonCode.PROBING, detail, target)
            self._add_standing_reason(source, target, paths[source, target])
        return Following(
            paths,
            departed_targets,
            {source: frozenset(names) for source, names in excluded.items()},
            probes,
            {source: tuple(reasons) for source, reasons in self.reasons.items()},
        )

    def _add_standing_reason(self, source: Locality, target: Locality, path: PathMemory) -> None:
        if path.departure is None or self._has_reason(source, target):
            return
        cause = "its requests do not arrive there" if path.departure is Departure.LEFT else "it answers with errors"
        age_s = self.now - path.left_at
        detail = f"{locality_label(target)} gets no share for {age_s:.0f} s now: {cause}"
        self._add_reason(source, ReasonCode.NOT_FOLLOWED, detail, target)

    def _has_reason(self, source: Locality, target: Locality) -> bool:
        return any(reason.target == target for reason in self.reasons.get(source, ()))

    def _add_reason(self, source: Locality, code: ReasonCode, detail: str, target: Locality) -> None:
        self.reasons.setdefault(source, []).append(Reason(code, detail, target))


def remove_targets(shares: Mapping[Locality, float], names: Collection[Locality]) -> dict[Locality, float]:
    """The shares without these targets, scaled to a sum of 1; unchanged if no other target has a share."""
    others = {name: share for name, share in shares.items() if name not in names}
    total = sum(others.values())
    return {name: share / total for name, share in others.items()} if total > 0 else dict(shares)


def probed_targets(paths: Mapping[Path, PathMemory], source: Locality) -> set[Locality]:
    """The targets to which a source sends only a probe."""
    return {
        target
        for (path_source, target), path in paths.items()
        if path_source == source and path.departure and path.probed_at
    }


def _end_probe(path: PathMemory) -> PathMemory:
    return replace(path, probed_at=0.0, expected=0.0, counted=0.0, failed=0.0)


def _describe_departure(target: Locality, departure: Departure, expected: float, count: float, errors: float) -> str:
    label = locality_label(target)
    if departure is Departure.ERRORS:
        return f"{label} failed {errors:.4g} of {count:.4g} requests: it gets no share for a while"
    return (
        f"{count:.4g} of {expected:.4g} requests arrived at {label}: the proxies left it, it gets no share for a while"
    )
