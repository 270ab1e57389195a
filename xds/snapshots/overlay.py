"""Overlays: for the nodes of a locality, some resources of their group are replaced by others.

docs/protocol.md#overlays: "the overlay is applied to a push in the same step"; "the pushed snapshot is not changed, all
other resources are shared"; "`version_info` is that of the push with `+<8 hex of the served set>`".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from xds.model.node import Locality
from xds.model.resource import Resource, derived_version_info
from xds.model.snapshot import Derivation, ResourceSet, diff_among
from xds.snapshots.diffs import Diffs
from xds.snapshots.set_diff import SetDiff

_VERSIONS_MADE = 2


class Override:
    """The replacement of one resource, made once for each pushed version of it: while a rollout runs there are two.

    ``make`` must not raise. It returns the pushed resource if it changes nothing.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[Resource], Resource]) -> None:
        self._make = make
        self._made: dict[str, Resource] = {}  # by pushed version

    def of(self, pushed: Resource) -> Resource:
        """The resource that is served in the place of a pushed one."""
        made = self._made.get(pushed.version)
        if made is None:
            made = self._make(pushed)
            self._made = dict([*self._made.items(), (pushed.version, made)][-_VERSIONS_MADE:])
        return made


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """The overrides for resources of one type, by name."""

    type_url: str
    overrides: Mapping[str, Override]

    def replacements(self, base: ResourceSet) -> dict[str, Resource]:
        """The replacements of resources of a pushed set, by name, without those that change nothing."""
        pushed = ((base.resources.get(name), override) for name, override in self.overrides.items())
        replaced = ((one, override.of(one)) for one, override in pushed if one is not None)
        return {one.name: other for one, other in replaced if other.version != one.version}

    def prepare(self, base: ResourceSet, observed: Container[str]) -> None:
        """Compute the replacements of pushed resources, except ``observed`` names: live assignments replace these."""
        for name, override in self.overrides.items():
            pushed = base.resources.get(name)
            if pushed is not None and name not in observed:
                override.of(pushed)


Overlays = Mapping[Locality, Overlay]  # by source: the locality of the nodes
ViewKey = tuple[str, Locality | None]  # API version, source


def source_of(sources: Container[Locality], locality: Locality) -> Locality | None:
    """The source of a node: its locality, else its zone; None if neither is a source."""
    if locality in sources:
        return locality
    zone = Locality(locality.region, locality.zone)
    return zone if zone in sources else None


def apply_overrides(base: ResourceSet, put: Mapping[str, Resource]) -> ResourceSet:
    """The set ``base`` with some resources replaced; ``base`` itself if ``put`` is empty."""
    if not put:
        return base
    digest = base.amended_digest(put)
    derivation = Derivation(
        origin_id=base.origin_id,
        omitted=base.omitted,
        overlaid={name: base.resources[name].version for name in put},
        observed=base.observed,
    )
    label = derived_version_info(base.version_info, base.digest, digest)
    return base.amended(label, put, derivation=derivation, digest=digest)


class _Overlaid(NamedTuple):
    """``whole`` is ``base`` with an overlay of ``names``; ``base`` itself if the overlay changes nothing."""

    base: ResourceSet
    whole: ResourceSet
    names: tuple[str, ...]


class OverlaidSets:
    """The latest overlaid set of each view of one group."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[ViewKey, _Overlaid] = {}

    def apply(self, key: ViewKey, base: ResourceSet, put: Mapping[str, Resource], diffs: Diffs) -> ResourceSet:
        """The set of a view. The change from the view's previous set is stored in ``diffs``."""
        whole = apply_overrides(base, put)
        before, self._latest[key] = self._latest.get(key), _Overlaid(base, whole, tuple(put))
        if before is not None and before.whole is not whole:
            # Otherwise all names of both sets would be compared. Their bases were compared before.
            names = (*diffs.change(before.base, base).names, *before.names, *put)
            diffs.keep(SetDiff(before.whole, whole, diff_among(before.whole, whole, names)))
        return whole

    def keep_sources(self, sources: Collection[Locality]) -> None:
        """Keep the latest sets of these sources only."""
        self._latest = {key: overlaid for key, overlaid in self._latest.items() if key[1] in sources}
