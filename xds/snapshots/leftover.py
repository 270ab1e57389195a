"""A resource that a client has, in a version of which the server has no body."""

from __future__ import annotations

from xds.model.resource import Resource
from xds.model.snapshot import ResourceSet

SOME_VERSION = "?"  # the version of a `Leftover` if it is unknown; no resource has it


class Leftover(Resource):
    """A resource that a client showed in a version that is neither the newest one nor in the removal log.

    It is left alone: it is never sent. It refers to nothing, as far as it is known.
    """

    __slots__ = ()


def leftover_names(resource_set: ResourceSet) -> frozenset[str]:
    """The names of a set that are `Leftover`s."""
    return frozenset(name for name, each in resource_set.resources.items() if type(each) is Leftover)
