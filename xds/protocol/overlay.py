"""Overlays: what the nodes of a locality are served in the place of some of a group's resources (DESIGN 1).

An overlay is laid over whatever is pushed, in the same step, and alters nothing of it: the set that results shares all
other resources with the pushed one, and its version_info is that of the push with ``+<8 hex of the served set>``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from xds.model.node import Locality
from xds.model.resource import Resource
from xds.model.snapshot import ResourceSet
from xds.model.versions import derived_version_info


class StandIn:
    """What is served in the place of one resource; made once for each version of it that is pushed.

    ``make`` must not fail, and gives the pushed resource back where it has nothing to say.
    """

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[Resource], Resource]) -> None:
        self._make = make
        self._made: tuple[str, Resource] | None = None

    def of(self, pushed: Resource) -> Resource:
        """The stand-in of a pushed resource."""
        made = self._made
        if made is None or made[0] != pushed.version:
            made = self._made = (pushed.version, self._make(pushed))
        return made[1]


@dataclass(frozen=True, slots=True, eq=False)
class Overlay:
    """The stand-ins for resources of one type, by name."""

    type_url: str
    stand_ins: Mapping[str, StandIn]

    def over(self, base: ResourceSet) -> dict[str, Resource]:
        """What stands in for resources of a pushed set: only what differs from them."""
        pushed = ((base.resources.get(name), stand_in) for name, stand_in in self.stand_ins.items())
        made = ((one, stand_in.of(one)) for one, stand_in in pushed if one is not None)
        return {one.name: other for one, other in made if other.version != one.version}


Overlays = Mapping[Locality, Overlay]  # by source locality: that of the nodes


def source_of(sources: Container[Locality], locality: Locality) -> Locality | None:
    """The source that a node counts to: its own locality, else its zone; None where neither is one."""
    if locality in sources:
        return locality
    zone = Locality(locality.region, locality.zone)
    return zone if zone in sources else None


def lay(base: ResourceSet, put: Mapping[str, Resource]) -> ResourceSet:
    """A set with stand-ins in the place of some resources; the set itself where there are none."""
    if not put:
        return base
    made = base.amended(base.version_info, put)
    made.version_info = derived_version_info(base.version_info, base.digest, made.digest)
    made.origin_id = base.origin_id
    made.omitted = base.omitted
    made.overlaid = {name: base.resources[name].version for name in put}
    return made
