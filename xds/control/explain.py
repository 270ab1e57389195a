"""Why a node gets what it gets: the groups that were tried, and resource by resource what it is answered. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from functools import cached_property
from itertools import islice

from xds.control.content import type_label
from xds.fleet.holding import Holding
from xds.fleet.nacks import mentions
from xds.fleet.ordering import Clients, lingering_until, waits_of
from xds.fleet.state import NackRecord
from xds.model.node import Locality, Node
from xds.model.resource_type import alias_of
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.events import HeldContent
from xds.protocol.membership import GroupCandidate

RESOURCES_LIMIT = 1_000
_CLOSE_NAMES_LIMIT = 20  # missing names that close ones are looked for
_COMPARED_LIMIT = 500
_LENGTHS_APART = 4
_CLUSTERS_NAMED = 5


class Answer(StrEnum):
    """What a node is answered for a resource.

    * ``served``: whoever asks gets it (of a node that is not connected);
    * ``sent``: it has it and ACKed it; ``pending``: it was sent, no ACK yet;
    * ``refused``: it was sent and NACKed; ``held``: it will be sent when clusters that it leads to are warm;
    * ``lingering``: the group has it no more, and the node keeps it for a while;
    * ``missing``: the group has no such resource; ``unexpressed``: the API that the node speaks cannot express it;
    * ``not_subscribed``: the node does not ask for it; ``no_group``: no group matches, it is sent nothing.
    """

    SERVED = "served"
    SENT = "sent"
    PENDING = "pending"
    REFUSED = "refused"
    HELD = "held"
    LINGERING = "lingering"
    MISSING = "missing"
    UNEXPRESSED = "unexpressed"
    NOT_SUBSCRIBED = "not_subscribed"
    NO_GROUP = "no_group"


@dataclass(frozen=True, slots=True)
class ResourceAnswer:
    """One resource: ``type`` is its label, ``version`` that of what the node is served, empty where there is nothing.

    ``pushed_version`` is that of the group's resource where an assignment of traffic lies over it; else empty.
    """

    type: str
    name: str
    answer: Answer
    detail: str
    version: str = ""
    pushed_version: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be explained: ``type_url`` and ``name`` narrow it, both may be empty."""

    type_url: str = ""
    name: str = ""


EVERYTHING_ASKED = Asked()


@dataclass(frozen=True)
class Situation:
    """A node and all that decides what it gets. ``snapshot`` answers for the API behind a type URL.

    ``source`` is the locality whose overlay lies over it; None where none does. ``holdings`` are those of a connected
    node; ``refusals`` its open NACK records; ``clients`` what lingers for it and what is held back.
    """

    node: Node
    candidates: tuple[GroupCandidate, ...]
    snapshot: Callable[[str], Snapshot | None] = lambda type_url: None
    source: Locality | None = None
    connected: bool = False
    holdings: Sequence[Holding] = ()
    refusals: Sequence[NackRecord] = ()
    clients: Clients = field(default_factory=dict)

    @cached_property
    def waits(self) -> Mapping[tuple[str, str], HeldContent]:
        """What is held back, by type URL and name."""
        return waits_of(self.clients)

    @cached_property
    def lingering(self) -> Mapping[str, Mapping[str, float | None]]:
        """When what lingers ends, by type URL and name."""
        return lingering_until(self.clients)


@dataclass(frozen=True, slots=True)
class Explanation:
    """``chosen`` is the candidate that decided; None when no group matches. ``total`` counts all resources.

    ``source`` is the locality whose assignment of traffic the node is served; None where it is served what was pushed.
    """

    node: Node
    candidates: tuple[GroupCandidate, ...]
    chosen: GroupCandidate | None
    revision: int | None
    connected: bool
    source: Locality | None = None
    resources: tuple[ResourceAnswer, ...] = ()
    total: int = field(default=0)


