"""What is known of the Services and EndpointSlices of a cluster, and the services of the catalog that follow. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from xds.catalog.instance import Instance
from xds.model.errors import Violation
from xds.sources.kubernetes_instances import InstanceRules, service_instances
from xds.sources.kubernetes_objects import EXTERNAL_NAME, EndpointSlice, ObjectKey, Service

EXCESS_KEPT = 20  # findings of what a limit left out


@dataclass(frozen=True, slots=True)
class ViewLimits:
    """What is kept at most, in memory. The endpoints are those of both families of dual-stack Services."""

    services: int = 20_000
    endpoints: int = 400_000


def service_name(key: ObjectKey) -> str:
    """The name in the catalog, ``NAME.NAMESPACE``: neither part has a dot."""
    return f"{key.name}.{key.namespace}"


class KubernetesView:
    """Services and slices by key. What changes is noted until ``take_changed``."""

    def __init__(self, rules: InstanceRules | None = None, limits: ViewLimits | None = None) -> None:
        self._rules = rules or InstanceRules()
        self._limits = limits or ViewLimits()
        self._services: dict[ObjectKey, Service] = {}
        self._slices: dict[ObjectKey, EndpointSlice] = {}
        self._slices_of: dict[ObjectKey, dict[ObjectKey, EndpointSlice]] = {}  # by the key of the Service
        self._endpoints = 0
        self._changed: dict[ObjectKey, None] = {}  # in the order of the changes
        self._excess: list[Violation] = []
        # Of Services and slices that give no instances. Others tell theirs with the instances.
        self._apart: dict[ObjectKey, tuple[Violation, ...]] = {}
        self._strays: dict[ObjectKey, tuple[Violation, ...]] = {}

    # Changes

    def put_service(self, service: Service) -> None:
        """A Service is there, or has changed."""
        key = service.key
        if self._services.get(key) == service:
            return
        if key not in self._services and len(self._services) >= self._limits.services:
            detail = f"more than {self._limits.services} Services: it is left out"
            self._leave_out(Violation("too_many", detail, pointer=f"/services/{key}"))
            return
        self._services[key] = service
        self._changed[key] = None
        _note(self._apart, key, service.findings)

    def remove_service(self, key: ObjectKey) -> None:
        """A Service is gone."""
        if self._services.pop(key, None) is not None:
            self._changed[key] = None
            self._apart.pop(key, None)

    def put_slice(self, one: EndpointSlice) -> None:
        """A slice is there, or has changed; it may have moved to another Service."""
        before = self._slices.get(one.key)
        if before == one:
            return
        more = len(one.endpoints) - (len(before.endpoints) if before is not None else 0)
        if more > 0 and self._endpoints + more > self._limits.endpoints:
            detail = f"more than {self._limits.endpoints} endpoints: this state of the slice is left out"
            self._leave_out(Violation("too_many", detail, pointer=f"/endpointslices/{one.key}"))
            return
        self.remove_slice(one.key)
        self._slices[one.key] = one
        self._endpoints += len(one.endpoints)
        _note(self._strays, one.key, one.findings if not one.service else ())
        owner = ObjectKey(one.key.namespace, one.service)
        self._slices_of.setdefault(owner, {})[one.key] = one
        self._changed[owner] = None

    def remove_slice(self, key: ObjectKey) -> None:
        """A slice is gone."""
        gone = self._slices.pop(key, None)
        if gone is None:
            return
        self._endpoints -= len(gone.endpoints)
        self._strays.pop(key, None)
        owner = ObjectKey(key.namespace, gone.service)
        slices = self._slices_of[owner]
        del slices[key]
        if not slices:
            del self._slices_of[owner]
        self._changed[owner] = None

    def keep_services(self, namespace: str, keys: frozenset[ObjectKey]) -> None:
        """Remove the Services of the namespace (empty: of all) that are not among the keys."""
        for key in [key for key in self._services if key not in keys and namespace in ("", key.namespace)]:
            self.remove_service(key)

    def keep_slices(self, namespace: str, keys: frozenset[ObjectKey]) -> None:
        """Remove the slices of the namespace (empty: of all) that are not among the keys."""
        for key in [key for key in self._slices if key not in keys and namespace in ("", key.namespace)]:
            self.remove_slice(key)

    # What follows

    def take_changed(self) -> list[ObjectKey]:
        """The keys of the Services that may have changed since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

    @property
    def has_changed(self) -> bool:
        """Whether ``take_changed`` has anything."""
        return bool(self._changed)

    @property
    def keys(self) -> list[ObjectKey]:
        """The keys of the Services that have instances, or could have."""
        return [key for key, service in self._services.items() if service.type != EXTERNAL_NAME]

    def is_present(self, key: ObjectKey) -> bool:
        """Whether there is a Service that has instances, or could have."""
        service = self._services.get(key)
        return service is not None and service.type != EXTERNAL_NAME

    def instances(self, key: ObjectKey) -> tuple[tuple[Instance, ...], list[Violation]]:
        """The instances of a Service that is present, and what of it cannot be used."""
        slices = self._slices_of.get(key, {}).values()
        instances, found = service_instances(self._services[key], slices, self._rules)
        return instances, [*found, *(each for one in slices for each in one.findings)]

    def findings(self) -> Iterator[Violation]:
        """What belongs to no Service that is present: names outside of the cluster, slices without Service, excess."""
        yield from chain.from_iterable(chain(self._apart.values(), self._strays.values()))
        yield from self._excess

    def forget_excess(self, place: str) -> None:
        """A new list of the objects in ``place`` begins: it brings what a limit left out, or has it left out again."""
        self._excess = [each for each in self._excess if not each.pointer.startswith(place)]

    def _leave_out(self, finding: Violation) -> None:
        if len(self._excess) < EXCESS_KEPT:
            self._excess.append(finding)


def _note(notes: dict[ObjectKey, tuple[Violation, ...]], key: ObjectKey, findings: tuple[Violation, ...]) -> None:
    if findings:
        notes[key] = findings
    else:
        notes.pop(key, None)
