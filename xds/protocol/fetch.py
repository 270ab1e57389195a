"""One response without a stream: unary Fetch and REST polling.

Its version_info is that of the type with the hash of the resources that match the requested names, so that a request
for one more name is never answered "not modified" (rule 76).
"""

from __future__ import annotations

from dataclasses import dataclass

from xds.model.resource import Resource
from xds.model.resource_type import resource_type
from xds.model.snapshot import content_digest
from xds.model.versions import derived_version_info
from xds.protocol.cache import View
from xds.protocol.encode import encode_control_plane, encode_parts, encode_sotw
from xds.protocol.requests import SotwRequest
from xds.protocol.subscription import InterestTable, Subscription


@dataclass(frozen=True, slots=True)
class Fetched:
    """The response to one request. ``modified`` is False when the request already carries its version_info."""

    type_url: str
    version_info: str
    resources: tuple[Resource, ...]
    modified: bool

    def encode(self, control_plane: str = "") -> bytes:
        """The serialized DiscoveryResponse."""
        parts = map(encode_parts, self.resources)
        identifier = encode_control_plane(control_plane)
        return encode_sotw(self.type_url, self.version_info, self.version_info, parts, identifier)


def fetch(view: View, request: SotwRequest) -> Fetched:
    """Answer a request from a view. The ``type_url`` of the request must be set."""
    type = resource_type(request.type_url)
    subscription = Subscription(legacy_wildcard=type.legacy_wildcard)
    subscription.replace(request.names, InterestTable())
    released = view.snapshot.get(request.type_url)
    resources = tuple(released.resources[name] for name in subscription.interest.select(released))
    digest = content_digest((resource.name, resource.version) for resource in resources)
    version_info = derived_version_info(released.version_info, released.digest, digest)
    return Fetched(request.type_url, version_info, resources, version_info != request.version_info)
