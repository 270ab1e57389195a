"""What the kernel sees of traffic assignment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from xds.feature import Feature

if TYPE_CHECKING:
    from fastapi import APIRouter

    from xds.admin.examples import ApiTexts
    from xds.feature import Kernel
    from xds.steering.served import ServedSteering


class SteeringFeature(Feature):
    """Traffic assignment."""

    def add_commands(self) -> None:
        """``xds assignment``, and the review of policies by ``xds validate``."""
        from xds.cli.help_layout import place
        from xds.steering import commands  # noqa: F401

        place("Services and traffic", "assignment")

    def routers(self) -> Sequence[APIRouter]:
        """The policies of groups, with their decisions."""
        from xds.steering.routes import internal, router

        return (internal, router)

    def texts(self) -> Sequence[ApiTexts]:
        from xds.steering.texts import TEXTS

        return (TEXTS,)

    def serve(self, kernel: Kernel) -> ServedSteering:
        from xds.steering.served import ServedSteering

        members = kernel.members
        return ServedSteering(
            kernel.store,
            kernel.cache,
            kernel.fleet,
            kernel.load,
            kernel.registry.wake,
            members.holds_lease,
            is_shared=members.known().is_shared,
            others=kernel.others,
        )
