"""Why a node gets what it gets: the groups that were tried, and resource by resource what it is answered. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice

from xds.control.content import type_label
from xds.fleet.holding import Holding
from xds.fleet.nacks import mentions
from xds.fleet.state import NackRecord
from xds.model.node import Locality, Node
from xds.model.resource_type import alias_of, resource_type
from xds.model.snapshot import ResourceSet, Snapshot
from xds.protocol.membership import Candidate

RESOURCES_LIMIT = 1_000
_CLOSE_NAMES_LIMIT = 20  # missing names that close ones are looked for
_COMPARED_LIMIT = 500
_LENGTHS_APART = 4


class Answer(StrEnum):
    """What a node is answered for a resource.

    * ``served``: whoever asks gets it (of a node that is not connected);
    * ``sent``: it has it and ACKed it; ``pending``: it was sent, no ACK yet;
    * ``refused``: it was sent and NACKed; ``held``: it will be sent, or taken away, when other types are ACKed;
    * ``missing``: the group has no such resource; ``unexpressed``: the API that the node speaks cannot express it;
    * ``not_subscribed``: the node does not ask for it; ``no_group``: no group matches, it is sent nothing.
    """

    SERVED = "served"
    SENT = "sent"
    PENDING = "pending"
    REFUSED = "refused"
    HELD = "held"
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


@dataclass(frozen=True, slots=True)
class Situation:
    """A node and all that decides what it gets. ``snapshot`` answers for the API behind a type URL.

    ``source`` is the locality whose overlay lies over it; None where none does. ``holdings`` are those of a connected
    node; ``refusals`` its open NACK records.
    """

    node: Node
    candidates: tuple[Candidate, ...]
    snapshot: Callable[[str], Snapshot | None] = lambda type_url: None
    source: Locality | None = None
    connected: bool = False
    holdings: Sequence[Holding] = ()
    refusals: Sequence[NackRecord] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """``chosen`` is the candidate that decided; None when no group matches. ``total`` counts all resources.

    ``source`` is the locality whose assignment of traffic the node is served; None where it is served what was pushed.
    """

    node: Node
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
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
    refusal = _refusal(situation.refusals, holding.type_url)
    for name in holding.interest.select(target):
        version = target.resources[name].version
        answer, detail = _reached(situation, holding, name, version, refusal)
        yield _overlaid(situation, target, ResourceAnswer(label, name, answer, detail, version))
    for name in holding.interest.missing(target):
        if name in target.omitted:
            yield ResourceAnswer(label, name, Answer.UNEXPRESSED, target.omitted[name])
        elif not _has(holding.sent, name):
            yield _missing(label, name, target, close)
    if holding.sent is not None:
        leaving = (name for name in holding.interest.select(holding.sent) if name not in target.resources)
        for name in leaving:
            yield ResourceAnswer(label, name, Answer.HELD, f"it was removed; {_retired_after(situation, holding)}")


def _overlaid(situation: Situation, target: ResourceSet, answer: ResourceAnswer) -> ResourceAnswer:
    """The answer for what may stand in for a pushed resource: it says so."""
    pushed_version = target.overlaid.get(answer.name, "")
    if not pushed_version:
        return answer
    detail = f"{answer.detail}; the assignment of traffic for {situation.source} lies over the pushed one"
    return replace(answer, detail=detail, pushed_version=pushed_version)


def _reached(
    situation: Situation, holding: Holding, name: str, version: str, refusal: NackRecord | None
) -> tuple[Answer, str]:
    if _version(holding.acked, name) == version and (refusal is None or not _refuses(refusal, name)):
        return Answer.SENT, "the node has it"
    if refusal is not None and (_refuses(refusal, name) or _version(holding.sent, name) == version):
        return Answer.REFUSED, f"the node refused version {refusal.version}: {refusal.message}"
    if _version(holding.sent, name) == version:
        return Answer.PENDING, "it was sent; the node has not answered yet"
    awaited = [alias_of(url) for url in resource_type(holding.type_url).waits_for if not _in_step(situation, url)]
    if awaited:
        return Answer.HELD, f"it is sent when the node has ACKed {' and '.join(awaited)}"
    return Answer.PENDING, "it is about to be sent: an answer is on its way or awaited"


def _retired_after(situation: Situation, holding: Holding) -> str:
    users = [alias_of(url) for url in resource_type(holding.type_url).removals_wait_for if not _in_step(situation, url)]
    return f"it stays until the node has ACKed {' and '.join(users)}" if users else "the node is about to be told"


def _in_step(situation: Situation, type_url: str) -> bool:
    """Has the node ACKed the group's content of a type? True for types that it does not ask for."""
    snapshot = situation.snapshot(type_url)
    target = snapshot.get(type_url) if snapshot is not None else None
    return all(
        holding.acked is target
        or (holding.acked is not None and target is not None and holding.acked.digest == target.digest)
        for holding in situation.holdings
        if holding.type_url == type_url
    )


def _refusal(refusals: Iterable[NackRecord], type_url: str) -> NackRecord | None:
    return next((record for record in refusals if record.type_url == type_url), None)


def _refuses(record: NackRecord, name: str) -> bool:
    return mentions((name,), record)


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
