"""What one server knows of the nodes of a group, as a document for the other servers, and what all of them know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import astuple, dataclass
from typing import Any

from xds.rollouts.decide import Facts, RequestCount

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What one server knows.

    ``facts`` are those of its own nodes. ``serves`` says what it serves: the revision of the head, and what the wave
    is. ``is_followed``: a node of the group was seen within the hour, or may have been. ``selected``: the connected
    nodes that a selector matches, if one was asked for. Of all servers, ``silent`` are those that told nothing.
    """

    facts: Facts
    serves: str = ""
    is_followed: bool = False
    selected: AbstractSet[str] = frozenset()
    silent: tuple[str, ...] = ()

    def document(self) -> Json:
        """The facts as JSON, for another server."""
        facts = self.facts
        return {
            **{name: dict(getattr(facts, name)) for name in _MAPPINGS},
            **{name: sorted(getattr(facts, name)) for name in _SETS},
            **{name: astuple(count) if (count := getattr(facts, name)) is not None else None for name in _COUNTS},
            "serves": self.serves,
            "is_followed": self.is_followed,
            "selected": sorted(self.selected),
        }


_MAPPINGS, _SETS, _COUNTS = (
    ("connected", "nacked", "waiting"),
    ("inside", "acked", "unaffected", "left"),
    ("requests", "others"),
)


def read_facts(document: Json) -> ServerFacts | None:
    """The facts that ``ServerFacts.document`` has written; None for anything else, as of another release."""
    try:
        known: Json = {
            **{name: document[name] for name in _MAPPINGS},
            **{name: frozenset(document[name]) for name in _SETS},
            **{name: RequestCount(*count) if (count := document[name]) is not None else None for name in _COUNTS},
        }
        selected = frozenset(document["selected"])
        return ServerFacts(Facts(**known), document["serves"], document["is_followed"], selected)
    except (KeyError, TypeError):
        return None


def merged(own: ServerFacts, others: Iterable[ServerFacts], silent: Sequence[str] = ()) -> ServerFacts:
    """What all servers know. A server that serves something else does not count as one that tells.

    A node that is connected to several servers has ACKed if it has at each of them that the push concerns.
    """
    every = [own, *others]
    known = [each.facts for each in every if each.serves == own.serves]
    inside = frozenset[str]().union(*(each.inside for each in known))
    behind = frozenset[str]().union(*(each.inside - each.acked - each.unaffected for each in known))
    acked = frozenset[str]().union(*(each.acked for each in known)) - behind
    concerned = frozenset[str]().union(*(each.connected.keys() - each.unaffected for each in known))
    unaffected = frozenset[str]().union(*(each.unaffected for each in known)) - concerned
    facts = Facts(
        {id: kind for each in every for id, kind in each.facts.connected.items()},
        inside,
        acked,
        {id: words for each in known for id, words in each.nacked.items()},
        {id: text for each in known for id, text in each.waiting.items()},
        total(each.requests for each in known),
        total(each.others for each in known),
        not silent and len(known) == len(every),
        unaffected=unaffected,
        left=frozenset[str]().union(*(each.left for each in known)) - inside,
    )
    selected = frozenset[str]().union(*(each.selected for each in every))
    is_followed = bool(silent) or any(each.is_followed for each in every)
    return ServerFacts(facts, own.serves, is_followed, selected, tuple(silent))


def total(counts: Iterable[RequestCount | None]) -> RequestCount | None:
    """All requests; None if nobody reports any."""
    known = [each for each in counts if each is not None]
    if not known:
        return None
    return RequestCount(sum(each.failed for each in known), sum(each.attempted for each in known))
