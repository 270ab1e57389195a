"""Registered instances: the same as Consul's paths for the agent, with errors that name every place.

Bodies are those of Consul's ``/v1/agent/service/register``, as JSON or YAML (docs/services.md#registration).
"""

from __future__ import annotations

from time import time
from typing import Annotated

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response

from xds.api.answers import Paging
from xds.api.bodies import Body, ContentType, parse_one
from xds.api.consul_services import BODY_BYTES, permit_of, registrant_of
from xds.api.middleware import Segment
from xds.api.routing import ANY, Calling, api_router, needs
from xds.api.services import Here, Services
from xds.api.shapes.registrations import (
    RegistrationDeleted,
    RegistrationItem,
    RegistrationPage,
    registration_item,
)
from xds.catalog.registered_instance import AGENT_NODE, Key, Registration
from xds.catalog.registration_rules import read_service
from xds.model.errors import NotFoundError

router = api_router("registrations")

ServiceFilter = Annotated[str, Query(description="Only instances of this service; empty: of all services")]


@router.get("/registrations", response_model=RegistrationPage)
async def list_registrations(here: Here, request: Request, paging: Paging, service: ServiceFilter = "") -> Response:
    """All registered instances, by id; those on other nodes by `NODE/ID`."""
    chosen = (one for one in here.registrations.table if service in ("", one.service))
    found = await paging.following(chosen, lambda one: one.instance_id)
    return await paging.answer(request, found, lambda one: one.instance_id, lambda one: _item(here, one))


@router.get("/registrations/{id}", response_model=RegistrationItem)
async def get_registration(here: Here, id: Segment) -> Response:
    """One instance that registered itself or was registered here."""
    return JSONResponse(_item(here, _found(here, id)))


@router.put("/registrations/{id}", response_model=RegistrationItem, openapi_extra=needs(ANY))
async def put_registration(
    here: Here, request: Request, id: Segment, body: Body, by: Calling, content_type: ContentType = ""
) -> Response:
    """Register an instance, or change its registration. It is stored before the answer, and makes no revision.

    It needs the scope `register:<service>`. Checks that the instance has already keep their status. Checks that are
    left
    out are removed.
    """
    value = await parse_one(body, content_type, "a service", BODY_BYTES)
    one = read_service(value, id)
    registrant = registrant_of(request, time())
    await here.registrations.register(one, registrant, permit_of(request), caller=by, replaces_checks=True)
    return JSONResponse(_item(here, _found(here, id)))


@router.delete("/registrations/{id}", response_model=RegistrationDeleted, openapi_extra=needs(ANY))
async def delete_registration(here: Here, request: Request, id: Segment, by: Calling) -> Response:
    """Deregister an instance with its checks. It drains. This needs the scope `register:<service>`."""
    one = _found(here, id)
    await here.registrations.deregister(id, permit_of(request), by)
    return JSONResponse({"id": id, "service": one.service})


@router.put("/registrations/{id}/maintenance", response_model=RegistrationItem, openapi_extra=needs(ANY))
async def begin_maintenance(
    here: Here,
    request: Request,
    id: Segment,
    by: Calling,
    reason: Annotated[str, Query(max_length=1_000, description="Why; the notes of the check have it")] = "",
) -> Response:
    """Take an instance out of service: it has a critical check until the maintenance ends.

    It needs the scope `register:<service>`. Nothing changes if the instance is in maintenance already.
    """
    await here.registrations.maintain(id, True, reason, permit_of(request), by)
    return JSONResponse(_item(here, _found(here, id)))


@router.delete("/registrations/{id}/maintenance", response_model=RegistrationItem, openapi_extra=needs(ANY))
async def end_maintenance(here: Here, request: Request, id: Segment, by: Calling) -> Response:
    """End the maintenance of an instance, if it is in maintenance. This needs the scope `register:<service>`."""
    await here.registrations.maintain(id, False, "", permit_of(request), by)
    return JSONResponse(_item(here, _found(here, id)))


def _found(here: Services, id: str) -> Registration:
    one = here.registrations.table.get(Key(AGENT_NODE, id))
    if one is None:
        raise NotFoundError(f"no instance is registered with the id {id[:80]!r}")
    return one


def _item(here: Services, one: Registration) -> RegistrationItem:
    return registration_item(one, here.registrations.table.node(one.node), here.registrations.expires_at)
