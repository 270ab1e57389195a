"""Consul's catalog and health API: reads of services, and registrations by other programs.

Answers have the form of Consul (docs/services.md#consuls-own-paths) and the instances of all sources.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import NoReturn

from fastapi import Request
from fastapi.responses import Response

from xds.admin.bodies import Body
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.operations import ANY
from xds.admin.routing import needs
from xds.consul.blocking_queries import wait_for_change
from xds.consul.http import answer_read, answer_write, check_datacenter, findings_text, refuse
from xds.consul.routing import consul_router
from xds.filter.filter import Filter
from xds.filter.values import FixedRecord
from xds.model.errors import ValidationError
from xds.services.consul import (
    Selection,
    WatchedServices,
    bad_request,
    filter_of,
    flag,
    own_datacenter,
    parse_json,
    registering,
)
from xds.services.core.index import ServiceInstance
from xds.services.core.registration_rules import read_catalog_registration, read_deregistration
from xds.services.routes.consul_items import (
    CATALOG_SHAPE,
    CHECK_SHAPE,
    HEALTH_SHAPE,
    ShownInstance,
    catalog_item,
    check_item,
    health_item,
    is_of_service,
    shown_instances,
    trimmed,
)
from xds.services.served import served
from xds.services.view import ALL_SERVICES, tags_by_name

# Findings that Consul reports while it parses a body, before it checks the content.
_UNREADABLE = frozenset({"bad_duration", "duplicate_field", "unknown_field", "wrong_type", "enterprise"})

router = consul_router()


# Registration by other programs


@router.put("/catalog/register", openapi_extra=needs(ANY))
async def register(deps: Deps, request: Request, body: Body) -> Response:
    """Register a node, and an instance or checks on it. Answers ``true``."""
    value = await parse_json(body, "a registration")
    _check_datacenter(deps, request, value)
    try:
        registration = read_catalog_registration(value)
        await served(deps).registrations.register_in_catalog(registration, registering(request))
    except ValidationError as error:
        _refuse(request, error)
    return answer_write(request, True)


@router.put("/catalog/deregister", openapi_extra=needs(ANY))
async def deregister(deps: Deps, request: Request, body: Body) -> Response:
    """Deregister an instance, a check, or a node with everything on it, if it is registered. Answers ``true``."""
    value = await parse_json(body, "a deregistration")
    _check_datacenter(deps, request, value)
    try:
        form = read_deregistration(value)
        await served(deps).registrations.deregister_from_catalog(form, registering(request))
    except ValidationError as error:
        _refuse(request, error)
    return answer_write(request, True)


def _check_datacenter(deps: Dependencies, request: Request, value: object) -> None:
    """Raises ``RequestError`` unless the request and the registration in it are for the datacenter of this server."""
    check_datacenter(request, own_datacenter(deps))
    datacenter = (
        next((value[key] for key in value if key.lower() == "datacenter"), "") if isinstance(value, dict) else ""
    )
    if datacenter not in ("", None, own_datacenter(deps)):
        refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"No path to datacenter: {str(datacenter)[:80]!r}")


def _refuse(request: Request, error: ValidationError) -> NoReturn:
    """Refuse a registration as Consul does: 400 if it cannot be parsed, 500 if it breaks a rule."""
    request.state.is_refused_write = True
    if any(one.code in _UNREADABLE for one in error.violations):
        bad_request(f"Request decode failed: {findings_text(error.violations)}")
    refuse(HTTPStatus.INTERNAL_SERVER_ERROR, findings_text(error.violations))


# Reading


@router.get("/catalog/datacenters")
async def list_datacenters(deps: Deps, request: Request) -> Response:
    """The datacenters of all instances, and that of this server."""
    own = own_datacenter(deps)
    others = sorted(each for each in served(deps).view.datacenters() if each not in ("", own))
    return answer_write(request, [own, *others])


@router.get("/catalog/services")
async def list_services(deps: Deps, request: Request) -> Response:
    """All services with the tags of their instances."""
    selection, view = Selection.of(request, deps, by_tags=False), served(deps).view

    def revision() -> int:
        view.names()
        return view.names_revision if selection.is_everything else view.revision

    index = await wait_for_change(request, deps, WatchedServices(view, ALL_SERVICES), revision)
    tags_by_name = dict(sorted(each for name in view.names() for each in _tags(deps, name, selection).items()))
    return await answer_read(request, lambda: tags_by_name, index, len(tags_by_name) // 10)


def _tags(deps: Dependencies, service: str, selection: Selection) -> dict[str, list[str]]:
    """The tags of the selected instances of a service, by its name as their sources write it."""
    state = served(deps).view.state(service)
    if state is None:
        return {}
    if selection.is_everything and state.datacenters <= {"", selection.own_datacenter}:
        return {name: list(tags) for name, tags in state.tags.items()}
    selected = [one for one in state.instances if _is_selected(one, selection)]
    return {name: list(tags) for name, tags in tags_by_name(selected).items()}


def _is_selected(one: ServiceInstance, selection: Selection) -> bool:
    instance = one.instance
    return selection.has(instance.tags, instance.node_meta, instance.datacenter)


@router.get("/catalog/connect/{name:path}")
@router.get("/catalog/service/{name:path}")
async def get_service(deps: Deps, request: Request, name: str) -> Response:
    """The instances of a service. There are no sidecars here: an instance itself is what the mesh connects to."""
    chosen = await filter_of(request, CATALOG_SHAPE)
    instances, index = await _found(deps, request, name)
    return await answer_read(request, lambda: _items(instances, catalog_item, chosen), index, len(instances))


@router.get("/health/connect/{name:path}")
@router.get("/health/service/{name:path}")
async def get_health(deps: Deps, request: Request, name: str) -> Response:
    """The instances of a service with their checks; with ``passing``, those whose checks all pass.

    They are what the mesh connects to as well, as in `get_service`.
    """
    chosen, is_passing = await filter_of(request, HEALTH_SHAPE), flag(request, "passing")
    instances, index = await _found(deps, request, name)
    if is_passing:
        instances = [one for one in instances if all(check.status == "passing" for check in one.instance.checks)]
    return await answer_read(request, lambda: _items(instances, health_item, chosen), index, len(instances))


@router.get("/health/checks/{name:path}")
async def get_checks(deps: Deps, request: Request, name: str) -> Response:
    """The checks of all instances of a service, whatever their tags."""
    chosen = await filter_of(request, CHECK_SHAPE)
    instances, index = await _found(deps, request, name, by_tags=False)

    def make() -> list[FixedRecord]:
        checks = (check_item(one, check) for one in instances for check in one.instance.checks)
        return [item for item in checks if is_of_service(item) and chosen.matches(item)]

    return await answer_read(request, make, index, len(instances))


async def _found(
    deps: Dependencies, request: Request, name: str, *, by_tags: bool = True
) -> tuple[list[ShownInstance], int]:
    """The selected instances of a service after the wait of a blocking query, and the index."""
    if not name:
        bad_request("Missing service name")
    selection, view = Selection.of(request, deps, by_tags=by_tags), served(deps).view

    def revision() -> int:
        view.state(name)
        return view.service_revision(name)

    index = await wait_for_change(request, deps, WatchedServices(view, name), revision)
    state = view.state(name)
    if state is None:
        return [], index
    instances = [one for one in state.instances if _is_selected(one, selection)]
    own = selection.own_datacenter
    return shown_instances(instances, served(deps).registrations.table, own, state.revision + 1), index


def _items(
    instances: list[ShownInstance], make: Callable[[ShownInstance], FixedRecord], chosen: Filter
) -> list[FixedRecord]:
    items = (make(one) for one in instances)
    return [trimmed(item) for item in items if chosen.matches(item)]