def explain(situation: Situation, asked: Asked = EVERYTHING_ASKED) -> Explanation:
    """All about one node. Costs as much as the node asks for: run it in a thread where that may be much."""
    chosen = next((candidate for candidate in situation.candidates if candidate.matched), None)
    snapshot = situation.snapshot("")
    answers = list(_answers(situation, asked))
    return Explanation(
        node=situation.node,
        candidates=situation.candidates,
        chosen=chosen,
        revision=snapshot.revision if snapshot is not None else None,
        connected=situation.connected,
        source=situation.source,
        resources=tuple(answers[:RESOURCES_LIMIT]),
        total=len(answers),
    )


def _answers(situation: Situation, asked: Asked) -> Iterator[ResourceAnswer]:
    if not situation.connected:
        yield from _hypothetical(situation, asked)
        return
    alias = alias_of(asked.type_url) if asked.type_url else ""
    found = False
    close = _CloseNames()
    for holding in situation.holdings:
        if alias in ("", holding.type):
            for answer in _of_holding(situation, holding, close):
                if asked.name in ("", answer.name):
                    found = True
                    yield answer
    if asked.type_url and not found:
        yield _unasked(situation, asked)


def _hypothetical(situation: Situation, asked: Asked) -> Iterator[ResourceAnswer]:
    """What the group would answer; nothing is known of what the node would ask for."""
    snapshot = situation.snapshot(asked.type_url)
    if not asked.type_url:
        return
    label = type_label(asked.type_url)
    if snapshot is None:
        yield ResourceAnswer(label, asked.name, Answer.NO_GROUP, "no group matches the node: it is sent nothing")
        return
    target = snapshot.get(asked.type_url)
    for name in (asked.name,) if asked.name else tuple(target.resources):
        held = target.resources.get(target.by_alias.get(name, name))
        if held is None:
            yield _missing(label, name, target, _CloseNames())
        else:
            detail = f"group {snapshot.group} has it at revision {snapshot.revision}"
            yield _overlaid(situation, target, ResourceAnswer(label, name, Answer.SERVED, detail, held.version))


def _unasked(situation: Situation, asked: Asked) -> ResourceAnswer:
    snapshot = situation.snapshot(asked.type_url)
    label = type_label(asked.type_url)
    target = snapshot.get(asked.type_url) if snapshot is not None else None
    what = f"does not ask for {asked.name!r}" if asked.name else f"does not ask for {label}"
    if target is None:
        return ResourceAnswer(label, asked.name, Answer.NOT_SUBSCRIBED, f"the node {what}, and no group matches it")
    if not asked.name:
        return ResourceAnswer(label, "", Answer.NOT_SUBSCRIBED, f"the node {what}; the group has {len(target)}")
    held = target.resources.get(asked.name)
    if held is not None:
        return ResourceAnswer(
            label, asked.name, Answer.NOT_SUBSCRIBED, f"the node {what}; the group has it", held.version
        )
    missing = _missing(label, asked.name, target, _CloseNames())
    return ResourceAnswer(label, asked.name, Answer.NOT_SUBSCRIBED, f"the node {what}; {missing.detail}")


# One type of a connected node


def _of_holding(situation: Situation, holding: Holding, close: _CloseNames) -> Iterator[ResourceAnswer]:
    snapshot = situation.snapshot(holding.type_url)
    label = type_label(holding.type_url)
    if snapshot is None:
        for name in sorted(holding.interest.names) or ["*"]:
            yield ResourceAnswer(label, name, Answer.NO_GROUP, "no group matches the node: it keeps what it has")
        return
    target = snapshot.get(holding.type_url)
    refusals = [record for record in situation.refusals if record.type_url == holding.type_url]
    for name in holding.interest.select(target):
        version = target.resources[name].version
        answer, detail = _reached(situation, holding, name, version, refusals)
        yield _overlaid(situation, target, ResourceAnswer(label, name, answer, detail, version))
    for name in holding.interest.missing(target):
        if name in target.omitted:
            yield ResourceAnswer(label, name, Answer.UNEXPRESSED, target.omitted[name])
        elif not _has(holding.sent, name):
            yield _missing(label, name, target, close)
    if holding.sent is not None:
        leaving = (name for name in holding.interest.select(holding.sent) if name not in target.resources)
        for name in leaving:
            yield ResourceAnswer(label, name, *_leaving(situation, holding, name))


