"""Lookups by IP address: a service by its virtual address, or an endpoint of the catalog or of the client's group."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from xds.linkerd.core.assignment_endpoints import AssignmentOptions, read_assignment
from xds.linkerd.core.authority import Authority
from xds.linkerd.core.endpoint import DestinationEndpoint, shortest
from xds.linkerd.core.instance_endpoints import endpoint_of
from xds.linkerd.core.mesh_role import is_opaque_port, linkerd_values
from xds.linkerd.core.mesh_state import DestinationRules, MeshState
from xds.linkerd.core.service_lookup import InstanceEndpoint, namespace_of
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.names import NO_NAMES
from xds.model.resource_type import ENDPOINT
from xds.model.snapshot import Snapshot

_IPV6 = re.compile(rb"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]+")


class AddressLookup:
    """Addresses as destinations."""

    def __init__(self, mesh_state: MeshState, rules: DestinationRules) -> None:
        self._mesh_state = mesh_state
        self._rules = rules

    def services(self, authority: Authority) -> tuple[str, ...]:
        """The services that have this virtual address."""
        return self._mesh_state.services_with_virtual(authority.host)

    def is_opaque(self, authority: Authority) -> bool:
        """Whether connections to the address are streams of bytes, as its instance declares, or by default."""
        for service in self._mesh_state.services_at(authority.host):
            meta = self._mesh_state.service_meta(service)
            for one in self._mesh_state.instances(service):
                if shortest(one.instance.address) == authority.host:
                    values = {**linkerd_values(meta), **linkerd_values(one.instance.meta)}
                    return is_opaque_port(values, authority.port, self._rules.mesh)
        return is_opaque_port({}, authority.port, self._rules.mesh)

    def endpoint(self, authority: Authority, snapshot: Snapshot | None) -> InstanceEndpoint:
        """The endpoint at an address and port; without metadata if no instance has it.

        Raises ``RemoteProtocolError`` (FAILED_PRECONDITION) if workloads with different mesh roles have it.
        """
        endpoints = list(self._in_catalog(authority))
        if not endpoints and snapshot is not None:
            endpoints = list(self._in_group(authority, snapshot))
        if not endpoints:
            return InstanceEndpoint(DestinationEndpoint(authority.host, authority.port), source="nothing")
        if len({one.endpoint.mesh for one in endpoints}) > 1:
            detail = f"{authority} is the address of several workloads"
            raise RemoteProtocolError(StatusCode.FAILED_PRECONDITION, detail)
        endpoint = replace(endpoints[0].endpoint, names=NO_NAMES, hinted_zones=NO_NAMES)
        return replace(endpoints[0], endpoint=endpoint)

    def _in_catalog(self, authority: Authority) -> Iterator[InstanceEndpoint]:
        for service in self._mesh_state.services_at(authority.host):
            values = linkerd_values(self._mesh_state.service_meta(service))
            for one in self._mesh_state.instances(service):
                instance = one.instance
                is_there = shortest(instance.address) == authority.host and one.drains_until is None
                if is_there and authority.port in (instance.port, *instance.ports.values()):
                    endpoint = endpoint_of(instance, authority.port, 1, self._rules.mesh, values)
                    yield InstanceEndpoint(endpoint, namespace_of(service, instance.meta), f"instance {instance.id}")

    def _in_group(self, authority: Authority, snapshot: Snapshot) -> Iterator[InstanceEndpoint]:
        """Endpoints of assignments. Their bytes are searched first: parsing thousands of them would take a second."""
        options = AssignmentOptions(self._rules.mesh, self._rules.has_ipv6)
        for name, resource in snapshot.get(ENDPOINT).resources.items():
            if _has_text(resource.body, authority.host):
                for one in read_assignment(resource, options).endpoints:
                    if (shortest(one.address), one.port) == (authority.host, authority.port):
                        yield InstanceEndpoint(one, source=f"assignment {name}")


def _has_text(body: bytes, address: str) -> bool:
    """Whether a body contains an address, in any of its forms.

    The address is a whole field. The bytes around it are a length and a tag, which are not characters of addresses.
    """
    if ":" not in address:
        return address.encode() in body
    return any(_is_form(text.decode(), address) for text in _IPV6.findall(body))


def _is_form(text: str, address: str) -> bool:
    try:
        return shortest(text) == address
    except ValueError:
        return False
