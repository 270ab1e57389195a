"""What the kernel sees of the API of Linkerd."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from xds.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from xds.admin.examples import ApiTexts
    from xds.feature import Kernel
    from xds.linkerd.served import ServedLinkerd


class LinkerdFeature(Feature):
    """The API of Linkerd."""

    def add_commands(self) -> None:
        """``xds destination``."""
        from xds.cli.help_layout import place
        from xds.linkerd import commands  # noqa: F401

        place("Mesh", "destination", after="Services and traffic")

    def settings(self) -> Mapping[str, tuple[Any, Any]]:
        """The section ``destination``."""
        from xds.linkerd.settings import DestinationSettings

        return {"destination": (DestinationSettings, DestinationSettings())}

    def routers(self) -> Sequence[APIRouter]:
        """The preview of a destination."""
        from xds.linkerd.routes import router

        return (router,)

    def texts(self) -> Sequence[ApiTexts]:
        from xds.linkerd.texts import TEXTS

        return (TEXTS,)

    def serve(self, kernel: Kernel) -> ServedLinkerd:
        from xds.linkerd.served import ServedLinkerd
        from xds.linkerd.settings import DestinationSettings
        from xds.mesh.served import ServedMesh
        from xds.services.served import ServedServices

        return ServedLinkerd(
            kernel.settings.section(DestinationSettings),
            kernel.settings.chains.datacenter,
            kernel.cache,
            kernel.feature(ServedServices).catalog,
            kernel.feature(ServedMesh).entries,
            kernel.streams,
        )
