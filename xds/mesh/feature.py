"""What the kernel sees of the mesh."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xds.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from xds.admin.examples import ApiTexts
    from xds.admin.foreign_apis import ForeignApi
    from xds.feature import Kernel
    from xds.mesh.served import ServedMesh


class MeshFeature(Feature):
    """Config entries, discovery chains, and upstreams."""

    def add_commands(self) -> None:
        """``xds config-entry``, ``xds chain`` and ``xds upstreams``."""
        from xds.cli.help_layout import place
        from xds.mesh.commands import chains, config_entries, upstreams  # noqa: F401

        place("Mesh", "config-entry", "chain", "upstreams", after="Services and traffic")

    def routers(self) -> Sequence[APIRouter]:
        """The routes of transactions, config entries, chains and upstreams, and Consul's paths for them."""
        from xds.mesh.routes import config_entries, consul, discovery_chains, transactions, upstreams

        modules = (upstreams, transactions, config_entries, discovery_chains, consul)
        return [module.router for module in modules]

    def foreign_apis(self) -> Sequence[ForeignApi]:
        """Consul's."""
        from xds.consul.routing import CONSUL_API

        return (CONSUL_API,)

    def texts(self) -> Sequence[ApiTexts]:
        from xds.mesh.texts import TEXTS

        return (TEXTS,)

    def serve(self, kernel: Kernel) -> ServedMesh:
        from xds.mesh.served import ServedMesh

        return ServedMesh.of(kernel)
