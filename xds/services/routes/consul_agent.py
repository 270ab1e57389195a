"""Consul's agent API: instances register themselves and report the status of their checks.

The server is one agent for all, so ids of instances and checks are unique on the whole server
(docs/services.md#registration).
"""

from __future__ import annotations

import json
from hashlib import blake2b
from http import HTTPStatus

from fastapi import Request
from fastapi.responses import Response

from xds.admin.bodies import Body
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.operations import ANY
from xds.admin.routing import needs
from xds.consul.http import answer_write, make_filtered, refuse
from xds.consul.routing import consul_router
from xds.filter.values import FixedRecord
from xds.model.errors import NotFoundError, ValidationError
from xds.services.consul import (
    bad_request,
    empty_answer,
    filter_of,
    flag,
    own_datacenter,
    parse_json,
    refuse_registration,
    registering,
    requested_datacenter,
)
from xds.services.core.instance import Health
from xds.services.core.registered_instance import AGENT_NODE, Key
from xds.services.core.registration_rules import STATUSES, read_check, read_service
from xds.services.routes.consul_items import (
    AGENT_SERVICE_SHAPE,
    CHECK_SHAPE,
    agent_check,
    agent_service,
    trimmed,
)
from xds.services.served import served

_WRITES = ("register", "deregister", "maintenance")  # segments of the path that are not ids of instances

router = consul_router("/agent")


# The status of checks


@router.put("/check/pass/{id:path}", openapi_extra=needs(ANY))
async def pass_check(deps: Deps, request: Request, id: str) -> Response:
    """Set the status of a check to passing; its TTL begins again."""
    return await _update(deps, request, id, Health.PASSING, request.query_params.get("note", ""))


@router.put("/check/warn/{id:path}", openapi_extra=needs(ANY))
async def warn_check(deps: Deps, request: Request, id: str) -> Response:
    """Set the status of a check to warning; its TTL begins again."""
    return await _update(deps, request, id, Health.WARNING, request.query_params.get("note", ""))


@router.put("/check/fail/{id:path}", openapi_extra=needs(ANY))
async def fail_check(deps: Deps, request: Request, id: str) -> Response:
    """Set the status of a check to critical; its TTL begins again."""
    return await _update(deps, request, id, Health.CRITICAL, request.query_params.get("note", ""))


@router.put("/check/update/{id:path}", openapi_extra=needs(ANY))
async def update_check(deps: Deps, request: Request, id: str, body: Body) -> Response:
    """Set the status and output of a check: ``{"Status": ..., "Output": ...}``. Its TTL begins again."""
    value = await parse_json(body, "a status")
    if not isinstance(value, dict):
        bad_request("Request decode failed: the body is an object")
    given = {str(name).lower(): text for name, text in value.items()}
    unknown = sorted(given.keys() - {"status", "output"})
    if unknown:
        bad_request(f"Request decode failed: unknown field {unknown[0][:80]!r}")
    status, output = given.get("status") or "", given.get("output") or ""
    if not isinstance(status, str) or not isinstance(output, str):
        bad_request("Request decode failed: Status and Output are strings")
    if status not in STATUSES:
        bad_request(f"Invalid check status: '{status[:80]}'")
    return await _update(deps, request, id, Health(status), output)


async def _update(deps: Dependencies, request: Request, id: str, status: Health, output: str) -> Response:
    requested_datacenter(request, deps)
    try:
        await served(deps).registrations.update_check(id, status, output, registering(request))
    except ValidationError as error:
        request.state.is_refused_write = True
        refuse(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))
    return empty_answer()


# Instances


@router.put("/service/register", openapi_extra=needs(ANY))
async def register(deps: Deps, request: Request, body: Body) -> Response:
    """Register an instance, or replace its registration. It is stored before the answer."""
    requested_datacenter(request, deps)
    value = await parse_json(body, "a service")
    replaces_checks = request.query_params.get("replace-existing-checks") in ("", "true")
    try:
        one, registrations = read_service(value), served(deps).registrations
        await registrations.register(one, registering(request), replaces_checks=replaces_checks)
    except ValidationError as error:
        refuse_registration(error)
    return empty_answer()


