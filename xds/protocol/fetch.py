"""One answer without a stream: unary Fetch, and REST polling.

The version told is that of what is served: the type's version_info with the hash of the resources that match the names
asked for, so that asking for one more name is never answered "not modified" (rule 76).
"""

from __future__ import annotations

from dataclasses import dataclass

from xds.model.resource import Resource
from xds.model.resource_type import resource_type
from xds.model.snapshot import content_digest
from xds.model.versions import derived_version_info
from xds.protocol import wire
from xds.protocol.cache import View
from xds.protocol.events import SotwRequest
from xds.protocol.subscription import Subscription


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to one request. ``modified`` is False when the client's version_info already names it."""

    type_url: str
    version_info: str
    resources: tuple[Resource, ...]
    modified: bool

    def encode(self, control_plane: str = "") -> bytes:
        """The answer as a serialized DiscoveryResponse."""
        identifier = wire.control_plane_field(control_plane)
        return wire.encode_sotw(
            self.type_url, self.version_info, self.version_info, map(wire.frame, self.resources), identifier
        )


def fetch(view: View, request: SotwRequest) -> Fetched:
    """Answer a request from a view; the request's ``type_url`` must be set."""
    type = resource_type(request.type_url)
    subscription = Subscription(legacy_wildcard=type.legacy_wildcard)
    subscription.replace(request.names)
    released = view.snapshot.get(request.type_url)
    resources = tuple(released.resources[name] for name in subscription.interest.select(released))
    digest = content_digest((resource.name, resource.version) for resource in resources)
    version_info = derived_version_info(released.version_info, released.digest, digest)
    return Fetched(request.type_url, version_info, resources, version_info != request.version_info)
