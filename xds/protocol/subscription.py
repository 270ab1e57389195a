"""The subscription of one stream to one type.

`Subscription` has the interest and as much of its history as decides the meaning of an empty list of names (rules 27,
28, 61, 62).
"""

from __future__ import annotations

from dataclasses import dataclass

from xds.model.names import NO_NAMES, WILDCARD
from xds.snapshots.interest import Interest, InterestTable


@dataclass(slots=True)
class InterestChange:
    """The change of the interest by a request.

    * ``added``: names that need an answer, even if they were sent before (rules 25, 53);
    * ``dropped``: names that the client no longer wants;
    * ``still_covered``: unsubscribed names that the wildcard still covers: they need an answer too (rule 59);
    * ``everything``: the client subscribed to the wildcard, perhaps again.
    """

    added: frozenset[str] = NO_NAMES
    dropped: frozenset[str] = NO_NAMES
    still_covered: frozenset[str] = NO_NAMES
    everything: bool = False

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped or self.still_covered or self.everything)

    @property
    def unanswered(self) -> frozenset[str]:
        """The names that need an answer."""
        return self.added | self.still_covered if self.still_covered else self.added


UNCHANGED = InterestChange()


class Subscription:
    """The interest in one type on one stream. ``legacy_wildcard``: an empty first request means all resources."""

    __slots__ = ("_legacy_allowed", "_started", "interest", "is_explicit")

    def __init__(self, *, legacy_wildcard: bool) -> None:
        self.interest = Interest()
        self._legacy_allowed = legacy_wildcard
        self.is_explicit = False  # a request on this stream had a name or "*"
        self._started = False

    def replace(self, names: frozenset[str], interests: InterestTable) -> InterestChange:
        """Replace the interest (SotW).

        Rule 27: "An empty list of names is a wildcard until the client names anything; then it means nothing".
        """
        self.is_explicit = self.is_explicit or bool(names)
        before = self.interest
        wildcard = WILDCARD in names or (self._legacy_allowed and not self.is_explicit)
        names = names - {WILDCARD} if WILDCARD in names else names
        if self._started and wildcard == before.wildcard and (names is before.names or names == before.names):
            return UNCHANGED
        self._started = True
        self.interest = interests.get(wildcard, names, before.routes)
        names = self.interest.names
        return InterestChange(
            added=names - before.names if before.names else names,
            dropped=before.names - names,
            everything=wildcard and not before.wildcard,
        )

    def change(
        self, subscribe: frozenset[str], unsubscribe: frozenset[str], interests: InterestTable
    ) -> InterestChange:
        """Change the interest (Delta). Rule 63: "subscribe comes before unsubscribe".

        Rule 61: "a legacy wildcard stays when names are added", until ``*`` is unsubscribed. Rule 62: "Unsubscribing
        the last name leaves an empty subscription, not a wildcard".
        """
        if self._started and not subscribe and not unsubscribe:
            return UNCHANGED  # an ACK alone must not cost a comparison of all names
        before = self.interest
        is_legacy = not self._started and not subscribe and self._legacy_allowed
        self._started = True
        wildcard = (before.wildcard or is_legacy or WILDCARD in subscribe) and WILDCARD not in unsubscribe
        names = before.names | subscribe if before.names else subscribe
        if unsubscribe or WILDCARD in names:
            names = names - unsubscribe - {WILDCARD}
        if names != before.names or wildcard != before.wildcard:
            self.interest = interests.get(wildcard, names, before.routes)
        names = self.interest.names
        unsubscribed = before.names & unsubscribe - {WILDCARD} if unsubscribe else NO_NAMES
        still_covered = frozenset(name for name in unsubscribed if self.interest.wants_name(name))
        return InterestChange(
            added=subscribe & names if before.names or unsubscribe else names,
            dropped=unsubscribed - still_covered,
            still_covered=still_covered,
            everything=wildcard and (not before.wildcard or WILDCARD in subscribe),
        )

    def narrow(self, routes: frozenset[str], interests: InterestTable) -> bool:
        """Narrow the wildcard to names under these route names; True if the wanted resources changed."""
        if self.interest.routes == routes:
            return False
        self.interest = interests.get(self.interest.wildcard, self.interest.names, routes)
        return self.interest.wildcard
