"""Routes of an outbound policy as values. Unlike those of a profile they have destinations, and match headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xds.destination.profile import StatusRange

Pairs = tuple[tuple[str, str], ...]


class TextMatch(NamedTuple):
    """A condition on a header or a query parameter. ``kind``: ``exact`` or ``regex``, over the whole value."""

    name: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class PathCondition:
    """``kind``: ``exact``, ``prefix`` (of the text) or ``regex`` (over the whole path)."""

    kind: str = "prefix"
    text: str = "/"
    ignores_case: bool = False

    @property
    def is_any(self) -> bool:
        """Whether every path fulfils it."""
        return (self.kind, self.text) in (("prefix", "/"), ("prefix", ""))


ANY_PATH = PathCondition()


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """Requests that fulfil all conditions. Without a method: any."""

    path: PathCondition = ANY_PATH
    headers: tuple[TextMatch, ...] = ()
    queries: tuple[TextMatch, ...] = ()
    method: str = ""


@dataclass(frozen=True, slots=True)
class HeaderChanges:
    """What is done to the headers of a message: added, set, removed, in this order."""

    add: Pairs = ()
    set: Pairs = ()
    remove: tuple[str, ...] = ()


NO_CHANGES = HeaderChanges()


@dataclass(frozen=True, slots=True)
class PolicyBackend:
    """A destination that gets requests in proportion to its weight."""

    authority: str
    weight: int = 1
    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES


@dataclass(frozen=True, slots=True)
class PolicyRetry:
    """This many further attempts after one of the statuses."""

    count: int
    statuses: tuple[StatusRange, ...]


@dataclass(frozen=True, slots=True)
class PolicyRoute:
    """A route. Without matches it is for every request; times of 0 are none."""

    name: str
    matches: tuple[PolicyMatch, ...]
    backends: tuple[PolicyBackend, ...]
    timeout_s: float = 0.0
    idle_s: float = 0.0
    retry: PolicyRetry | None = None
    request: HeaderChanges = NO_CHANGES
    response: HeaderChanges = NO_CHANGES


@dataclass(frozen=True, slots=True)
class PolicyRules:
    """The routes of a service, the last one for every request; ``skipped``: what a policy cannot express, and why."""

    routes: tuple[PolicyRoute, ...] = ()
    skipped: tuple[str, ...] = ()
