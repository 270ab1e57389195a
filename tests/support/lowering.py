"""Upstreams and config entries as YAML, lowered; assignments from instances; the whole as reviewable YAML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from tests.support.chains import TRUST_DOMAIN, entries_of
from xds.codec.crosscheck import check_references
from xds.codec.render import render_resource
from xds.codec.resources import ResourceDecoder
from xds.mesh.core.chain.compile import compile_recorded
from xds.mesh.core.chain.index import ChainContext
from xds.mesh.core.entries.entry_set import ConfigEntries
from xds.mesh.core.lower.assignments import lower_priorities
from xds.mesh.core.lower.lowered import Lowered, LoweredAssignment, decode_lowered, merge_lowered
from xds.mesh.core.lower.lowering import lower_upstream
from xds.mesh.core.lower.upstream_context import UpstreamChain
from xds.mesh.core.lower.upstreams import Upstream, read_upstreams
from xds.model.errors import ValidationError, Violation
from xds.model.node import Locality
from xds.model.resource import Resource
from xds.services.core.binding import Binding, InstanceSelection
from xds.services.core.draining import ObservedInstance
from xds.services.core.endpoints import ServedEndpoint, by_address, endpoint_of, lower_endpoints
from xds.services.core.index import ServiceInstance
from xds.services.core.instance import Check, Health, Instance

Json = dict[str, Any]
Catalog = Mapping[str, Iterable[Instance]]
Selected = Iterable[tuple[Instance, Health]]

DATACENTER = "dc1"
_DECODER = ResourceDecoder()


def chain_of(upstream: Upstream, entries: ConfigEntries, *, has_partitions: bool = True) -> UpstreamChain:
    """The chain of an upstream. Raises ``ChainError``."""
    context = ChainContext(upstream.datacenter or DATACENTER, TRUST_DOMAIN, has_partitions)
    compiled = compile_recorded(context.request(upstream.service, entries, upstream.overrides))
    if compiled.chain is None:
        assert compiled.error is not None
        raise compiled.error
    return UpstreamChain(compiled.chain, frozenset(key for key in compiled.consulted if entries.get(key) is not None))


def lowered(document: object, entries: str | ConfigEntries = "", *, has_partitions: bool = True) -> Lowered:
    """What a document (YAML, or plain values) is lowered to, in the datacenter dc1.

    Raises ``ChainError``, and ``ValidationError`` with the findings of all upstreams.
    """
    given = read_upstreams(yaml.safe_load(document) if isinstance(document, str) else document)
    found = entries_of(entries) if isinstance(entries, str) else entries
    parts: list[Lowered] = []
    violations: list[Violation] = []
    for each in given.upstreams:
        chain = chain_of(each, found, has_partitions=has_partitions)
        try:
            parts.append(lower_upstream(each, chain, given.proxies, DATACENTER))
        except ValidationError as error:
            violations += error.violations
    if violations:
        raise ValidationError(violations)
    return merge_lowered(parts)


def lower_instances(name: str, instances: Selected, binding: Binding) -> Resource:
    """The assignment ``name`` with these instances and their health. Of two with one address the first one counts."""
    return lower_endpoints(name, by_address(_endpoints(instances, binding)).values())


def lower_assignment(assignment: LoweredAssignment, selected: Sequence[Selected]) -> Resource:
    """The assignment with the selected instances of each target, in the order of the targets."""
    pairs = zip(selected, assignment.targets, strict=True)
    return lower_priorities(assignment, [by_address(_endpoints(each, binding)).values() for each, binding in pairs])


def _endpoints(instances: Selected, binding: Binding) -> Iterable[ServedEndpoint]:
    endpoints = (endpoint_of(instance, health, binding) for instance, health in instances)
    return (one for one in endpoints if one is not None)


def decoded(found: Lowered) -> list[Resource]:
    """All resources as canonical bytes, without the assignments. Raises ``ValidationError``."""
    return [decode_lowered(one, _DECODER) for one in found.resources]


def assigned(assignment: LoweredAssignment, catalog: Catalog) -> Resource:
    """An assignment with the instances that its targets select, as the control plane serves it."""
    selected = []
    for target in assignment.targets:
        selection = InstanceSelection(target, DATACENTER)
        instances = (
            ServiceInstance("test", ObservedInstance(one, 0.0, 0.0)) for one in catalog.get(target.service, ())
        )
        selected.append([(one.instance, one.health) for one in selection.select(instances)])
    return lower_assignment(assignment, selected)


def served(found: Lowered, catalog: Catalog) -> list[Json]:
    """Everything that a client is served, in JSON."""
    bodies = [*decoded(found), *(assigned(one, catalog) for one in found.assignments.values())]
    return [render_resource(one) for one in bodies]


def findings(found: Lowered, catalog: Catalog) -> list[Violation]:
    """What the codec finds when everything is pushed as one snapshot: warnings, and findings between resources.

    Raises ``ValidationError``.
    """
    push = _DECODER.values({"resources": served(found, catalog)})
    return [*push.warnings, *check_references(push.resources)]


def instance(text: str) -> Instance:
    """``10.0.0.1:80 v1 dc2 warning``: an address, and in any order a version, a datacenter, a health, a zone.

    ``weight=5/0`` are the weights for passing and for warning.
    """
    place, *words = text.split()
    address, _, port = place.rpartition(":")
    fields: Json = {"id": place, "address": address, "port": int(port)}
    for word in words:
        if word in set(Health):
            fields["checks"] = (Check("c", Health(word)),)
        elif word.startswith("weight="):
            weights = word.removeprefix("weight=").split("/")
            fields["weight"], fields["warning_weight"] = map(int, weights)
        elif word.startswith("zone="):
            fields["locality"] = Locality("r1", word.removeprefix("zone="))
        else:
            fields |= {"datacenter": word} if word.startswith("dc") else {"meta": {"version": word}}
    return Instance(**fields)


def catalog_of(services: Mapping[str, Iterable[str]]) -> Catalog:
    """Instances by service, each as a text."""
    return {name: [instance(each) for each in texts] for name, texts in services.items()}


def golden_text(found: Lowered, catalog: Catalog) -> str:
    """Everything that an Envoy would be served, rendered from the bytes, with its origin."""
    resources = [
        {
            "upstreams": list(one.upstreams),
            "entries": ["/".join(key) for key in one.entries],
            "resource": render_resource(body),
        }
        for one, body in zip(found.resources, decoded(found), strict=True)
    ]
    assignments = [
        {
            "targets": [{"priority": priority, **one.document()} for priority, one in enumerate(each.targets)],
            "resource": render_resource(assigned(each, catalog)),
        }
        for each in found.assignments.values()
    ]
    whole: Json = {"resources": resources, "assignments": assignments}
    if found.warnings:
        whole["warnings"] = [_warning(one) for one in found.warnings]
    return yaml.dump(whole, Dumper=_Dumper, sort_keys=False, width=110)


def _warning(one: Violation) -> str:
    return f"{one.code}: {one}"


class _Dumper(yaml.SafeDumper):
    """Without anchors: a part that occurs twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
