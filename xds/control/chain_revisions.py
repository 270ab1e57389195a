"""The revisions of config entries at which chains came out otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from xds.catalog.entry import Key
from xds.chain.compile import compile_recorded
from xds.chain.index import ChainIndex, Proposal
from xds.chain.request import Overrides


class ChainRevisions:
    """Says of each chain at which revision it changed last.

    That is the newest revision of the entries that it depends on, unless their last changes left it as it was: for
    those the older revision is kept. It never goes back. ``revision_of`` has the revision of an entry, present or not.
    """

    def __init__(self, revision_of: Callable[[Key], int]) -> None:
        self._revision_of = revision_of
        self._kept: dict[str, int] = {}

    def of(self, index: ChainIndex, service: str, overrides: Overrides | None = None, datacenter: str = "") -> int:
        """The revision of a service's chain, 0 where it depends on no entry that was ever there.

        A chain with overrides, or seen from another datacenter, depends on other entries, and each change of one of
        them counts. Raises ``CompileRequestError``.
        """
        seen = index.seen
        if overrides is not None or datacenter not in ("", seen.datacenter):
            seen = replace(seen, datacenter=datacenter or seen.datacenter)
            return self._newest(compile_recorded(seen.request(service, index.entries, overrides)).consulted)
        kept = self._kept.get(service)
        return kept if kept is not None else self._newest(index.consulted(service))

    def keep(self, index: ChainIndex, proposal: Proposal) -> None:
        """Note which chains a proposal leaves as they are. Call it before the proposal and its entries are in place."""
        for service in proposal.compiled.keys() - proposal.changed:
            self._kept[service] = self.of(index, service)
        for service in proposal.changed:
            self._kept.pop(service, None)

    def clear(self) -> None:
        """Other entries were loaded."""
        self._kept.clear()

    def _newest(self, keys: Iterable[Key]) -> int:
        return max(map(self._revision_of, keys), default=0)
