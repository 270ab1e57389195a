"""What a client holds of one type, and what it showed of it when it returned.

The content of a client is one reference to a shared set, so it does not grow with the number of resources. Only
deviations from the set are kept by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from xds.model.names import NO_NAMES
from xds.model.snapshot import ResourceSet

UNKNOWN_VERSION = ""
NONE_UNCERTAIN: Mapping[str, str] = MappingProxyType({})
# Names. With more, the content of the client counts as unknown: everything is re-sent, and no removals are sent.
UNCERTAIN_LIMIT = 10_000
GONE_LIMIT = 256  # of these names, those that the last response did not have among its resources


class ShownContent(NamedTuple):
    """What a client that returned showed of a type (`returning`).

    * ``has_set``: ``known`` is what it showed, until it ACKs a response or unsubscribes from a name;
    * ``is_unknown``: it showed a label of no known set, so it may have anything, until it ACKs a response;
    * ``untold_names``: the clusters of the removal log that it did not show (Delta): told as removed when they end;
    * ``has_versions``: it showed versions (Delta), so what it has of a refused response is not known;
    * ``requested``: the assignments or secrets that its first request named, if it showed some of them: it has what
      needs them.
    """

    has_set: bool = False
    is_unknown: bool = False
    untold_names: frozenset[str] = NO_NAMES
    has_versions: bool = False
    requested: frozenset[str] = NO_NAMES


NOTHING_SHOWN = ShownContent()


class KnownContent:
    """The content of one type that the client holds, as far as ACKs prove it; after a reconnect, as it showed.

    * ``base``: a set of which the client accepted all subscribed resources; None for nothing;
    * ``is_doubtful``: so much of it is uncertain that all is offered again, as to a client that has nothing;
    * ``unanswered``: the requested names that were not answered since, even if ``base`` has them (rules 25, 53);
    * ``uncertain``: the names that the client may hold in another version than ``base`` has, each with that version, or
      ``""`` if it is unknown. The client showed them in ``initial_resource_versions``, or did not ACK a response with
      them. Rule 18: "After a NACK the client may hold any part of the rejected response".

    The mappings are shared: they are replaced, never changed.
    """

    __slots__ = ("base", "is_doubtful", "unanswered", "uncertain")

    def __init__(self) -> None:
        self.base: ResourceSet | None = None
        self.is_doubtful = False
        self.unanswered = NO_NAMES
        self.uncertain = NONE_UNCERTAIN

    def become(self, base: ResourceSet) -> None:
        """The client holds all resources of ``base`` that it wants. Names requested since then stay unanswered."""
        self.base, self.is_doubtful = base, False
        self.uncertain = NONE_UNCERTAIN

    def mark_unanswered(self, names: Iterable[str]) -> None:
        """These names need an answer, whatever the client may hold."""
        # If no other name is unanswered, the given set itself is kept: all streams in the same situation share it.
        self.unanswered = self.unanswered.union(names) if self.unanswered else frozenset(names)

    def forget(self, names: Iterable[str]) -> None:
        """The client unsubscribed from these names: they need no answer, and nothing is known of them."""
        dropped = frozenset(names)
        if self.unanswered:
            self.unanswered = self.unanswered - dropped
        if self.uncertain:
            self.uncertain = {name: version for name, version in self.uncertain.items() if name not in dropped}

    def forget_all(self) -> None:
        """The client subscribed to the wildcard again: everything must be sent (rule 53)."""
        self.mark_unanswered((*(self.base.resources if self.base is not None else ()), *self.uncertain))

    def mark_uncertain(self, names: Iterable[str], limit: int = UNCERTAIN_LIMIT) -> None:
        """The client may hold these names in any version or not at all, because a response was not ACKed.

        With more than ``limit`` such names, all content is offered again.
        """
        uncertain = dict.fromkeys(names, UNKNOWN_VERSION)
        if not uncertain:
            return
        self.uncertain = {**self.uncertain, **uncertain}
        if len(self.uncertain) > limit:
            self.is_doubtful, self.uncertain = True, NONE_UNCERTAIN

    @property
    def offered_from(self) -> ResourceSet | None:
        """The set from which the difference to newer content is made; None to offer all of it."""
        return None if self.is_doubtful else self.base
