"""What a client holds of one type, as far as ACKs prove it.

In step, this is one reference to a snapshot's set: it does not grow with the number of resources (DESIGN 3.3). What
deviates from that set is kept beside it:

* ``owed``: names the client asked for and was not answered since, even if ``base`` has them (rules 25, 53);
* ``doubted``: names the client may hold in a version other than that of ``base``: told by
  ``initial_resource_versions``, or offered and refused. After a NACK "the client's state is a mixture" (rule 18), so an
  unknown version is ``""``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from xds.model.snapshot import ResourceSet

UNKNOWN_VERSION = ""
NOTHING_OWED: frozenset[str] = frozenset()
NO_DOUBTS: Mapping[str, str] = MappingProxyType({})
# Names: more are not remembered one by one. All is sent anew then, and what was only offered is left to the client.
DOUBTS_LIMIT = 10_000


class Known:
    """The knowledge about one client and type, owned by its track. The mappings are shared: replaced, never changed."""

    __slots__ = ("base", "doubted", "owed")

    def __init__(self) -> None:
        self.base: ResourceSet | None = None
        self.owed = NOTHING_OWED
        self.doubted = NO_DOUBTS

    def become(self, base: ResourceSet) -> None:
        """The client holds what it wants of ``base``; names owed since the offer was made stay owed."""
        self.base = base
        self.doubted = NO_DOUBTS

    def owe(self, names: Iterable[str]) -> None:
        """These names need an answer, whatever the client may hold."""
        # A set that is owed as it is stays one object, which all streams in the same situation share.
        self.owed = self.owed.union(names) if self.owed else frozenset(names)

    def forget(self, names: Iterable[str]) -> None:
        """The client dropped these names: nothing is owed and nothing is known of them."""
        gone = frozenset(names)
        if self.owed:
            self.owed = self.owed - gone
        if self.doubted:
            self.doubted = {name: version for name, version in self.doubted.items() if name not in gone}

    def forget_all(self) -> None:
        """Nothing is known any more: all is to be sent (a wildcard asked for anew, rule 53)."""
        self.doubted = dict.fromkeys(self.held_versions(), UNKNOWN_VERSION)
        self.base = None

    def doubt(self, names: Iterable[str]) -> None:
        """An offer of these names was not accepted: the client may hold them or not."""
        doubted = dict.fromkeys(names, UNKNOWN_VERSION)
        if not doubted:
            return
        self.doubted = {**self.doubted, **doubted}
        if len(self.doubted) > DOUBTS_LIMIT:
            self.base, self.doubted = None, NO_DOUBTS

    def trust(self, names: Iterable[str]) -> None:
        """The client kept these names as they were before the last offer."""
        if self.doubted and names:
            gone = frozenset(names)
            self.doubted = {name: version for name, version in self.doubted.items() if name not in gone} or NO_DOUBTS

    def held_versions(self) -> dict[str, str]:
        """Name to version of all the client may hold."""
        versions = self.base.versions() if self.base is not None else {}
        versions.update(self.doubted)
        return versions
