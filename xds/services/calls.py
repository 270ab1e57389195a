"""The calls about services, sources, registrations and bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from xds.admin.operations import Operation
from xds.calls.call import ApiCall, Json, WriteArguments, ask, document, documents, flags, write_parts
from xds.services import operations


class BindingArguments(WriteArguments, total=False):
    """Options of writes of bindings: also ``drain_s`` (of ``unbind``), how long removed endpoints drain."""

    drain_s: float | None


def services(*, source: str = "") -> ApiCall[tuple[Json, ...]]:
    """The services of the catalog, with the health of their instances; only those that ``source`` shows."""
    return ask(operations.LIST_SERVICES, query=flags(source=source), read=documents)


def service(name: str) -> ApiCall[Json]:
    """One service with its instances."""
    return ask(operations.GET_SERVICE, name, read=document)


def sources() -> ApiCall[tuple[Json, ...]]:
    """The sources of instances and their states."""
    return ask(operations.LIST_SOURCES, read=documents)


def source(name: str) -> ApiCall[Json]:
    """One source, with the findings about what it reads."""
    return ask(operations.GET_SOURCE, name, read=document)


def accept_losses(source: str, *, service: str = "", dry_run: bool = False, author: str = "") -> ApiCall[Json]:
    """Let the instances go that a source lost and that are held, of all services or of one."""
    query = flags(service=service, dry_run=dry_run, author=author)
    return ask(operations.ACCEPT_LOSSES, source, query=query, read=document)


def registrations(*, service: str = "") -> ApiCall[tuple[Json, ...]]:
    """The registered instances with their checks."""
    return ask(operations.LIST_REGISTRATIONS, query=flags(service=service), read=documents)


def registration(id: str) -> ApiCall[Json]:
    """One registered instance."""
    return ask(operations.GET_REGISTRATION, id, read=document)


def register(id: str, definition: Mapping[str, Any], *, author: str = "") -> ApiCall[Json]:
    """Register an instance, or change it. ``definition`` has the fields of Consul's service definitions."""
    return ask(operations.PUT_REGISTRATION, id, query=flags(author=author), body=dict(definition), read=document)


def deregister(id: str, *, author: str = "") -> ApiCall[Json]:
    """Deregister an instance with its checks; it drains."""
    return ask(operations.DELETE_REGISTRATION, id, query=flags(author=author), read=document)


def begin_maintenance(id: str, *, reason: str = "", author: str = "") -> ApiCall[Json]:
    """Take a registered instance out of service."""
    query = flags(reason=reason, author=author)
    return ask(operations.BEGIN_MAINTENANCE, id, query=query, read=document)


def end_maintenance(id: str, *, author: str = "") -> ApiCall[Json]:
    """Put a registered instance back into service."""
    return ask(operations.END_MAINTENANCE, id, query=flags(author=author), read=document)


def bindings(group: str) -> ApiCall[tuple[Json, ...]]:
    """The assignments of a group that follow a service."""
    return ask(operations.LIST_BINDINGS, group, read=documents)


def binding(group: str, assignment: str) -> ApiCall[Json]:
    """The service that an assignment follows."""
    return ask(operations.GET_BINDING, group, assignment, read=document)


def bind(
    group: str,
    assignment: str,
    service: str,
    *,
    filter: str = "",
    port: str = "",
    datacenter: str = "",
    only_passing: bool = False,
    **options: Unpack[BindingArguments],
) -> ApiCall[Json]:
    """Let an assignment follow a service: its endpoints are the instances of the service, from any source.

    ``assignment`` is the name of the cluster, or its ``eds_cluster_config.service_name``. This makes no revision.
    """
    given = {"filter": filter, "port": port, "datacenter": datacenter, "only_passing": only_passing}
    body = {"service": service, **{name: value for name, value in given.items() if value}}
    return _write(operations.PUT_BINDING, group, assignment, body, options)


def unbind(group: str, assignment: str, **options: Unpack[BindingArguments]) -> ApiCall[Json]:
    """End a binding: the pushed assignment is served again. Its former endpoints drain."""
    return _write(operations.DELETE_BINDING, group, assignment, None, options)


def _write(operation: Operation, group: str, assignment: str, body: object, given: BindingArguments) -> ApiCall[Json]:
    query, headers = write_parts(given, BindingArguments.__optional_keys__, "b-")
    return ask(operation, group, assignment, query=query, headers=headers, body=body, read=document)
