"""Settings of discovery chains: where they are seen from, and the shape of their names (docs/discovery-chain.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from xds.control.auth_settings import Section

if TYPE_CHECKING:
    from xds.chain.index import Seen


class ChainSettings(Section):
    """Discovery chains. ``datacenter`` and ``trust_domain`` are the server's own; they are parts of names and SNI.

    Without ``partitions``, names and JSON are as Consul had them before 1.11.
    """

    datacenter: str = Field("dc1", pattern=r"^[a-z0-9_][a-z0-9_-]*$", max_length=64)
    trust_domain: str = Field("consul", pattern=r"^[a-z0-9_-]+(\.[a-z0-9_-]+)*$", max_length=255)
    partitions: bool = True

    def seen(self) -> Seen:
        """The settings as the compiler takes them. It is imported here, since light commands read settings too."""
        from xds.chain.index import Seen

        return Seen(self.datacenter, self.trust_domain, self.partitions)
