"""Responses, encoded once and shared by every stream they are sent on."""

from __future__ import annotations

from dataclasses import dataclass

from xds.model.snapshot import ResourceSet


@dataclass(frozen=True, slots=True, eq=False)
class Response:
    """One encoded response.

    ``body`` is the serialized message, ``nonce`` included. ``number`` grows with every build in the process, so that
    a number above the last one sent on a stream was never sent there. ``digest`` identifies the content (names,
    resource versions, removals), whatever its version_info: a refused content is recognised by it.
    """

    body: bytes
    nonce: str
    number: int
    resource_set: ResourceSet
    names: tuple[str, ...]
    removed: tuple[str, ...]
    digest: bytes
    heartbeat: bool = False

    def versions(self) -> dict[str, str]:
        """Name to resource version of all that it holds."""
        resources = self.resource_set.resources
        return {name: resources[name].version for name in self.names}

    @property
    def version_info(self) -> str:
        return self.resource_set.version_info
