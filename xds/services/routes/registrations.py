"""Registered instances: what Consul's agent API does, with errors that name each place.

Bodies are those of Consul's ``/v1/agent/service/register``, as JSON or YAML (docs/services.md#registration).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Query, Request
from fastapi.responses import JSONResponse, Response

from xds.admin.answers import Paging, answer_model
from xds.admin.bodies import Body as GivenBody
from xds.admin.bodies import ContentType, parse_one
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.middleware import Segment
from xds.admin.routing import Calling, api_router, with_body
from xds.admin.server_door import internal_router
from xds.model.compared_name import compared
from xds.model.errors import NotFoundError
from xds.services import operations
from xds.services.consul import BODY_BYTES, registering
from xds.services.core.instance import worst
from xds.services.core.registered_instance import AGENT_NODE, CheckKey, Key, RegisteredCheck, Registration
from xds.services.core.registration_rules import read_service
from xds.services.heartbeats_elsewhere import HEARTBEATS_PATH
from xds.services.models.registrations import RegisteredInstance, RegistrationDeleted
from xds.services.registration import EXPIRED_AT_ONCE
from xds.services.served import served
from xds.services.texts import SERVICE

router = api_router("registrations")
internal = internal_router()

ServiceFilter = Annotated[str, Query(description="Only instances of this service; empty: of all services")]


@router.serve(operations.LIST_REGISTRATIONS)
async def list_registrations(deps: Deps, request: Request, paging: Paging, service: ServiceFilter = "") -> Response:
    """All registered instances, by id; those on other nodes by `NODE/ID`."""
    name = compared(service)
    chosen = (one for one in served(deps).registrations.table if name in ("", compared(one.service)))
    items = await paging.find_items_after(chosen, lambda one: one.instance_id)
    return await paging.answer(request, items, lambda one: one.instance_id, lambda one: _item(deps, one))


@router.serve(operations.GET_REGISTRATION)
async def get_registration(deps: Deps, id: Segment) -> Response:
    """One instance that registered itself or was registered here."""
    return answer_model(_item(deps, _registration(deps, id)))


@router.serve(operations.PUT_REGISTRATION)
@with_body(SERVICE, "The service definition, as JSON or YAML")
async def put_registration(
    deps: Deps, request: Request, id: Segment, body: GivenBody, by: Calling, content_type: ContentType = ""
) -> Response:
    """Register an instance, or change its registration. It is stored before the answer, and makes no revision.

    It needs the scope `register:<service>`. Checks that the instance has already keep their status. Checks that are
    left out are removed.
    """
    value = await parse_one(body, content_type, "a service", BODY_BYTES)
    one = read_service(value, id)
    await served(deps).registrations.register(one, registering(request, by), replaces_checks=True)
    return answer_model(_item(deps, _registration(deps, id)))


@router.serve(operations.DELETE_REGISTRATION)
async def delete_registration(deps: Deps, request: Request, id: Segment, by: Calling) -> Response:
    """Deregister an instance with its checks. It drains. This needs the scope `register:<service>`."""
    one = _registration(deps, id)
    await served(deps).registrations.deregister(id, registering(request, by))
    return answer_model(RegistrationDeleted(id=id, service=one.service))


@router.serve(operations.BEGIN_MAINTENANCE)
async def begin_maintenance(
    deps: Deps,
    request: Request,
    id: Segment,
    by: Calling,
    reason: Annotated[str, Query(max_length=1_000, description="Why; the notes of the check have it")] = "",
) -> Response:
    """Take an instance out of service: it has a critical check until the maintenance ends.

    It needs the scope `register:<service>`. Nothing changes if the instance is in maintenance already.
    """
    await served(deps).registrations.maintain(id, True, reason, registering(request, by))
    return answer_model(_item(deps, _registration(deps, id)))


@router.serve(operations.END_MAINTENANCE)
async def end_maintenance(deps: Deps, request: Request, id: Segment, by: Calling) -> Response:
    """End the maintenance of an instance, if it is in maintenance. This needs the scope `register:<service>`."""
    await served(deps).registrations.maintain(id, False, "", registering(request, by))
    return answer_model(_item(deps, _registration(deps, id)))


@internal.post(HEARTBEATS_PATH)
async def list_heartbeats(
    deps: Deps, checks: Annotated[list[tuple[str, str]], Body(embed=True, max_length=EXPIRED_AT_ONCE)]
) -> Response:
    """For how long checks are still in time by the heartbeats that this server has received."""
    found = served(deps).registrations.remaining(CheckKey(node, id) for node, id in checks)
    return JSONResponse({"remaining": [[check.node, check.id, seconds] for check, seconds in found.items()]})


def _registration(deps: Dependencies, id: str) -> Registration:
    one = served(deps).registrations.table.get(Key(AGENT_NODE, id))
    if one is None:
        raise NotFoundError(f"no instance is registered with the id {id[:80]!r}")
    return one


def _item(deps: Dependencies, one: Registration) -> RegisteredInstance:
    registrations = served(deps).registrations
    node = registrations.table.node(one.node)
    of_node = node.checks if node is not None else ()
    health = worst(check.health for check in (*one.checks, *of_node)).value

    def expires_s(check: RegisteredCheck) -> float | None:
        return registrations.expires_at(CheckKey(one.node, check.id))

    return RegisteredInstance.from_domain(one, of_node, health, expires_s)
