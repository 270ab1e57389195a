"""Dependencies and their instances, and losses of sources that are held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path, Query, Request
from fastapi.responses import Response

from xds.admin.answers import Paging, answer_json, answer_model
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.middleware import Segment
from xds.admin.models.writing import document_of
from xds.admin.routing import Calling, api_router
from xds.model.errors import NotFoundError
from xds.model.natural_order import natural_key
from xds.services import operations
from xds.services.bindings import USER as BINDINGS
from xds.services.core.binding import InstanceSelection, read_binding
from xds.services.core.index import ServiceInstance
from xds.services.models.services import AcceptedLosses, ServiceDetail, ServiceSummary
from xds.services.served import served
from xds.store.document_keys import Key
from xds.tasks.threads import run_for_caller

router = api_router("services")


@router.serve(operations.LIST_SERVICES)
async def list_services(
    deps: Deps,
    request: Request,
    paging: Paging,
    source: Annotated[str, Query(description="Only services with instances of this source; empty: all")] = "",
) -> Response:
    """The services of the catalog by name, with their instances counted by health."""
    names = await paging.find_items_after(served(deps).catalog.names())
    catalog = served(deps).catalog
    return await paging.answer(
        request,
        (
            ServiceSummary.from_domain(name, catalog.instances(name), sum(map(len, _following_assignments(deps, name))))
            for name in names
        ),
        lambda item: item.service,
        lambda item: item,
        lambda item: not source or source in item.sources,
    )


@router.serve(operations.GET_SERVICE)
async def get_service(
    deps: Deps,
    request: Request,
    name: Segment,
    filter: Annotated[str, Query(description="Only instances that match, as in a binding; empty: all")] = "",
) -> Response:
    """One service: its instances with health, source, locality and age, and the assignments that follow it."""
    catalog = served(deps).catalog
    instances: Sequence[ServiceInstance] = catalog.instances(name)
    if filter and instances:
        instances = await run_for_caller(_selected, {"service": name, "filter": filter}, instances)
    instances = sorted(instances, key=lambda one: natural_key(f"{one.instance.address} {one.instance.port}"))
    found = ServiceDetail.from_domain(catalog, name, instances, *_following_assignments(deps, name))
    if not (found.instances or found.is_known or found.bindings):
        raise NotFoundError(f"there is no service {name!r}")
    return await answer_json(request, document_of(found))


def _selected(binding: dict[str, str], instances: Sequence[ServiceInstance]) -> list[ServiceInstance]:
    """The instances that a binding selects. Raises ``ValidationError`` for a filter that is none."""
    return list(InstanceSelection(read_binding(binding)).select(instances))


def _following_assignments(deps: Dependencies, service: str) -> tuple[list[Key], list[Key]]:
    """The assignments that follow a service: those of bindings, and the others."""
    following = {user: followed.of_service(service) for user, followed in served(deps).followed.items()}
    return following.pop(BINDINGS), [key for keys in following.values() for key in keys]


@router.serve(operations.ACCEPT_LOSSES)
async def accept_losses(
    deps: Deps,
    by: Calling,
    name: Annotated[Segment, Path(description="The name of the source")],
    service: Annotated[
        str, Query(description="Only the loss of this service; empty: all held losses of the source")
    ] = "",
    dry_run: Annotated[bool, Query(description="Show what would be removed; change nothing")] = False,
) -> Response:
    """Accept the held losses of a source: it lost most instances of a service at once. They drain and are removed."""
    held = served(deps).catalog.held_losses(name, service)
    if not held:
        about = f" of service {service!r}" if service else ""
        raise NotFoundError(f"no loss{about} of source {name!r} is held")
    if dry_run:
        return answer_model(AcceptedLosses(source=name, accepted=held, dry_run=True))
    # The audit list comes first: a change that cannot be recorded is not made.
    await deps.publisher.audit.record(by.note("source.accepted", subject=name, new={"services": held}))
    return answer_model(AcceptedLosses(source=name, accepted=served(deps).catalog.accept(name, service, by)))
