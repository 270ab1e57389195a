"""The calls about services, sources, registrations and bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

from xds.calls.call import ApiCall, CheckedArguments, WriteArguments, ask, ask_items, flags, write
from xds.services import operations

if TYPE_CHECKING:
    from xds.services.models.registrations import RegisteredInstance, RegistrationDeleted
    from xds.services.models.services import AcceptedLosses, BindingDeleted, BindingState, ServiceDetail, ServiceSummary
    from xds.services.models.sources import SourceState


def services(*, source: str = "") -> ApiCall[tuple[ServiceSummary, ...]]:
    """The services of the catalog, with the health of their instances; only those that ``source`` shows."""
    return ask_items(operations.LIST_SERVICES, query=flags(source=source))


def service(name: str, *, filter: str = "") -> ApiCall[ServiceDetail]:
    """One service with its instances; only those that ``filter`` selects, as in a binding."""
    return ask(operations.GET_SERVICE, name, query=flags(filter=filter))


def sources() -> ApiCall[tuple[SourceState, ...]]:
    """The sources of instances and their states."""
    return ask_items(operations.LIST_SOURCES)


def source(name: str) -> ApiCall[SourceState]:
    """One source, with the findings about what it reads."""
    return ask(operations.GET_SOURCE, name)


def accept_losses(
    source: str, *, service: str = "", dry_run: bool = False, author: str = ""
) -> ApiCall[AcceptedLosses]:
    """Let the instances go that a source lost and that are held, of all services or of one."""
    query = flags(service=service, dry_run=dry_run, author=author)
    return ask(operations.ACCEPT_LOSSES, source, query=query)


def registrations(*, service: str = "") -> ApiCall[tuple[RegisteredInstance, ...]]:
    """The registered instances with their checks."""
    return ask_items(operations.LIST_REGISTRATIONS, query=flags(service=service))


def registration(id: str) -> ApiCall[RegisteredInstance]:
    """One registered instance."""
    return ask(operations.GET_REGISTRATION, id)


def register(id: str, definition: Mapping[str, Any], *, author: str = "") -> ApiCall[RegisteredInstance]:
    """Register an instance, or change it. ``definition`` has the fields of Consul's service definitions."""
    return ask(operations.PUT_REGISTRATION, id, query=flags(author=author), body=dict(definition))


def deregister(id: str, *, author: str = "") -> ApiCall[RegistrationDeleted]:
    """Deregister an instance with its checks; it drains."""
    return ask(operations.DELETE_REGISTRATION, id, query=flags(author=author))


def begin_maintenance(id: str, *, reason: str = "", author: str = "") -> ApiCall[RegisteredInstance]:
    """Take a registered instance out of service."""
    query = flags(reason=reason, author=author)
    return ask(operations.BEGIN_MAINTENANCE, id, query=query)


def end_maintenance(id: str, *, author: str = "") -> ApiCall[RegisteredInstance]:
    """Put a registered instance back into service."""
    return ask(operations.END_MAINTENANCE, id, query=flags(author=author))


def bindings(group: str) -> ApiCall[tuple[BindingState, ...]]:
    """The assignments of a group that follow a service."""
    return ask_items(operations.LIST_BINDINGS, group)


def binding(group: str, assignment: str) -> ApiCall[BindingState]:
    """The service that an assignment follows."""
    return ask(operations.GET_BINDING, group, assignment)


def bind(
    group: str,
    assignment: str,
    service: str,
    *,
    filter: str = "",
    port: str = "",
    datacenter: str = "",
    only_passing: bool = False,
    **options: Unpack[CheckedArguments],
) -> ApiCall[BindingState]:
    """Let an assignment follow a service: its endpoints are the instances of the service, from any source.

    ``assignment`` is the name of the cluster, or its ``eds_cluster_config.service_name``. This makes no revision.
    """
    given = {"filter": filter, "port": port, "datacenter": datacenter, "only_passing": only_passing}
    body = {"service": service, **{name: value for name, value in given.items() if value}}
    return write(
        operations.PUT_BINDING, group, assignment, body=body, options=options, known=CheckedArguments, prefix="b-"
    )


def unbind(
    group: str, assignment: str, *, drain_s: float | None = None, **options: Unpack[WriteArguments]
) -> ApiCall[BindingDeleted]:
    """End a binding: the pushed assignment is served again. Its former endpoints drain, for ``drain_s``."""
    return write(
        operations.DELETE_BINDING,
        group,
        assignment,
        options=options,
        known=WriteArguments,
        prefix="b-",
        drain_s=drain_s,
    )
