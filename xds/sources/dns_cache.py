"""What DNS servers said: questions with their last good answers, when each is asked again, and instances from them.

A name that does not exist has no instances only if its zone says so twice; whatever else goes wrong keeps the last good
answer. Times are arguments (seconds of any clock that only goes forward).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from ipaddress import ip_address
from math import inf

from xds.catalog.instance import WEIGHT_LIMIT, Instance
from xds.model.errors import Violation
from xds.sources.target_files import place_text

SRV, A, AAAA = "SRV", "A", "AAAA"
FAMILIES: Mapping[str, tuple[str, ...]] = {"ipv4": (A,), "ipv6": (AAAA,), "both": (A, AAAA)}
# RFC 2782: beside others, a record of weight 0 is to have a very small chance.
_LEAST_SHARE = 100
_NOWHERE = "."
ATTEMPTS = 3  # then the other answers that a service needs are used without one that was never given


@dataclass(frozen=True, slots=True)
class Question:
    """A name, in lower case and without the last dot, and the type of the records: SRV, A or AAAA."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


@dataclass(frozen=True, slots=True, order=True)
class SrvRecord:
    """The fields of an SRV record; ``target`` in lower case and without the last dot, but for the root: ``.``."""

    priority: int
    weight: int
    port: int
    target: str


Value = SrvRecord | str  # a record, or an address


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a question; ``ttl_s`` is the shortest TTL on the way to them."""

    values: tuple[Value, ...]
    ttl_s: float


@dataclass(frozen=True, slots=True)
class NoRecords:
    """The zone says that there are no such records. A cache repeats this for ``ttl_s``: 0 if the zone itself spoke."""

    reason: str
    ttl_s: float


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No server gave an answer that says anything."""

    message: str


Outcome = Records | NoRecords | NoAnswer


@dataclass(frozen=True, slots=True)
class Pace:
    """How often questions are asked: after the TTL within these bounds; after a failure, with growing delays."""

    shortest_s: float = 1.0
    longest_s: float = 300.0
    retry_s: float = 1.0
    longest_retry_s: float = 60.0

    def after(self, ttl_s: float) -> float:
        """The seconds after which to ask again."""
        return min(max(ttl_s, self.shortest_s), self.longest_s)

    def after_failures(self, failures_n: int) -> float:
        """The seconds after which to ask again when this many attempts in a row have failed."""
        return float(min(self.retry_s * 2 ** min(failures_n - 1, 30), self.longest_retry_s))


@dataclass(frozen=True, slots=True)
class ServiceName:
    """What is asked for a service. Without ``port``, SRV records; ``families`` are A and AAAA or one of them."""

    name: str
    port: int | None
    families: tuple[str, ...] = (A,)


@dataclass(slots=True)
class _Known:
    """What is known of a question. ``values`` is None before the first answer that counts.

    ``trouble`` says why the last answer did not count, ``denied``: the zone has said that there is nothing.
    """

    due: float
    values: tuple[Value, ...] | None = None
    trouble: str = ""
    denied: bool = False
    is_answered: bool = False  # the last time it was asked
    failures_n: int = 0
    services: set[str] = field(default_factory=set)


