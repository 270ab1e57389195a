"""Answers to requests: the state of a destination, its profile and its outbound policy.

A name is looked for among the services of the catalog, then among the clusters and virtual hosts of the client's group.
An address is that of a service, of a listener, or of an endpoint. Nothing here is sent or remembered per stream.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from xds.destination.address_lookup import AddressLookup
from xds.destination.authority import Authority, Generation, Grammar, invalid
from xds.destination.cluster_lookup import (
    FoundCluster,
    bound_cluster,
    cluster_endpoints,
    cluster_rules,
    find_cluster,
    is_dns_name,
    is_tcp_only,
    name_cluster,
)
from xds.destination.endpoint import DestinationEndpoint, DestinationState, Labels
from xds.destination.mesh_state import DestinationClient, DestinationRules, Remembered, World
from xds.destination.outbound_policy import OutboundRule, plain_route
from xds.destination.policy_routes import PolicyRules
from xds.destination.profile import DEFAULT_BUDGET, Profile, Subject
from xds.destination.service_lookup import FoundService, ServiceLookup
from xds.destination.topology import ClientPlace, filtered
from xds.destination.update_messages import context_labels, context_labels_2018
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.snapshot import Snapshot

Found = FoundService | FoundCluster | None

_NONE = DestinationState(False)
_EMPTY = DestinationState(True)


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """The state of a destination; None while it is not known. ``services``: what it depends on, besides the group.

    ``skipped`` lists what Linkerd's API cannot express, with reasons; ``source`` is the origin of the answer.
    """

    state: DestinationState | None
    services: frozenset[str] = frozenset()
    skipped: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    """A profile. The other fields as in `StateAnswer`; ``address`` is the IP address that it depends on, if any.

    ``policy`` has what a policy says of the same service, if that is more than a profile.
    """

    profile: Profile
    services: frozenset[str] = frozenset()
    skipped: tuple[str, ...] = ()
    source: str = ""
    address: str = ""
    policy: PolicyRules | None = None


class DestinationResolver:
    """Answers for the clients of one server."""

    def __init__(self, world: World, rules: DestinationRules) -> None:
        self.rules = rules
        self._services = ServiceLookup(world, rules)
        self._addresses = AddressLookup(world, rules)
        self._remembered = Remembered()

    # Get

    def state(self, authority: Authority, client: DestinationClient, generation: Generation) -> StateAnswer:
        """What `Destination.Get` tells. Raises ``RemoteProtocolError`` for a name that is not ours."""
        if authority.address is not None:
            return self._echo(authority, generation)
        found, is_settled, services = self._find(authority, client)
        if isinstance(found, FoundService):
            return self._of_service(authority, found, client, generation, services)
        if isinstance(found, FoundCluster):
            assert client.snapshot is not None
            return self._of_cluster(authority, found, client, client.snapshot, generation, services)
        waits = client.waits or (self._services.is_starting() and not client.was_told)
        is_awaited = not is_settled and waits
        return StateAnswer(None if is_awaited else _NONE, services)

    def _echo(self, authority: Authority, generation: Generation) -> StateAnswer:
        """Clients of 2018 ask for addresses as well, and get them back."""
        if generation is not Generation.CONDUIT:
            raise invalid(f"{authority}: endpoints are found by name, not by address")
        key = ("echo", authority)
        return self._remembered.get(
            key, (), lambda: StateAnswer(DestinationState(True, (DestinationEndpoint(authority.host, authority.port),)))
        )

    def _find(self, authority: Authority, client: DestinationClient) -> tuple[Found, bool, frozenset[str]]:
        """What a name leads to, whether that is final, and the services that it may mean."""
        services = frozenset(reading.service for reading in authority.readings)
        found = self._services.find(authority)
        if found is not None:
            return found, True, services
        cluster = find_cluster(authority, client.snapshot) if client.snapshot is not None else None
        if cluster is not None:
            return cluster, True, services
        if authority.grammar is Grammar.FOREIGN and not client.was_told:
            raise invalid(f"{authority.host!r:.200} is no name of this server, and no cluster of the client's group")
        return None, not self._services.is_unread(authority), services

    def _of_service(
        self,
        authority: Authority,
        found: FoundService,
        client: DestinationClient,
        generation: Generation,
        services: frozenset[str],
    ) -> StateAnswer:
        answer = self._services.endpoints(found, authority.port)
        depends = services | answer.services
        if not answer.is_settled and client.waits:
            return StateAnswer(None, depends, answer.skipped, f"service {found.service}")
        place = ClientPlace(
            client.zone, client.node, found.instance, self._services.is_node_only(found), self.rules.has_ipv6
        )
        labels = _labels(authority, generation, authority.service)
        state = self._shared(authority, answer.endpoints, place, labels)
        return StateAnswer(state, depends, answer.skipped, f"service {found.service}")

    def _of_cluster(
        self,
        authority: Authority,
        found: FoundCluster,
        client: DestinationClient,
        snapshot: Snapshot,
        generation: Generation,
        services: frozenset[str],
    ) -> StateAnswer:
        answer = cluster_endpoints(snapshot, found.name, self.rules)
        source = f"cluster {found.name}"
        if not answer.is_settled and client.waits:
            return StateAnswer(None, services, answer.found.skipped, source)
        place = ClientPlace(client.zone, client.node, has_ipv6=self.rules.has_ipv6)
        labels = _labels(authority, generation, found.name)
        state = self._shared(authority, answer.found.endpoints, place, labels)
        return StateAnswer(state, services, answer.found.skipped, source)

    def _shared(
        self, authority: Authority, endpoints: tuple[DestinationEndpoint, ...], place: ClientPlace, labels: Labels
    ) -> DestinationState:
        """The state for all clients of one place: the same object while the endpoints are the same."""
        if not endpoints:
            return _EMPTY
        return self._remembered.get(
            (authority.host, authority.port, place, labels), (endpoints,), partial(_state, endpoints, place, labels)
        )

    # GetProfile

    def profile(self, authority: Authority, client: DestinationClient) -> ProfileAnswer:
        """What `Destination.GetProfile` tells.

        Raises ``RemoteProtocolError``: INVALID_ARGUMENT for a name that is not ours, NOT_FOUND for an instance that a
        service does not have, FAILED_PRECONDITION for an address of several services.
        """
        answer = self._whole_profile(authority, client)
        if self.rules.profiles_route:
            return answer
        return replace(answer, profile=replace(answer.profile, routes=(), overrides=()), skipped=())

    def _whole_profile(self, authority: Authority, client: DestinationClient) -> ProfileAnswer:
        """The profile with its routes and overrides."""
        if authority.address is not None:
            return self._profile_of_address(authority, client)
        found, _, services = self._find(authority, client)
        name = authority.host if is_dns_name(authority.host) else ""
        if isinstance(found, FoundService):
            if found.instance:
                return self._profile_of_instance(found, authority, services)
            return self._service_profile(found, authority, name, str(authority), services)
        if isinstance(found, FoundCluster):
            assert client.snapshot is not None
            return self._cluster_profile(found, client.snapshot, authority, name, services)
        is_opaque = authority.port in self.rules.mesh.opaque_ports
        return ProfileAnswer(Profile(name, is_opaque), services, source="nothing")

    def _profile_of_instance(
        self, found: FoundService, authority: Authority, services: frozenset[str]
    ) -> ProfileAnswer:
        held = self._services.instance_endpoint(found, authority.port)
        if held is None:
            told = f"service {found.service!r} has neither a subset nor an instance {found.instance!r:.80}"
            raise RemoteProtocolError(StatusCode.NOT_FOUND, told)
        is_opaque = self._services.is_opaque(found.service, authority.port)
        profile = Profile(is_opaque=is_opaque, endpoint=held.endpoint, namespace=held.namespace)
        return ProfileAnswer(profile, services, source=f"instance {found.instance}")

    def _service_profile(
        self, found: FoundService, authority: Authority, name: str, own: str, services: frozenset[str]
    ) -> ProfileAnswer:
        rules = self._services.rules(found, authority, own)
        is_opaque = self._services.is_opaque(found.service, authority.port)
        subject = self._subject(found, authority)
        profile = Profile(name, is_opaque, rules.routes, DEFAULT_BUDGET, rules.overrides, subject=subject)
        policy = self._services.policy(found, authority, own)
        depends = services | {found.service}
        return ProfileAnswer(profile, depends, rules.skipped, f"service {found.service}", policy=policy)

    def _cluster_profile(
        self, found: FoundCluster, snapshot: Snapshot, authority: Authority, name: str, services: frozenset[str]
    ) -> ProfileAnswer:
        rules, budget = cluster_rules(snapshot, found, str(authority), authority.port, self.rules.naming)
        is_opaque = is_tcp_only(snapshot, found.name) or authority.port in self.rules.mesh.opaque_ports
        subject = Subject("envoy.config.cluster.v3", "Cluster", found.name, self.rules.naming.namespace, authority.port)
        profile = Profile(name, is_opaque, rules.routes, budget, rules.overrides, subject=subject)
        return ProfileAnswer(profile, services, rules.skipped, f"cluster {found.name}")

    def _subject(self, found: FoundService, authority: Authority) -> Subject:
        """Names of Kubernetes are about its Services, others about services of this server."""
        group = "core" if authority.grammar in (Grammar.KUBERNETES, Grammar.IP) else "xds"
        service, _, namespace = found.service.partition(".")
        return Subject(group, "Service", service, namespace or self.rules.naming.namespace, authority.port)

    # Addresses

    def _profile_of_address(self, authority: Authority, client: DestinationClient) -> ProfileAnswer:
        behind = self._behind(authority, client)
        if behind is not None:
            return behind
        held = self._addresses.endpoint(authority, client.snapshot)
        is_opaque = self._addresses.is_opaque(authority)
        profile = Profile(is_opaque=is_opaque, endpoint=held.endpoint, namespace=held.namespace)
        return ProfileAnswer(profile, source=held.source, address=authority.host)

    def _behind(self, authority: Authority, client: DestinationClient) -> ProfileAnswer | None:
        """The profile of the service or the cluster behind an address; None where it has neither."""
        services = self._addresses.services(authority)
        if len(services) > 1:
            told = f"{authority.host} is the virtual address of several services: {', '.join(services[:5])}"
            raise RemoteProtocolError(StatusCode.FAILED_PRECONDITION, told)
        if services:
            found = self._services.named(services[0])
            name = self._services.name(found.reading, Grammar.KUBERNETES)
            own = f"{name}:{authority.port}"
            alike = frozenset(self._services.alike(found.service))
            answer = self._service_profile(found, authority, name, own, alike)
            return _at_address(answer, authority)
        bound = bound_cluster(client.snapshot, authority.host, authority.port) if client.snapshot is not None else None
        if bound is None or client.snapshot is None:
            return None
        if not isinstance(bound, FoundCluster):
            told = f"several listeners are bound to {authority}"
            raise RemoteProtocolError(StatusCode.FAILED_PRECONDITION, told)
        name, _, port = name_cluster(self.rules.naming, authority.port, bound.name).rpartition(":")
        if port != str(authority.port):
            return None
        return _at_address(self._cluster_profile(bound, client.snapshot, authority, name, frozenset()), authority)

    # OutboundPolicies

    def outbound(self, authority: Authority, client: DestinationClient) -> tuple[OutboundRule, ProfileAnswer] | None:
        """The outbound policy of an address or a name, and the profile that it was made of; None while a service that
        was not read yet may have the address.

        Raises ``RemoteProtocolError``: NOT_FOUND where the proxy is to forward connections as they are, and as
        ``profile``.
        """
        is_address = authority.address is not None
        answer = self._behind(authority, client) if is_address else self._whole_profile(authority, client)
        if answer is None and client.starts and self._services.is_starting():
            return None
        if answer is None or answer.profile.endpoint is not None or not answer.profile.name:
            raise RemoteProtocolError(StatusCode.NOT_FOUND, f"there is no service at {authority}")
        profile = answer.profile
        subject = profile.subject or Subject(
            "xds", "Service", profile.name, self.rules.naming.namespace, authority.port
        )
        if answer.policy is not None:
            return OutboundRule(answer.policy.routes, subject, profile.is_opaque), replace(
                answer, skipped=answer.policy.skipped
            )
        routes = (plain_route(f"{profile.name}:{authority.port}", profile.overrides),)
        return OutboundRule(routes, subject, profile.is_opaque), answer


def _state(endpoints: tuple[DestinationEndpoint, ...], place: ClientPlace, labels: Labels) -> DestinationState:
    return DestinationState(True, filtered(endpoints, place), labels, place.zone)


def _labels(authority: Authority, generation: Generation, service: str) -> Labels:
    if generation is Generation.CONDUIT:
        return context_labels_2018(str(authority), authority.namespace)
    return context_labels(service, authority.namespace)


def _at_address(answer: ProfileAnswer, authority: Authority) -> ProfileAnswer:
    return replace(answer, address=authority.host)
