"""A scenario, run second by second: proxies send and report, the control plane decides, proxies follow soon after."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf, isinf
from random import Random
from typing import TypeVar

from bench.zones.control import Control, Product, Seen
from bench.zones.fleet import Counts, Hosts, Reports, balanced
from bench.zones.scaler import Autoscaler
from bench.zones.scenarios import RATES, Moment, Scenario
from xds.model.node import Locality
from xds.steering.core.assignment import Allotment
from xds.steering.core.placement import Distance, distance
from xds.steering.core.policy import Policy
from xds.steering.core.policy_document import parse_policy

INTERVAL_S = 10
# How CPU grows with load: from an idle base to all of it at capacity.
IDLE_CPU, TARGET_CPU = 0.1, 0.8
_USABLE = (TARGET_CPU - IDLE_CPU) / (1.0 - IDLE_CPU)
# Slow noise: the part of it that an interval keeps of the one before.
_PERSISTENCE = 0.7
_CALM_S = 400  # before the first second that counts: the fleet starts at rest

Key = TypeVar("Key")
Shares = dict[Locality, float]


@dataclass(slots=True)
class Beat:
    """What happened in one interval of ten seconds.

    ``shares`` are those of the shown source. ``away``, ``abroad``, ``above``: the parts of all requests that left
    their zone, their region, and that targets got above their capacity. ``lost``: by region of the source, the part of
    its requests that was above capacity. ``demand`` and ``capacity`` are what really was, for the optimum; ``alone`` is
    the load of the fullest zone, by its capacity, if every zone kept its own.
    """

    shares: Shares
    utilisation: dict[Locality, float]
    away: float
    abroad: float
    above: float
    lost: dict[str, float]
    demand: Shares
    capacity: Shares
    changed: tuple[Locality, ...]
    alone: float

    @property
    def least_above(self) -> float:
        """The least part of the requests that is above some target's capacity, wherever they go."""
        total = sum(self.demand.values())
        return max(0.0, total - sum(self.capacity.values())) / total if total else 0.0


@dataclass(slots=True)
class Run:
    """All intervals of a scenario."""

    scenario: Scenario
    interval_s: float
    beats: list[Beat] = field(default_factory=list)


def policy_of(scenario: Scenario) -> Policy:
    """The policy that a scenario is run with."""
    return parse_policy({"cluster": "web", "capacity": RATES, **scenario.policy})


def run(scenario: Scenario, seed: int, control: Callable[[Policy], Control] = Product) -> Run:
    """Run a scenario under a control plane. Equal seeds give equal runs, and all control planes the same demand."""
    return _World(scenario, policy_of(scenario), Random(f"{seed}/{scenario.name}"), control).run()


