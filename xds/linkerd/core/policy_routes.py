"""The routes of an outbound policy. Unlike routes of a profile, they have destinations and match headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xds.linkerd.core.profile import StatusRange

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
        """Whether every path matches."""
        return (self.kind, self.text) in (("prefix", "/"), ("prefix", ""))


ANY_PATH = PathCondition()


@dataclass(frozen=True, slots=True)
class PolicyMatch:
    """A match of requests that meet all conditions. An empty ``method`` means any."""

    path: PathCondition = ANY_PATH
    headers: tuple[TextMatch, ...] = ()
    queries: tuple[TextMatch, ...] = ()
    method: str = ""


@dataclass(frozen=True, slots=True)
class HeaderChanges:
    """Changes of the headers of a message: additions, replacements and removals, in this order."""

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
    """``count`` further attempts after one of the statuses."""

    count: int
    statuses: tuple[StatusRange, ...]


@dataclass(frozen=True, slots=True)
class PolicyRoute:
    """A route. Without matches it is for every request. A timeout of 0 means none."""

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
    """The routes of a service, the last one for every request. ``skipped`` lists inexpressible parts, with reasons."""

    routes: tuple[PolicyRoute, ...] = ()
    skipped: tuple[str, ...] = ()
