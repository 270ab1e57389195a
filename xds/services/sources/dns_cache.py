"""DNS questions with their last good answers, the time of the next query of each, and the instances of the answers.

A name is taken not to exist only if its zone says so twice; after any other failure the last good answer stays. Times
are arguments (seconds of any clock that only goes forward).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from ipaddress import ip_address
from math import inf

from xds.model.errors import Violation
from xds.model.ip_address import address_text
from xds.services.core.instance import WEIGHT_LIMIT, Instance

SRV, A, AAAA = "SRV", "A", "AAAA"
FAMILIES: Mapping[str, tuple[str, ...]] = {"ipv4": (A,), "ipv6": (AAAA,), "both": (A, AAAA)}
# RFC 2782: a record of weight 0 among others is to have a very small chance. Other weights are multiplied by this.
_ZERO_WEIGHT_FACTOR = 100
_NOWHERE = "."
ATTEMPTS = 3  # after so many failed queries a service is served without an answer that it never got


@dataclass(frozen=True, slots=True)
class Question:
    """A name, in lower case and without the last dot, and the type of the records: SRV, A or AAAA."""

    name: str
    type: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


@dataclass(frozen=True, slots=True, order=True)
class SrvRecord:
    """The fields of an SRV record. ``target`` is in lower case and without the last dot; the root is ``.``."""

    priority: int
    weight: int
    port: int
    target: str


Value = SrvRecord | str  # a record, or an address


@dataclass(frozen=True, slots=True)
class Records:
    """The records of a question. ``ttl_s`` is the shortest TTL of them and of the aliases that lead to them."""

    values: tuple[Value, ...]
    ttl_s: float


@dataclass(frozen=True, slots=True)
class NoRecords:
    """The zone says that there are no such records. A cache repeats that for ``ttl_s``; 0 from the zone itself."""

    reason: str
    ttl_s: float


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """No server gave a usable answer."""

    message: str


Outcome = Records | NoRecords | NoAnswer


@dataclass(frozen=True, slots=True)
class QueryIntervals:
    """When a question is queried again: after the TTL within bounds; after failures, with growing delays."""

    shortest_s: float = 1.0
    longest_s: float = 300.0
    retry_s: float = 1.0
    longest_retry_s: float = 60.0

    def after(self, ttl_s: float) -> float:
        """The delay of the next query after an answer, in seconds."""
        return min(max(ttl_s, self.shortest_s), self.longest_s)

    def after_failures(self, failures_n: int) -> float:
        """The delay of the next query after this many failures in a row, in seconds."""
        return float(min(self.retry_s * 2 ** min(failures_n - 1, 30), self.longest_retry_s))


@dataclass(frozen=True, slots=True)
class ServiceName:
    """The name to query for a service. Without ``port``, SRV records; ``families`` are A and AAAA or one of them."""

    name: str
    port: int | None
    families: tuple[str, ...] = (A,)


@dataclass(slots=True)
class _Entry:
    """The state of a question. ``values`` is None before the first answer that counts.

    ``problem`` says why the last answer did not count. ``is_denied``: the zone has said that there are no records.
    """

    due: float
    values: tuple[Value, ...] | None = None
    problem: str = ""
    is_denied: bool = False
    is_answered: bool = False  # by the last query
    failures_n: int = 0
    services: set[str] = field(default_factory=set)


class DnsCache:
    """The questions of all services. ``changed`` has the services whose answers have changed; the caller empties it."""

    def __init__(self, services: Mapping[str, ServiceName], intervals: QueryIntervals, now: float) -> None:
        self._services = services
        self._intervals = intervals
        self._entries: dict[Question, _Entry] = {}
        self._questions: dict[str, set[Question]] = {}
        self._queue: list[tuple[float, str, str]] = []
        self._with_findings: dict[Question, None] = {}
        self._complete: set[str] = set()
        self.changed: set[str] = set()
        for service, name in services.items():
            self._questions[service] = set()
            for question in _first_questions(name):
                self._add_question(question, service, now)

    # Queries

    def take_due(self, now: float, limit: int) -> list[Question]:
        """The questions to query now, at most ``limit``. Each gets its next time by ``answered``."""
        questions: list[Question] = []
        while self._queue and len(questions) < limit and self._queue[0][0] <= now:
            due, name, type = heappop(self._queue)
            question = Question(name, type)
            entry = self._entries.get(question)
            if entry is not None and entry.due == due:  # else the question is not needed, or was queried since
                entry.due = inf
                questions.append(question)
        return questions

    @property
    def next_due(self) -> float:
        """When the next question is due; infinite if none is."""
        return self._queue[0][0] if self._queue else inf

    def answered(self, question: Question, outcome: Outcome, now: float) -> None:
        """Record the outcome of a query."""
        entry = self._entries.get(question)
        if entry is None:  # no longer needed
            return
        if isinstance(outcome, NoAnswer):
            entry.failures_n += 1
            entry.problem = outcome.message
            if entry.failures_n == ATTEMPTS and entry.values is None:
                self.changed |= entry.services
            due = now + self._intervals.after_failures(entry.failures_n)
        else:
            entry.failures_n = 0
            due = now + self._intervals.after(outcome.ttl_s)
            self._use_answer(question, entry, outcome, now)
        self._update_counts(question, entry, not isinstance(outcome, NoAnswer))
        self._schedule(question, entry, due)

    def _use_answer(self, question: Question, entry: _Entry, outcome: Records | NoRecords, now: float) -> None:
        """Use an answer, if it counts. A denial counts when it is repeated."""
        entry.problem = ""
        if isinstance(outcome, Records):
            entry.is_denied = False
            self._set_values(question, entry, outcome.values, now)
            return
        if entry.is_denied:
            self._set_values(question, entry, (), now)
            if self._is_target(question, entry):
                entry.problem = outcome.reason
        else:
            entry.problem = f"{outcome.reason}; it counts when the zone says so again"
        entry.is_denied = True

    def _set_values(self, question: Question, entry: _Entry, values: tuple[Value, ...], now: float) -> None:
        ordered = tuple(sorted(set(values), key=str))
        if ordered == entry.values:
            return
        entry.values = ordered
        self.changed |= entry.services
        if question.type == SRV:
            for service in list(entry.services):
                self._set_targets(service, question, now)

    def _update_counts(self, question: Question, entry: _Entry, is_answered: bool) -> None:
        entry.is_answered = is_answered
        if entry.problem or not all(map(_is_usable, entry.values or ())):
            self._with_findings[question] = None
        else:
            self._with_findings.pop(question, None)

    def _is_target(self, question: Question, entry: _Entry) -> bool:
        """Whether the question is only about a target of SRV records."""
        return all(self._services[service].name != question.name for service in entry.services)

    # Questions

    def _add_question(self, question: Question, service: str, now: float) -> None:
        entry = self._entries.get(question)
        if entry is None:
            entry = self._entries[question] = _Entry(inf)
            self._schedule(question, entry, now)
        entry.services.add(service)
        self._questions[service].add(question)

    def _set_targets(self, service: str, question: Question, now: float) -> None:
        """Query the addresses of the targets of a service, and no longer those of earlier targets."""
        wanted = {question, *self._target_questions(service)}
        for target in wanted - self._questions[service]:
            self._add_question(target, service, now)
        for old in self._questions[service] - wanted:
            entry = self._entries[old]
            entry.services.discard(service)
            if not entry.services:
                self._with_findings.pop(old, None)
                del self._entries[old]
        self._questions[service] = wanted

    def _target_questions(self, service: str) -> Iterator[Question]:
        name = self._services[service]
        for record in self._srv_records(name):
            for family in name.families:
                yield Question(record.target, family)

    def _schedule(self, question: Question, entry: _Entry, due: float) -> None:
        entry.due = due
        heappush(self._queue, (due, question.name, question.type))

    # Reading

    @property
    def is_mute(self) -> bool:
        """Whether the last query of every question failed."""
        return not any(entry.is_answered for entry in self._entries.values())

    @property
    def is_asked(self) -> bool:
        """Whether each question was answered once, or its answer is no longer waited for."""
        return all(entry.values is not None or entry.failures_n >= ATTEMPTS for entry in self._entries.values())

    def instances(self, service: str) -> tuple[Instance, ...] | None:
        """The instances of a service; None while a needed answer is missing.

        After `ATTEMPTS` failures, or if the service was complete before, the missing answer is not waited for.
        """
        unanswered = [each for each in self._questions[service] if self._entries[each].values is None]
        if not unanswered:
            self._complete.add(service)
        elif service not in self._complete and any(self._entries[each].failures_n < ATTEMPTS for each in unanswered):
            return None
        merged = _merged_by_address(self._all_instances(self._services[service]))
        return merged if merged or not unanswered else None

    def findings(self) -> Iterator[Violation]:
        """Why answers do not count, and unusable addresses. The pointer names a service that needs the answer."""
        for question in self._with_findings:
            entry = self._entries[question]
            pointer = f"/{min(entry.services)}"
            if entry.problem:
                yield Violation("dns_no_answer", f"{question}: {entry.problem}", pointer=pointer)
            for value in entry.values or ():
                if not _is_usable(value):
                    yield Violation(
                        "invalid_address", f"{question}: {value} is not the address of a host", pointer=pointer
                    )

    def _all_instances(self, name: ServiceName) -> Iterator[Instance]:
        if name.port is not None:
            for address in self._addresses(name.name, name.families):
                yield _instance(address, name.port)
            return
        for record, weight in _weighted(self._srv_records(name)):
            for address in self._addresses(record.target, name.families):
                yield _instance(address, record.port, weight, record.target)

    def _srv_records(self, name: ServiceName) -> list[SrvRecord]:
        """The records of the lowest priority. Others are for clients that can reach no target of these."""
        entry = self._entries[Question(name.name, SRV)]
        records = [value for value in entry.values or () if isinstance(value, SrvRecord) and value.target != _NOWHERE]
        lowest = min((record.priority for record in records), default=0)
        return [record for record in records if record.priority == lowest]

    def _addresses(self, name: str, families: Iterable[str]) -> Iterator[str]:
        for family in families:
            entry = self._entries.get(Question(name, family))
            for value in (entry.values or ()) if entry is not None else ():
                if isinstance(value, str) and _is_usable(value):
                    yield value


def _first_questions(name: ServiceName) -> list[Question]:
    return [Question(name.name, type) for type in (name.families if name.port is not None else (SRV,))]


def _instance(address: str, port: int, weight: int = 1, target: str = "") -> Instance:
    return Instance(address_text(address, port), address, port, weight=weight, warning_weight=weight, node=target)


def _merged_by_address(instances: Iterable[Instance]) -> tuple[Instance, ...]:
    """The instances in order, each address and port once."""
    by_id: dict[str, Instance] = {}
    for one in instances:
        by_id.setdefault(one.id, one)
    return tuple(by_id[id] for id in sorted(by_id))


def _weighted(records: list[SrvRecord]) -> Iterator[tuple[SrvRecord, int]]:
    """Each record with its weight, at least 1. If a record has weight 0, the weights of the others are multiplied."""
    weights = [record.weight for record in records]
    heaviest = max(weights, default=0)
    factor = max(1, min(_ZERO_WEIGHT_FACTOR, WEIGHT_LIMIT // heaviest)) if heaviest and 0 in weights else 1
    for record in records:
        yield record, record.weight * factor or 1


def _is_usable(value: Value) -> bool:
    """Whether an address can be that of a host. SRV records are usable."""
    if isinstance(value, SrvRecord):
        return True
    parsed = ip_address(value)
    return not (parsed.is_unspecified or parsed.is_multicast)
