"""Answers to requests: the state of a destination, its profile and its outbound policy.

A name is looked up among the services of the catalog, then among the clusters and virtual hosts of the client's group.
An address is that of a service, of a listener, or of an endpoint. There is no state per stream here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from xds.linkerd.core.address_lookup import AddressLookup
from xds.linkerd.core.authority import Authority, Grammar, ProtocolGeneration, invalid
from xds.linkerd.core.cluster_lookup import (
    FoundCluster,
    bound_cluster,
    cluster_endpoints,
    cluster_rules,
    find_cluster,
    is_dns_name,
    is_tcp_only,
    name_cluster,
)
from xds.linkerd.core.endpoint import DestinationEndpoint, DestinationState, EndpointFilter, Labels, select_endpoints
from xds.linkerd.core.mesh_state import DestinationClient, DestinationRules, IdentityCache, MeshState
from xds.linkerd.core.outbound_policy import OutboundRule, PolicyRules, plain_route
from xds.linkerd.core.profile import Profile, Subject
from xds.linkerd.core.service_lookup import FoundService, ServiceLookup
from xds.linkerd.core.update_messages import context_labels, context_labels_2018
from xds.model.errors import RemoteProtocolError, StatusCode
from xds.model.snapshot import Snapshot

Found = FoundService | FoundCluster | None

_ABSENT = DestinationState(False)
_EMPTY = DestinationState(True)


@dataclass(frozen=True, slots=True)
class StateAnswer:
    """The state of a destination; None while it is not known. It depends on ``services``, besides the client's group.

    ``source`` is the origin of the answer. ``skipped`` lists parts that Linkerd's API cannot express, with reasons.
    """

    state: DestinationState | None
    services: frozenset[str] = frozenset()
    skipped: tuple[str, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class ProfileAnswer:
    """A profile. It depends on ``address``, if that is not empty; other fields are as in `StateAnswer`.

    ``policy`` has the routes for an outbound policy of the same service; None if a plain route is enough.
    """

    profile: Profile
    services: frozenset[str] = frozenset()
    skipped: tuple[str, ...] = ()
    source: str = ""
    address: str = ""
    policy: PolicyRules | None = None


class DestinationResolver:
    """Answers for the clients of one server."""

    def __init__(self, mesh_state: MeshState, rules: DestinationRules) -> None:
        self.rules = rules
        self._services = ServiceLookup(mesh_state, rules)
        self._addresses = AddressLookup(mesh_state, rules)
        self._cache = IdentityCache()

    # Get

    def state(self, authority: Authority, client: DestinationClient, generation: ProtocolGeneration) -> StateAnswer:
        """The answer of `Destination.Get`. Raises ``RemoteProtocolError`` for a foreign name that no cluster has."""
        if authority.address is not None:
            return self._address_state(authority)
        subject, is_settled, services = self._find(authority, client)
        if isinstance(subject, FoundService):
            found, source = self._services.endpoints(subject, authority.port), f"service {subject.service}"
            instance, label = subject.instance, authority.service
            node_only = self._services.is_node_only(subject)
        elif isinstance(subject, FoundCluster):
            assert client.snapshot is not None
            found, source = cluster_endpoints(client.snapshot, subject.name, self.rules), f"cluster {subject.name}"
            instance, label, node_only = "", subject.name, False
        else:
            waits = client.waits or (self._services.is_starting() and not client.has_answer)
            is_awaited = not is_settled and waits
            return StateAnswer(None if is_awaited else _ABSENT, services)
        services |= found.services
        if not found.is_settled and client.waits:
            return StateAnswer(None, services, found.skipped, source)
        endpoint_filter = EndpointFilter(client.zone, client.node, instance, node_only, self.rules.has_ipv6)
        state = self._shared(authority, found.endpoints, endpoint_filter, _labels(authority, generation, label))
        return StateAnswer(state, services, found.skipped, source)

    def _address_state(self, authority: Authority) -> StateAnswer:
        """The requested address as the only endpoint. Only clients of 2018 may request addresses."""
        key = ("echo", authority)
        return self._cache.get(
            key, (), lambda: StateAnswer(DestinationState(True, (DestinationEndpoint(authority.host, authority.port),)))
        )

    def _find(self, authority: Authority, client: DestinationClient) -> tuple[Found, bool, frozenset[str]]:
        """The service or cluster that a name leads to, whether that is final, and the services that it may mean."""
        services = frozenset(reading.service for reading in authority.candidates)
        service = self._services.find(authority)
        if service is not None:
            return service, True, services
        cluster = find_cluster(authority, client.snapshot) if client.snapshot is not None else None
        if cluster is not None:
            return cluster, True, services
        if authority.grammar is Grammar.FOREIGN and not client.has_answer:
            raise invalid(
                f"{authority.host!r:.200} is neither a name of this server nor a cluster of the client's group"
            )
        return None, not self._services.is_unread(authority), services

    def _shared(
        self,
        authority: Authority,
        endpoints: tuple[DestinationEndpoint, ...],
        endpoint_filter: EndpointFilter,
        labels: Labels,
    ) -> DestinationState:
        """The state for all clients with this filter and these labels; reused while endpoints stay the same."""
        if not endpoints:
            return _EMPTY
        return self._cache.get(
            (authority.host, authority.port, endpoint_filter, labels),
            (endpoints,),
            partial(_state, endpoints, endpoint_filter, labels),
        )

    # GetProfile

    def profile(self, authority: Authority, client: DestinationClient) -> ProfileAnswer:
        """The answer of `Destination.GetProfile`.

        Raises ``RemoteProtocolError``: INVALID_ARGUMENT for a foreign name that no cluster has, NOT_FOUND for an
        instance that a service does not have, FAILED_PRECONDITION for an address of several services.
        """
        answer = self._whole_profile(authority, client)
        if self.rules.profiles_route:
            return answer
        return replace(answer, profile=replace(answer.profile, routes=(), overrides=()), skipped=())

    def _whole_profile(self, authority: Authority, client: DestinationClient) -> ProfileAnswer:
        """The profile with its routes and overrides."""
        if authority.address is not None:
            return self._address_profile(authority, client)
        subject, _, services = self._find(authority, client)
        name = authority.host if is_dns_name(authority.host) else ""
        if isinstance(subject, FoundService):
            if subject.instance:
                return self._instance_profile(subject, authority, services)
            return self._service_profile(subject, authority, name, str(authority), services)
        if isinstance(subject, FoundCluster):
            assert client.snapshot is not None
            return self._cluster_profile(subject, client.snapshot, authority, name, services)
        is_opaque = authority.port in self.rules.mesh.opaque_ports
        return ProfileAnswer(Profile(name, is_opaque, budget=self.rules.budget), services, source="nothing")

    def _instance_profile(self, service: FoundService, authority: Authority, services: frozenset[str]) -> ProfileAnswer:
        single = self._services.instance_endpoint(service, authority.port)
        if single is None:
            detail = f"service {service.service!r} has neither a subset nor an instance {service.instance!r:.80}"
            raise RemoteProtocolError(StatusCode.NOT_FOUND, detail)
        is_opaque = self._services.is_opaque(service.service, authority.port)
        profile = self._endpoint_profile(single.endpoint, single.namespace, is_opaque)
        return ProfileAnswer(profile, services, source=f"instance {service.instance}")

    def _endpoint_profile(self, endpoint: DestinationEndpoint, namespace: str, is_opaque: bool) -> Profile:
        budget = self.rules.budget
        return Profile(is_opaque=is_opaque, budget=budget, endpoint=endpoint, namespace=namespace)

    def _service_profile(
        self, service: FoundService, authority: Authority, name: str, own: str, services: frozenset[str]
    ) -> ProfileAnswer:
        rules = self._services.rules(service, authority, own)
        is_opaque = self._services.is_opaque(service.service, authority.port)
        subject = self._subject(service, authority)
        profile = Profile(name, is_opaque, rules.routes, self.rules.budget, rules.overrides, subject=subject)
        policy = self._services.policy(service, authority, own)
        depends = services | {service.service}
        return ProfileAnswer(profile, depends, rules.skipped, f"service {service.service}", policy=policy)

    def _cluster_profile(
        self, cluster: FoundCluster, snapshot: Snapshot, authority: Authority, name: str, services: frozenset[str]
    ) -> ProfileAnswer:
        rules, budget = cluster_rules(snapshot, cluster, str(authority), authority.port, self.rules)
        is_opaque = is_tcp_only(snapshot, cluster.name) or authority.port in self.rules.mesh.opaque_ports
        subject = Subject(
            "envoy.config.cluster.v3", "Cluster", cluster.name, self.rules.naming.namespace, authority.port
        )
        profile = Profile(name, is_opaque, rules.routes, budget, rules.overrides, subject=subject)
        return ProfileAnswer(profile, services, rules.skipped, f"cluster {cluster.name}")

    def _subject(self, named: FoundService, authority: Authority) -> Subject:
        """The subject of a profile: a Kubernetes Service for Kubernetes names, else a service of this server."""
        group = "core" if authority.grammar in (Grammar.KUBERNETES, Grammar.IP) else "xds"
        service, _, namespace = named.service.partition(".")
        return Subject(group, "Service", service, namespace or self.rules.naming.namespace, authority.port)

    # Addresses

    def _address_profile(self, authority: Authority, client: DestinationClient) -> ProfileAnswer:
        behind = self._profile_behind(authority, client)
        if behind is not None:
            return behind
        single = self._addresses.endpoint(authority, client.snapshot)
        is_opaque = self._addresses.is_opaque(authority)
        profile = self._endpoint_profile(single.endpoint, single.namespace, is_opaque)
        return ProfileAnswer(profile, source=single.source, address=authority.host)

    def _profile_behind(self, authority: Authority, client: DestinationClient) -> ProfileAnswer | None:
        """The profile of the service or the cluster behind an address; None if there is neither."""
        services = self._addresses.services(authority)
        if len(services) > 1:
            detail = f"{authority.host} is the virtual address of several services: {', '.join(services[:5])}"
            raise RemoteProtocolError(StatusCode.FAILED_PRECONDITION, detail)
        if services:
            service = self._services.named(services[0])
            name = self._services.name(service.candidate, Grammar.KUBERNETES)
            own = f"{name}:{authority.port}"
            alike = frozenset(self._services.alike(service.service))
            answer = self._service_profile(service, authority, name, own, alike)
            return _at_address(answer, authority)
        bound = bound_cluster(client.snapshot, authority.host, authority.port) if client.snapshot is not None else None
        if bound is None or client.snapshot is None:
            return None
        if not isinstance(bound, FoundCluster):
            detail = f"several listeners are bound to {authority}"
            raise RemoteProtocolError(StatusCode.FAILED_PRECONDITION, detail)
        name, _, port = name_cluster(self.rules.naming, authority.port, bound.name).rpartition(":")
        if port != str(authority.port):
            return None
        return _at_address(self._cluster_profile(bound, client.snapshot, authority, name, frozenset()), authority)

    # OutboundPolicies

    def outbound(self, authority: Authority, client: DestinationClient) -> tuple[OutboundRule, ProfileAnswer] | None:
        """The outbound policy of an address or a name, and the profile from which it was made.

        None while a service that was not read yet may have the address. Raises ``RemoteProtocolError``: NOT_FOUND if
        the proxy is to forward connections unchanged, and the errors of ``profile``.
        """
        is_address = authority.address is not None
        answer = self._profile_behind(authority, client) if is_address else self._whole_profile(authority, client)
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


def _state(
    endpoints: tuple[DestinationEndpoint, ...], endpoint_filter: EndpointFilter, labels: Labels
) -> DestinationState:
    return DestinationState(True, select_endpoints(endpoints, endpoint_filter), labels, endpoint_filter.zone)


def _labels(authority: Authority, generation: ProtocolGeneration, service: str) -> Labels:
    if generation is ProtocolGeneration.CONDUIT:
        return context_labels_2018(str(authority), authority.namespace)
    return context_labels(service, authority.namespace)


def _at_address(answer: ProfileAnswer, authority: Authority) -> ProfileAnswer:
    return replace(answer, address=authority.host)
