"""The instances of one Service of Kubernetes, from the Service and all of its slices. Pure.

An endpoint may be in two slices at once while Kubernetes moves it, and slices that users write may name one address
with several ports. Entries of one address whose ports do not contradict each other are one instance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xds.model.errors import WARNING, Violation
from xds.model.node import Locality
from xds.services.core.instance import META_KEY_CHARACTERS, META_PAIRS, META_VALUE_CHARACTERS, Check, Health, Instance
from xds.services.source_settings import KubernetesSettings
from xds.services.sources.kubernetes_objects import IPV4, IPV6, TCP, Endpoint, EndpointSlice, Service, SlicePort

KIND = "kubernetes"
POD, NAMESPACE, HOSTNAME = "pod", "namespace", "hostname"  # keys of meta
# Kubernetes manages slices by these labels. They are not about instances.
_MANAGEMENT = ("kubernetes.io/service-name", "endpointslice.kubernetes.io/", "service.kubernetes.io/headless")
_OWN_PAIRS = 3
_FAMILIES = {"service": "", "ipv4": IPV4, "ipv6": IPV6}  # of the settings; empty: the first one of the Service


@dataclass(slots=True)
class _Entry:
    """One address with the merged data of all slices that have it."""

    endpoint: Endpoint
    labels: Mapping[str, str]
    ports: dict[str, SlicePort]

    def admits(self, ports: Iterable[SlicePort]) -> bool:
        """Whether no port of the entry has the same name and another number."""
        return all(self.ports.get(port.name, port).number == port.number for port in ports)


def service_instances(
    service: Service, slices: Iterable[EndpointSlice], settings: KubernetesSettings
) -> tuple[tuple[Instance, ...], list[Violation]]:
    """The instances in a fixed order, and findings about unusable endpoints."""
    violations: list[Violation] = []
    ordered = sorted(slices, key=lambda one: one.key.name)
    family = _family(service, ordered, _FAMILIES[settings.family], violations)
    entries = _entries(one for one in ordered if one.family == family)
    first = _first_port(service, entries)
    usable = [entry for entry in entries if first in entry.ports]
    violations += (_unusable(service, entry, first) for entry in entries if first not in entry.ports)
    ids = _ids(usable, first)
    hinted = settings.zone_hints and _all_hinted(usable)
    instances = tuple(
        _instance(one_id, service, entry, first, settings, hinted) for one_id, entry in zip(ids, usable, strict=True)
    )
    return instances, violations


def endpoint_health(endpoint: Endpoint) -> Health:
    """Draining while a terminating endpoint still serves; a Service may publish endpoints that are not ready."""
    if endpoint.is_terminating:
        return Health.DRAINING if endpoint.is_serving or endpoint.is_ready else Health.CRITICAL
    return Health.PASSING if endpoint.is_ready else Health.CRITICAL


# Endpoints


def _family(service: Service, slices: Sequence[EndpointSlice], wanted: str, violations: list[Violation]) -> str:
    """The address family whose endpoints are used. Endpoints of the other family are the same pods."""
    available = {one.family for one in slices if one.endpoints}
    if wanted:
        if available and wanted not in available:
            other = IPV6 if wanted == IPV4 else IPV4
            detail = f"the Service has {other} endpoints only, and the source uses {wanted}"
            violations.append(Violation("no_family", detail, pointer=f"/services/{service.key}", severity=WARNING))
        return wanted
    order = (*service.families, IPV4, IPV6)
    return next((each for each in order if each in available), order[0])


def _entries(slices: Iterable[EndpointSlice]) -> list[_Entry]:
    by_address: dict[str, list[_Entry]] = {}
    for one in slices:
        labels = _usable_labels(one.labels)
        for endpoint in one.endpoints:
            entries = by_address.setdefault(endpoint.address, [])
            same = next((entry for entry in entries if entry.admits(one.ports)), None)
            if same is None:
                entries.append(_Entry(endpoint, labels, {port.name: port for port in one.ports}))
                continue
            same.endpoint = _newer_endpoint(same.endpoint, endpoint)
            same.ports |= {port.name: port for port in one.ports}
    return [entry for address in sorted(by_address) for entry in by_address[address]]


def _newer_endpoint(one: Endpoint, other: Endpoint) -> Endpoint:
    """The present one of two entries of one address.

    Slices are written one after the other, so one of the two may be old. A terminating pod never becomes ready again.
    Of two pods, or of a pod and an endpoint without one, the ready one has the address.
    """
    if one.uid == other.uid and one.is_terminating is not other.is_terminating:
        return one if one.is_terminating else other
    ranks = (Health.PASSING, Health.DRAINING, Health.CRITICAL, Health.WARNING)
    return min(one, other, key=lambda each: ranks.index(endpoint_health(each)))


# Ports


def _first_port(service: Service, entries: Sequence[_Entry]) -> str:
    """The name of the main port: the first of the Service that an endpoint has; TCP ports count before UDP ports."""
    protocols: dict[str, str] = {}
    for entry in entries:
        for port in entry.ports.values():
            protocols.setdefault(port.name, port.protocol)
    names = [name for name in service.ports if name in protocols] or sorted(protocols)
    return next((name for name in names if protocols[name] == TCP), names[0] if names else "")


def _unusable(service: Service, entry: _Entry, first: str) -> Violation:
    endpoint = entry.endpoint.pod or entry.endpoint.address
    wanted = f"port {first!r}" if first else "port"
    detail = f"the endpoint {endpoint} has no {wanted}, which is that of the Service: it is left out"
    return Violation("no_port", detail, pointer=f"/services/{service.key}/endpoints/{entry.endpoint.address}")


# Instances


def _all_hinted(entries: Iterable[_Entry]) -> bool:
    """Whether every endpoint that gets requests has a hint. Otherwise hints do not count, as in kube-proxy."""
    ready = [entry.endpoint for entry in entries if endpoint_health(entry.endpoint) is Health.PASSING]
    return bool(ready) and all(endpoint.hints for endpoint in ready)


def _ids(entries: Sequence[_Entry], first: str) -> Iterator[str]:
    """The ids of instances: the pod's name, else the address; ADDRESS:PORT if several have the same."""
    names = [entry.endpoint.pod or entry.endpoint.address for entry in entries]
    counts = Counter(names)
    uses: Counter[str] = Counter()
    for name, entry in zip(names, entries, strict=True):
        one_id = name if counts[name] == 1 else f"{entry.endpoint.address}:{entry.ports[first].number}"
        uses[one_id] += 1
        yield one_id if uses[one_id] == 1 else f"{one_id}#{uses[one_id]}"