@router.put("/service/deregister/{id:path}", openapi_extra=needs(ANY))
async def deregister(deps: Deps, request: Request, id: str) -> Response:
    """Deregister an instance with its checks."""
    requested_datacenter(request, deps)
    if not await served(deps).registrations.deregister(id, registering(request)):
        detail = f'Unknown service ID "{id[:80]}". Ensure that the service ID is passed, not the service name.'
        refuse(HTTPStatus.NOT_FOUND, detail)
    return empty_answer()


@router.put("/service/maintenance/{id:path}", openapi_extra=needs(ANY))
async def maintain(deps: Deps, request: Request, id: str) -> Response:
    """Begin or end the maintenance of an instance. In maintenance it has a critical check."""
    requested_datacenter(request, deps)
    if not id:
        bad_request("Missing service ID")
    if not request.query_params.get("enable"):
        bad_request("Missing value for enable")
    is_enabled, reason = flag(request, "enable"), request.query_params.get("reason", "")
    try:
        await served(deps).registrations.maintain(id, is_enabled, reason, registering(request))
    except NotFoundError as error:
        refuse(HTTPStatus.NOT_FOUND, str(error))
    return empty_answer()


@router.get("/services")
async def list_services(deps: Deps, request: Request) -> Response:
    """The instances that registered themselves, by id."""
    requested_datacenter(request, deps)
    chosen, datacenter = await filter_of(request, AGENT_SERVICE_SHAPE), own_datacenter(deps)
    registrations = served(deps).registrations.table.on_node(AGENT_NODE)

    def make() -> dict[str, FixedRecord]:
        items = {one.id: agent_service(one, datacenter) for one in registrations}
        return {id: trimmed(item) for id, item in items.items() if chosen.matches(item)}

    return answer_write(request, await make_filtered(request, make, len(registrations)))


@router.get("/service/{id:path}")
async def get_service(deps: Deps, request: Request, id: str) -> Response:
    """One instance that registered itself."""
    requested_datacenter(request, deps)
    if id.partition("/")[0] in _WRITES:
        refuse(HTTPStatus.METHOD_NOT_ALLOWED, "method GET not allowed")
    one = served(deps).registrations.table.get(Key(AGENT_NODE, id))
    if one is None:
        refuse(HTTPStatus.NOT_FOUND, f"unknown service ID: {id[:80]}")
    item = trimmed(agent_service(one, own_datacenter(deps)))
    digest = blake2b(json.dumps(item, sort_keys=True).encode(), digest_size=8).hexdigest()
    item["ContentHash"] = digest
    answer = answer_write(request, item)
    answer.headers["X-Consul-ContentHash"] = digest
    return answer


# Checks


@router.get("/checks")
async def list_checks(deps: Deps, request: Request) -> Response:
    """The checks of the instances that registered themselves, by id."""
    requested_datacenter(request, deps)
    chosen = await filter_of(request, CHECK_SHAPE)
    registrations = served(deps).registrations.table.on_node(AGENT_NODE)

    def make() -> dict[str, FixedRecord]:
        items = {check.id: agent_check(one, check) for one in registrations for check in one.checks}
        return {id: item for id, item in items.items() if chosen.matches(item)}

    return answer_write(request, await make_filtered(request, make, len(registrations)))


@router.put("/check/register", openapi_extra=needs(ANY))
async def register_check(deps: Deps, request: Request, body: Body) -> Response:
    """Add a TTL check to an instance. Other kinds of checks are refused, with their kind in the message."""
    requested_datacenter(request, deps)
    value = await parse_json(body, "a check")
    try:
        id, check = read_check(value)
        await served(deps).registrations.register_check(id, check, registering(request))
    except ValidationError as error:
        refuse_registration(error)
    return empty_answer()


@router.put("/check/deregister/{id:path}", openapi_extra=needs(ANY))
async def deregister_check(deps: Deps, request: Request, id: str) -> Response:
    """Remove a check."""
    requested_datacenter(request, deps)
    await served(deps).registrations.deregister_check(id, registering(request))
    return empty_answer()
