"""The requests of a stream that wait because no group matches its node."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from xds.model.errors import LimitError
from xds.protocol.dialect import Dialect
from xds.protocol.requests import Request, StreamLimits

PARKED_REQUESTS_LIMIT = 1000  # of a type


class ParkedRequests:
    """The requests of a stream that wait because no group matches its node."""

    __slots__ = ("_by_type", "_dialect", "_limits")

    def __init__(self, dialect: Dialect, limits: StreamLimits) -> None:
        self._dialect = dialect
        self._limits = limits
        self._by_type: dict[str, list[Request]] = {}

    @property
    def types(self) -> Collection[str]:
        """The requested type URLs."""
        return self._by_type.keys()

    def park(self, type_url: str, request: Request) -> None:
        """Keep a request. Raises ``LimitError`` for too many requests or names."""
        parked = self._by_type.setdefault(type_url, [])
        if self._dialect.states_whole_interest:
            parked.clear()
        names = sum(len(each.names) + len(each.unsubscribe) + len(each.initial_versions) for each in (*parked, request))
        if names > self._limits.names_per_subscription or len(parked) > PARKED_REQUESTS_LIMIT:
            raise LimitError("parked_requests", "too many requests while no group matches")
        parked.append(request)

    def names(self) -> Iterator[str]:
        """The names of all requests."""
        for _, request in self.requests():
            yield from request.stated

    def requests(self) -> Iterator[tuple[str, Request]]:
        """All requests with their type URLs, grouped by type in the order of the first requests."""
        for type_url, requests in self._by_type.items():
            for request in requests:
                yield type_url, request