class DnsMemory:
    """The questions of all services. ``changed`` are the services whose answers are others than before."""

    def __init__(self, services: Mapping[str, ServiceName], pace: Pace, now: float) -> None:
        self._services = services
        self._pace = pace
        self._known: dict[Question, _Known] = {}
        self._needs: dict[str, set[Question]] = {}
        self._queue: list[tuple[float, str, str]] = []
        self._answered_n = 0
        self._troubled: dict[Question, None] = {}
        self._complete: set[str] = set()
        self.changed: set[str] = set()
        for service, name in services.items():
            self._needs[service] = set()
            for question in _first_questions(name):
                self._need(question, service, now)

    # Asking

    def take_due(self, now: float, limit: int) -> list[Question]:
        """The questions to ask now, at most ``limit``. Each is due again after its ``answered``."""
        found: list[Question] = []
        while self._queue and len(found) < limit and self._queue[0][0] <= now:
            due, name, type = heappop(self._queue)
            question = Question(name, type)
            known = self._known.get(question)
            if known is not None and known.due == due:  # else it is no longer needed, or was asked since
                known.due = inf
                found.append(question)
        return found

    @property
    def next_due(self) -> float:
        """When the next question is due."""
        return self._queue[0][0] if self._queue else inf

    def answered(self, question: Question, outcome: Outcome, now: float) -> None:
        """A question was asked."""
        known = self._known.get(question)
        if known is None:  # no longer needed
            return
        if isinstance(outcome, NoAnswer):
            known.failures_n += 1
            known.trouble = outcome.message
            if known.failures_n == ATTEMPTS and known.values is None:
                self.changed |= known.services
            due = now + self._pace.after_failures(known.failures_n)
        else:
            known.failures_n = 0
            due = now + self._pace.after(outcome.ttl_s)
            self._judge(question, known, outcome, now)
        self._count(question, known, not isinstance(outcome, NoAnswer))
        self._ask_after(question, known, due)

    def _judge(self, question: Question, known: _Known, outcome: Records | NoRecords, now: float) -> None:
        """Take over an answer, if it counts."""
        known.trouble = ""
        if isinstance(outcome, Records):
            known.denied = False
            self._learn(question, known, outcome.values, now)
            return
        if known.denied:
            self._learn(question, known, (), now)
            if self._is_target(question, known):
                known.trouble = outcome.reason
        else:
            known.trouble = f"{outcome.reason}; it counts when the zone says so again"
        known.denied = True

    def _learn(self, question: Question, known: _Known, values: tuple[Value, ...], now: float) -> None:
        ordered = tuple(sorted(set(values), key=str))
        if ordered == known.values:
            return
        known.values = ordered
        self.changed |= known.services
        if question.type == SRV:
            for service in list(known.services):
                self._need_targets(service, question, now)

    def _count(self, question: Question, known: _Known, is_answered: bool) -> None:
        self._answered_n += is_answered - known.is_answered
        known.is_answered = is_answered
        if known.trouble or not all(map(_is_usable, known.values or ())):
            self._troubled[question] = None
        else:
            self._troubled.pop(question, None)

    def _is_target(self, question: Question, known: _Known) -> bool:
        """Whether the name is only that of a target of SRV records."""
        return all(self._services[service].name != question.name for service in known.services)

    # What is needed

    def _need(self, question: Question, service: str, now: float) -> None:
        known = self._known.get(question)
        if known is None:
            known = self._known[question] = _Known(inf)
            self._ask_after(question, known, now)
        known.services.add(service)
        self._needs[service].add(question)

    def _need_targets(self, service: str, question: Question, now: float) -> None:
        """Ask for the addresses of the targets of a service, and no longer for those of earlier ones."""
        wanted = {question, *self._target_questions(service)}
        for target in wanted - self._needs[service]:
            self._need(target, service, now)
        for old in self._needs[service] - wanted:
            known = self._known[old]
            known.services.discard(service)
            if not known.services:
                self._answered_n -= known.is_answered
                self._troubled.pop(old, None)
                del self._known[old]
        self._needs[service] = wanted

    def _target_questions(self, service: str) -> Iterator[Question]:
        name = self._services[service]
        for record in self._srv_records(name):
            for family in name.families:
                yield Question(record.target, family)

    def _ask_after(self, question: Question, known: _Known, due: float) -> None:
        known.due = due
        heappush(self._queue, (due, question.name, question.type))

    # Reading

    def __iter__(self) -> Iterator[Question]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def is_mute(self) -> bool:
        """Whether no question was answered when it was asked last."""
        return not self._answered_n

    def instances(self, service: str) -> tuple[Instance, ...] | None:
        """The instances of a service; None as long as an answer is lacking that it needs.

        An answer that was never given, after `ATTEMPTS` or where the service was complete before, is not waited for.
        """
        unanswered = [each for each in self._needs[service] if self._known[each].values is None]
        if not unanswered:
            self._complete.add(service)
        elif service not in self._complete and any(self._known[each].failures_n < ATTEMPTS for each in unanswered):
            return None
        found = _united(self._all_instances(self._services[service]))
        return found if found or not unanswered else None

    def findings(self) -> Iterator[Violation]:
        """Why answers do not count, and addresses that no host has, each with a service that it matters to."""
        for question in self._troubled:
            known = self._known[question]
            pointer = f"/{min(known.services)}"
            if known.trouble:
                yield Violation("dns_no_answer", f"{question}: {known.trouble}", pointer=pointer)
            for value in known.values or ():
                if not _is_usable(value):
                    yield Violation("invalid_address", f"{question}: {value} is no address of a host", pointer=pointer)

    def _all_instances(self, name: ServiceName) -> Iterator[Instance]:
        if name.port is not None:
            for address in self._addresses(name.name, name.families):
                yield _instance(address, name.port)
            return
        for record, weight in _weighted(self._srv_records(name)):
            for address in self._addresses(record.target, name.families):
                yield _instance(address, record.port, weight, record.target)

    def _srv_records(self, name: ServiceName) -> list[SrvRecord]:
        """The records of the lowest priority: the others are for when no target of these can be reached."""
        known = self._known[Question(name.name, SRV)]
        records = [value for value in known.values or () if isinstance(value, SrvRecord) and value.target != _NOWHERE]
        lowest = min((record.priority for record in records), default=0)
        return [record for record in records if record.priority == lowest]

    def _addresses(self, name: str, families: Iterable[str]) -> Iterator[str]:
        for family in families:
            known = self._known.get(Question(name, family))
            for value in (known.values or ()) if known is not None else ():
                if isinstance(value, str) and _is_usable(value):
                    yield value


def _first_questions(name: ServiceName) -> list[Question]:
    return [Question(name.name, type) for type in (name.families if name.port is not None else (SRV,))]


def _instance(address: str, port: int, weight: int = 1, target: str = "") -> Instance:
    return Instance(place_text(address, port), address, port, weight=weight, warning_weight=weight, node=target)


def _united(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """Each place once, in order."""
    by_id: dict[str, Instance] = {}
    for one in instances:
        by_id.setdefault(one.id, one)
    return tuple(by_id[id] for id in sorted(by_id))


def _weighted(records: list[SrvRecord]) -> Iterator[tuple[SrvRecord, int]]:
    """Each record with its weight, at least 1. Beside a record of weight 0, the others count more."""
    weights = [record.weight for record in records]
    heaviest = max(weights, default=0)
    factor = max(1, min(_LEAST_SHARE, WEIGHT_LIMIT // heaviest)) if heaviest and 0 in weights else 1
    for record in records:
        yield record, record.weight * factor or 1


def _is_usable(value: Value) -> bool:
    """Whether an address is one that a host can have; true of everything else."""
    if isinstance(value, SrvRecord):
        return True
    parsed = ip_address(value)
    return not (parsed.is_unspecified or parsed.is_multicast)