def _overlaid(situation: Situation, target: ResourceSet, answer: ResourceAnswer) -> ResourceAnswer:
    """The answer for what may stand in for a pushed resource: it says so."""
    pushed_version = target.overlaid.get(answer.name, "")
    if not pushed_version:
        return answer
    detail = f"{answer.detail}; the assignment of traffic for {situation.source} lies over the pushed one"
    return replace(answer, detail=detail, pushed_version=pushed_version)


def _reached(
    situation: Situation, holding: Holding, name: str, version: str, refusals: Sequence[NackRecord]
) -> tuple[Answer, str]:
    is_held = _version(holding.acked, name) == version
    refusal = next((each for each in refusals if mentions((name,), each) or (_is_vague(each) and not is_held)), None)
    if refusal is not None:
        return Answer.REFUSED, f"the node refused version {refusal.version}: {refusal.message}"
    if is_held:
        return Answer.SENT, "the node has it"
    if _version(holding.sent, name) == version:
        return Answer.PENDING, "it was sent; the node has not answered yet"
    waits = situation.waits.get((holding.type_url, name))
    if waits is not None:
        return Answer.HELD, _waiting_for(waits)
    return Answer.PENDING, "it is about to be sent: an answer is on its way or awaited"


def _waiting_for(held: HeldContent) -> str:
    clusters = " and ".join(held.waits_for[:_CLUSTERS_NAMED])
    more = len(held.waits_for) - _CLUSTERS_NAMED
    named = f"{clusters} and {more} more" if more > 0 else clusters
    why = "; which clusters it leads to cannot be read" if held.is_unreadable else ""
    return f"it is held back until the node has clusters {named} ready{why}"


def _leaving(situation: Situation, holding: Holding, name: str) -> tuple[Answer, str]:
    waits = situation.waits.get((holding.type_url, name))
    if waits is not None:
        return Answer.HELD, f"it was removed, and goes with what takes its place: {_waiting_for(waits)}"
    ends = situation.lingering.get(holding.type_url, {})
    if name not in ends:
        return Answer.PENDING, "it was removed; the node is about to be told"
    until = ends[name]
    if until is None:
        return Answer.LINGERING, "it was removed; its time begins when the node has ACKed all that could refer to it"
    return Answer.LINGERING, f"it was removed, and stays until {datetime.fromtimestamp(until, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _is_vague(record: NackRecord) -> bool:
    """May a refusal be about more than it names?"""
    return not record.guilty and (not record.names or len(record.names) < record.resources)


def _version(held: ResourceSet | None, name: str) -> str:
    found = held.resources.get(name) if held is not None else None
    return found.version if found is not None else ""


def _has(held: ResourceSet | None, name: str) -> bool:
    return held is not None and (name in held.resources or name in held.by_alias)


# What is not there


class _CloseNames:
    """Names like a missing one: looked for in a bounded number of names, a bounded number of times."""

    def __init__(self) -> None:
        self._left = _CLOSE_NAMES_LIMIT

    def of(self, name: str, known: Mapping[str, object]) -> list[str]:
        if self._left <= 0:
            return []
        self._left -= 1
        similar = (each for each in known if abs(len(each) - len(name)) <= _LENGTHS_APART)
        return get_close_matches(name, islice(similar, _COMPARED_LIMIT), n=3)


def _missing(label: str, name: str, target: ResourceSet, close: _CloseNames) -> ResourceAnswer:
    found = close.of(name, target.resources)
    like = f"; did you mean {' or '.join(map(repr, found))}?" if found else ""
    return ResourceAnswer(label, name, Answer.MISSING, f"the group has no {label} resource of this name{like}")
