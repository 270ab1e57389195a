"""The Services and EndpointSlices of a cluster, and the catalog services made from them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from xds.model.errors import Violation
from xds.services.core.instance import Instance
from xds.services.source_settings import KubernetesSettings
from xds.services.sources.kubernetes_instances import service_instances
from xds.services.sources.kubernetes_objects import (
    EXTERNAL_NAME,
    SERVICES,
    Collection,
    EndpointSlice,
    ObjectKey,
    Service,
)

EXCESS_LIMIT = 20  # findings about objects that a limit left out


def service_name(key: ObjectKey) -> str:
    """The name in the catalog, ``NAME.NAMESPACE``: neither part has a dot."""
    return f"{key.name}.{key.namespace}"


class KubernetesView:
    """Services and slices by key, within limits; endpoints count in both families of dual-stack Services.

    Keys of changed Services are collected until ``take_changed``.
    """

    def __init__(self, settings: KubernetesSettings) -> None:
        self._settings = settings
        self._services: dict[ObjectKey, Service] = {}
        self._slices: dict[ObjectKey, EndpointSlice] = {}
        self._slices_of: dict[ObjectKey, dict[ObjectKey, EndpointSlice]] = {}  # by the key of the Service
        self._endpoints = 0
        self._changed: dict[ObjectKey, None] = {}  # in the order of the changes
        self._excess: list[Violation] = []
        # Findings of Services and slices without instances. Other findings come with the instances.
        self._service_findings: dict[ObjectKey, tuple[Violation, ...]] = {}
        self._stray_slice_findings: dict[ObjectKey, tuple[Violation, ...]] = {}

    # Changes

    def put_service(self, service: Service) -> None:
        """Add or change a Service."""
        key = service.key
        if self._services.get(key) == service:
            return
        if key not in self._services and len(self._services) >= self._settings.services_limit:
            detail = f"more than {self._settings.services_limit} Services: it is left out"
            self._leave_out(Violation("too_many", detail, pointer=f"/services/{key}"))
            return
        self._services[key] = service
        self._changed[key] = None
        _set_findings(self._service_findings, key, service.findings)

    def _remove_service(self, key: ObjectKey) -> None:
        if self._services.pop(key, None) is not None:
            self._changed[key] = None
            self._service_findings.pop(key, None)

    def put_slice(self, one: EndpointSlice) -> None:
        """Add or change a slice. It may have moved to another Service."""
        previous = self._slices.get(one.key)
        if previous == one:
            return
        added = len(one.endpoints) - (len(previous.endpoints) if previous is not None else 0)
        if added > 0 and self._endpoints + added > self._settings.endpoints_limit:
            detail = f"more than {self._settings.endpoints_limit} endpoints: this state of the slice is left out"
            self._leave_out(Violation("too_many", detail, pointer=f"/endpointslices/{one.key}"))
            return
        self._remove_slice(one.key)
        self._slices[one.key] = one
        self._endpoints += len(one.endpoints)
        _set_findings(self._stray_slice_findings, one.key, one.findings if not one.service else ())
        owner = ObjectKey(one.key.namespace, one.service)
        self._slices_of.setdefault(owner, {})[one.key] = one
        self._changed[owner] = None

    def _remove_slice(self, key: ObjectKey) -> None:
        removed = self._slices.pop(key, None)
        if removed is None:
            return
        self._endpoints -= len(removed.endpoints)
        self._stray_slice_findings.pop(key, None)
        owner = ObjectKey(key.namespace, removed.service)
        slices = self._slices_of[owner]
        del slices[key]
        if not slices:
            del self._slices_of[owner]
        self._changed[owner] = None

    def remove(self, collection: Collection[Any], key: ObjectKey) -> None:
        """Remove an object."""
        (self._remove_service if collection is SERVICES else self._remove_slice)(key)

    def keep(self, collection: Collection[Any], namespace: str, keys: frozenset[ObjectKey]) -> None:
        """Remove the objects of the namespace (empty: of all) that are not among the keys."""
        present = self._services if collection is SERVICES else self._slices
        for key in [key for key in present if key not in keys and namespace in ("", key.namespace)]:
            self.remove(collection, key)

    # Results

    def take_changed(self) -> list[ObjectKey]:
        """The keys of the Services that may have changed since the last call."""
        changed, self._changed = list(self._changed), {}
        return changed

    @property
    def has_changed(self) -> bool:
        """Whether ``take_changed`` would return a key."""
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
        """The instances of a present Service, and findings about its unusable parts."""
        slices = self._slices_of.get(key, {}).values()
        instances, violations = service_instances(self._services[key], slices, self._settings)
        return instances, [*violations, *(each for one in slices for each in one.findings)]

    def findings(self) -> Iterator[Violation]:
        """Findings of no present Service: external names, slices without a Service, objects beyond the limits."""
        yield from chain.from_iterable(chain(self._service_findings.values(), self._stray_slice_findings.values()))
        yield from self._excess

    def forget_excess(self, prefix: str) -> None:
        """Forget the findings about left-out objects with this prefix. A new list adds them again if needed."""
        self._excess = [each for each in self._excess if not each.pointer.startswith(prefix)]

    def _leave_out(self, finding: Violation) -> None:
        if len(self._excess) < EXCESS_LIMIT:
            self._excess.append(finding)


def _set_findings(
    by_key: dict[ObjectKey, tuple[Violation, ...]], key: ObjectKey, findings: tuple[Violation, ...]
) -> None:
    if findings:
        by_key[key] = findings
    else:
        by_key.pop(key, None)