def _instance(
    one_id: str, service: Service, entry: _Entry, first: str, settings: KubernetesSettings, hinted: bool
) -> Instance:
    endpoint = entry.endpoint
    zone = _zone(endpoint) if hinted else endpoint.zone
    health = endpoint_health(endpoint)
    return Instance(
        id=one_id,
        address=endpoint.address,
        port=entry.ports[first].number,
        ports={port.name: port.number for port in entry.ports.values() if port.name},
        meta=_meta(service, entry),
        locality=Locality(settings.regions.get(zone, settings.region), zone),
        datacenter=settings.datacenter,
        node=endpoint.node,
        checks=(_CHECKS[health],),
        virtual_addresses=service.virtual_addresses,
    )


_CHECKS = {
    health: Check(KIND, health, "readiness", KIND, output)
    for health, output in (
        (Health.PASSING, "ready"),
        (Health.DRAINING, "terminating and serving"),
        (Health.CRITICAL, "not ready"),
    )
}


def _zone(endpoint: Endpoint) -> str:
    """The zone whose clients are to use the endpoint: its own zone if it is among the hints, else the first hint."""
    return endpoint.zone if endpoint.zone in endpoint.hints or not endpoint.hints else endpoint.hints[0]


def _meta(service: Service, entry: _Entry) -> dict[str, str]:
    """The labels of the slice, which include those of the Service, and the namespace, pod and host name."""
    own = {NAMESPACE: service.key.namespace, POD: entry.endpoint.pod, HOSTNAME: entry.endpoint.hostname}
    return {**entry.labels, **{key: value for key, value in own.items() if value}}


def _usable_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that are about the instance and within the limits of the catalog."""
    usable = [
        (key, value)
        for key, value in sorted(labels.items())
        if not key.startswith(_MANAGEMENT) and len(key) <= META_KEY_CHARACTERS and len(value) <= META_VALUE_CHARACTERS
    ]
    return dict(usable[: META_PAIRS - _OWN_PAIRS])