class _World:
    def __init__(
        self, scenario: Scenario, policy: Policy, random: Random, control: Callable[[Policy], Control]
    ) -> None:
        self.scenario, self.policy, self.random = scenario, policy, random
        self.control = control(policy)
        sources = scenario.at(0).demand
        self.noise = dict.fromkeys(sources, 0.0)
        self.reports = Reports(INTERVAL_S, scenario.report_lag_s, scenario.silent)
        self.reported = dict.fromkeys(sources, -inf)
        self.known: deque[Mapping[Locality, Hosts]] = deque()
        self.served: dict[Locality, tuple[Allotment, ...]] = {}
        self.sent: deque[tuple[int, dict[Locality, tuple[Allotment, ...]]]] = deque()
        self.frozen: dict[Locality, tuple[Allotment, ...]] = {}
        self.failed: Shares = {}
        self.scaler = Autoscaler(scenario.scales_to) if scenario.scales_to else None
        self._shares: dict[tuple[int, int], Shares] = {}

    def run(self) -> Run:
        done = Run(self.scenario, float(INTERVAL_S))
        for begin in range(-_CALM_S, self.scenario.seconds, INTERVAL_S):
            beat = self._interval(begin)
            if begin >= 0:
                done.beats.append(beat)
        return done

    def _interval(self, begin: int) -> Beat:
        """Decide, then ten seconds; what is decided is served after the first of them."""
        moment = self._moment(begin)
        changed = self._decide(begin, moment)
        wanted = {source: self._noisy(source, rps) for source, rps in moment.demand.items()}
        total = Counts()
        capacity = dict.fromkeys(moment.hosts, 0.0)
        demand = dict.fromkeys(wanted, 0.0)
        for second in range(begin, begin + INTERVAL_S):
            now = self._moment(second)
            self.known.append(now.hosts)
            self._deliver(second, begin, now.hosts)
            if second < 0:
                self.frozen = self.served
            sent = {source: self._drawn(rps * _part(now, moment, source)) for source, rps in wanted.items()}
            self._second(sent, now, total)
            for name, own in now.hosts.items():
                capacity[name] += self._capacity(own)
            for source, count in sent.items():
                demand[source] += count
        return self._beat(moment, total, demand, capacity, changed)

    def _moment(self, second: int) -> Moment:
        moment = self.scenario.at(max(second, 0))
        if self.scaler is None:
            return moment
        return replace(moment, hosts=self.scaler.hosts(moment.hosts, second))

    def _noisy(self, source: Locality, rps: float) -> float:
        part = self.scenario.noise * (1 - _PERSISTENCE**2) ** 0.5
        self.noise[source] = _PERSISTENCE * self.noise[source] + self.random.gauss(0.0, part)
        return rps * max(0.0, 1.0 + self.noise[source])

    def _drawn(self, mean: float) -> float:
        """A second's requests, as they come by chance."""
        return max(0.0, self.random.gauss(mean, mean**0.5)) if mean > 0 else 0.0

    # The proxies

    def _deliver(self, second: int, begin: int, hosts: Mapping[Locality, Hosts]) -> None:
        """What was decided reaches the proxies ``delivery_s`` later; what they have till then is older."""
        if second == begin:
            decided = {source: self.control.served(source, hosts) for source in self.noise}
            self.sent.append((begin + self.scenario.delivery_s, decided))
        if not self.served:
            self._serve(hosts)
        elif self.sent and self.sent[0][0] <= second:
            self.served = self.sent.popleft()[1]

    def _serve(self, hosts: Mapping[Locality, Hosts]) -> None:
        self.served = {source: self.control.served(source, hosts) for source in self.noise}
        self._shares.clear()

    def _split(self, source: Locality, hosts: Mapping[Locality, Hosts]) -> Shares:
        """Where the requests of a source go: most proxies have the newest weights."""
        frozen = self.scenario.frozen
        shares = {name: share * (1 - frozen) for name, share in balanced(self.served[source], hosts).items()}
        if frozen:
            for name, share in balanced(self.frozen[source], hosts).items():
                shares[name] = shares.get(name, 0.0) + share * frozen
        return shares

    def _second(self, sent: Shares, moment: Moment, total: Counts) -> None:
        counts = Counts()
        loads = dict.fromkeys(moment.hosts, 0.0)
        first: Shares = {}  # the part of each source's tries that are not retries: what fails twice is not tried again
        for source, count in sent.items():
            retried = self.failed.get(source, 0.0) if self.scenario.retries else 0.0
            first[source] = count / (count + retried) if count else 0.0
            for name, share in self._split(source, moment.hosts).items():
                counts.issued[source, name] = (count + retried) * share
                loads[name] += (count + retried) * share
        self.failed = {}
        for (source, name), count in counts.issued.items():
            _add(total.issued, (source, name), count)
            part = max(loads[name] - moment.hosts[name].capacity_rps, 0.0) / loads[name] if loads[name] else 0.0
            if part <= 0:
                continue
            if self.scenario.breaks:  # what is above capacity waits, and the breaker drops what would wait
                counts.issued[source, name] = count * (1 - part)
                counts.dropped[source] = counts.dropped.get(source, 0.0) + count * part
            else:
                counts.errors[source, name] = count * part
                self.failed[source] = self.failed.get(source, 0.0) + count * part * first[source]
        self.reports.add(counts)
        if self.scaler is not None:
            self.scaler.observe(loads, moment.hosts)

    # The control plane

    def _decide(self, begin: int, moment: Moment) -> tuple[Locality, ...]:
        lag_s = self.scenario.health_lag_s
        if isinf(lag_s):  # only the number of endpoints is known
            known = {name: replace(own, healthy=own.endpoints) for name, own in moment.hosts.items()}
        else:
            while len(self.known) > lag_s + 1:
                self.known.popleft()
            known = dict(self.known[0]) if self.known else dict(moment.hosts)
        for source in moment.demand:
            if source not in moment.silent:
                self.reported[source] = begin
        seen = Seen(float(begin), known, self.reports.rates(), self.reported, self._cpu(moment))
        seen.silent, seen.measured_from = self.scenario.silent, begin - INTERVAL_S - self.scenario.report_lag_s
        return self.control.decide(seen)

    def _cpu(self, moment: Moment) -> dict[Locality, float]:
        if not self.policy.capacity.metric:
            return {}
        loads: Shares = {}
        for (_, name), rps in self.reports.rates().issued.items():
            loads[name] = loads.get(name, 0.0) + rps
        return {
            name: min(1.0, IDLE_CPU + (1.0 - IDLE_CPU) * loads[name] / own.capacity_rps)
            for name, own in moment.hosts.items()
            if own.capacity_rps and loads.get(name)
        }

    # What is measured

    def _capacity(self, own: Hosts) -> float:
        return own.capacity_rps * (_USABLE if self.policy.capacity.metric else 1.0)

    def _beat(
        self, moment: Moment, total: Counts, demand: Shares, capacity: Shares, changed: tuple[Locality, ...]
    ) -> Beat:
        loads = dict.fromkeys(capacity, 0.0)
        for (_, name), count in total.issued.items():
            loads[name] += count
        above = {name: max(loads[name] - capacity[name], 0.0) for name in loads}
        sent = sum(loads.values())
        lost: dict[str, float] = {}
        of_region: dict[str, float] = {}
        for (source, name), count in total.issued.items():
            _add(of_region, source.region, count)
            _add(lost, source.region, count * above[name] / loads[name] if loads[name] else 0.0)
        shown = {name: total.issued.get((self.scenario.shown, name), 0.0) for name in loads}
        own = sum(shown.values())
        full = [demand[zone] / capacity[zone] if capacity.get(zone) else inf for zone in demand]
        return Beat(
            {name: count / own for name, count in shown.items() if count} if own else {},
            {name: loads[name] / capacity[name] if capacity[name] else 0.0 for name in loads},
            _beyond(total, Distance.ZONE) / sent,
            _beyond(total, Distance.REGION) / sent,
            sum(above.values()) / sent,
            {region: count / of_region[region] for region, count in lost.items() if of_region[region]},
            {name: count / INTERVAL_S for name, count in demand.items()},
            {name: count / INTERVAL_S for name, count in capacity.items()},
            changed,
            max(full),
        )


def _part(now: Moment, moment: Moment, source: Locality) -> float:
    """Demand may change within an interval."""
    return now.demand[source] / moment.demand[source] if moment.demand[source] else 0.0


def _add(sums: dict[Key, float], key: Key, count: float) -> None:
    sums[key] = sums.get(key, 0.0) + count


def _beyond(counts: Counts, near: Distance) -> float:
    return sum(count for (source, name), count in counts.issued.items() if distance(source, name) > near)
