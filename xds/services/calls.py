"""The calls about services, sources, registrations and bindings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from xds.calls.call import ApiCall, Json, WriteArguments, document, documents, flags, place, write_parts


class BindingArguments(WriteArguments, total=False):
    """Options of writes of bindings: also ``drain_s`` (of ``unbind``), how long removed endpoints drain."""

    drain_s: float | None


def services(*, source: str = "") -> ApiCall[tuple[Json, ...]]:
    """The services of the catalog, with the health of their instances; only those that ``source`` shows."""
    return ApiCall("GET", place("services"), documents, flags(source=source))


def service(name: str) -> ApiCall[Json]:
    """One service with its instances."""
    return ApiCall("GET", place("services", name), document)


def sources() -> ApiCall[tuple[Json, ...]]:
    """The sources of instances and their states."""
    return ApiCall("GET", place("sources"), documents)


def source(name: str) -> ApiCall[Json]:
    """One source, with the findings about what it reads."""
    return ApiCall("GET", place("sources", name), document)


def accept_losses(source: str, *, service: str = "", dry_run: bool = False, author: str = "") -> ApiCall[Json]:
    """Let the instances go that a source lost and that are held, of all services or of one."""
    query = flags(service=service, dry_run=dry_run, author=author)
    return ApiCall("POST", place("sources", source, "accept"), document, query)


def registrations(*, service: str = "") -> ApiCall[tuple[Json, ...]]:
    """The registered instances with their checks."""
    return ApiCall("GET", place("registrations"), documents, flags(service=service))


def registration(id: str) -> ApiCall[Json]:
    """One registered instance."""
    return ApiCall("GET", place("registrations", id), document)


def register(id: str, definition: Mapping[str, Any], *, author: str = "") -> ApiCall[Json]:
    """Register an instance, or change it. ``definition`` has the fields of Consul's service definitions."""
    return ApiCall("PUT", place("registrations", id), document, flags(author=author), body=dict(definition))


def deregister(id: str, *, author: str = "") -> ApiCall[Json]:
    """Deregister an instance with its checks; it drains."""
    return ApiCall("DELETE", place("registrations", id), document, flags(author=author))


def begin_maintenance(id: str, *, reason: str = "", author: str = "") -> ApiCall[Json]:
    """Take a registered instance out of service."""
    query = flags(reason=reason, author=author)
    return ApiCall("PUT", place("registrations", id, "maintenance"), document, query)


def end_maintenance(id: str, *, author: str = "") -> ApiCall[Json]:
    """Put a registered instance back into service."""
    return ApiCall("DELETE", place("registrations", id, "maintenance"), document, flags(author=author))


def bindings(group: str) -> ApiCall[tuple[Json, ...]]:
    """The assignments of a group that follow a service."""
    return ApiCall("GET", place("groups", group, "bindings"), documents)


def binding(group: str, assignment: str) -> ApiCall[Json]:
    """The service that an assignment follows."""
    return ApiCall("GET", place("groups", group, "bindings", assignment), document)


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
    return _write("PUT", group, assignment, body, options)


def unbind(group: str, assignment: str, **options: Unpack[BindingArguments]) -> ApiCall[Json]:
    """End a binding: the pushed assignment is served again. Its former endpoints drain."""
    return _write("DELETE", group, assignment, None, options)


def _write(method: str, group: str, assignment: str, body: object, given: BindingArguments) -> ApiCall[Json]:
    query, headers = write_parts(given, BindingArguments.__optional_keys__, "b-")
    return ApiCall(method, place("groups", group, "bindings", assignment), document, query, headers, body)
