"""The admin application with real collaborators, called in process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.steering.assigned import Reports
from tests.support.plane import Plane
from xds.admin.dependencies import ApiOptions, Dependencies
from xds.app.admin import create_app
from xds.backup.backups import Backups
from xds.mesh.lowered_endpoints import USER as UPSTREAMS
from xds.services.core.registered_instance import SOURCE_NAME
from xds.services.registration import KIND, Registrations
from xds.services.served import ServedServices
from xds.services.source_runs import Sources
from xds.steering.served import ServedSteering
from xds.tasks.lifecycle import Phase


@dataclass
class Api:
    """A client of the application, and its collaborators."""

    plane: Plane
    options: ApiOptions = field(default_factory=ApiOptions)
    phase: Phase = Phase.READY

    def __post_init__(self) -> None:
        self.reports = Reports()
        plane = self.plane
        steering = ServedSteering(
            plane.store, plane.cache, plane.fleet, self.reports, lambda groups, sources: plane.woken.extend(groups)
        )
        plane.publisher.documents += steering.documents()
        plane.publisher.reviews.append(steering.review)
        self.served = ServedServices(plane.store, plane.catalog, plane.bindings, Sources(), Registrations(plane.store))
        assert plane.mesh.lowered.endpoints is not None
        self.served.followed[UPSTREAMS] = plane.mesh.lowered.endpoints.followed
        self.catalog, self.view, self.registrations = plane.catalog, self.served.view, self.served.registrations
        self.services = Dependencies(
            self.plane.publisher,
            self.plane.fleet,
            lambda: b"up 1\n",
            lambda: self.phase,
            self.options,
            by_hand=self.plane.by_hand,
            backups=Backups(self.plane.store, self.plane.publisher, steering.load),
            condition=self.plane.store.condition,
            features=(self.served, steering, plane.mesh),
        )
        transport = httpx.ASGITransport(create_app(self.services), raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://xds.test")

    async def start(self) -> None:
        """Load the registrations, and start what runs beside requests."""
        await self.registrations.load(self.catalog.sink(SOURCE_NAME, KIND, hold_share=1))
        self.catalog.start()
        self.registrations.start()

    async def close(self) -> None:
        """Stop what runs beside requests."""
        await self.registrations.close()
        await self.catalog.close()

    async def put(self, group: str, *resources: object, **arguments: Any) -> httpx.Response:
        """Replace a snapshot."""
        return await self.client.put(
            f"/api/v1/groups/{group}/snapshot",
            json={"resources": resources},
            **arguments,
        )


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    plane = Plane()
    await plane.store.open()
    found = Api(plane)
    await found.start()
    yield found
    await found.close()
    await plane.publisher.close()
    await plane.store.close()
