"""The results of lowering: resources with their origins, and assignments as selections of instances. Pure.

Every resource has the upstreams and config entries that it comes from, and for its parts their places in the entries.
So a finding in a resource is reported at its entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from xds.codec.findings import FieldPath, json_pointer, parse_pointer, resource_label
from xds.codec.naming import TYPE_KEY
from xds.codec.resources import ResourceDecoder
from xds.mesh.core.entries.entry import WrittenKey
from xds.model.errors import ValidationError, Violation
from xds.model.resource import Resource
from xds.services.core.binding import Binding

Json = dict[str, Any]

_AGGREGATE = "cluster_type"  # the field that only aggregate clusters have
_POLICIES = "load_balancing_policy"  # the field that only clusters for gRPC clients have
UPSTREAM = "upstream"  # the kind of a place in an upstreams document


@dataclass(frozen=True, slots=True)
class EntryPlace:
    """A part of a resource (``path``) that comes from a part of an entry (``entry_path``).

    ``kind`` and ``name`` are those of a config entry, or ``upstream`` and the name of an upstream.
    """

    path: FieldPath
    kind: str
    name: str
    entry_path: FieldPath = ()


@dataclass(frozen=True, slots=True)
class LoweredResource:
    """One resource. ``content`` is its JSON in proto field names, without its type.

    It comes from the named ``upstreams`` and the config ``entries``, both ordered.
    """

    type_url: str
    name: str
    content: Json
    upstreams: tuple[str, ...]
    entries: tuple[WrittenKey, ...] = ()
    places: tuple[EntryPlace, ...] = ()

    @property
    def label(self) -> str:
        """The resource in messages: ``clusters/web``."""
        return resource_label(self.type_url, self.name)

    @property
    def value(self) -> Json:
        """The resource as it can be pushed."""
        return {TYPE_KEY: self.type_url, **self.content}


@dataclass(frozen=True, slots=True)
class LoweredAssignment:
    """The assignment of a cluster. ``targets`` are the selections of instances of its priorities, in order.

    ``is_member``: the cluster is a member of an aggregate cluster, so another cluster may follow it.
    """

    name: str
    targets: tuple[Binding, ...]
    upstreams: tuple[str, ...] = ()
    entries: tuple[WrittenKey, ...] = ()
    is_member: bool = False


@dataclass(frozen=True, slots=True)
class Lowered:
    """The result of lowering some upstreams. ``resources`` are ordered by type URL and name, and unique."""

    resources: tuple[LoweredResource, ...] = ()
    assignments: Mapping[str, LoweredAssignment] = field(default_factory=dict)
    warnings: tuple[Violation, ...] = ()


_Named = TypeVar("_Named", LoweredResource, LoweredAssignment)


def merge_lowered(parts: Iterable[Lowered]) -> Lowered:
    """Merge the results of several upstreams. Equal resources become one.

    Raises ``ValidationError`` for resources and assignments that have the same name and different content.
    """
    resources: dict[tuple[str, str], LoweredResource] = {}
    assignments: dict[str, LoweredAssignment] = {}
    warnings: dict[Violation, None] = {}
    clashes: list[Violation] = []
    for part in parts:
        warnings.update(dict.fromkeys(part.warnings))
        for one in part.resources:
            other = resources.get((one.type_url, one.name))
            if other is not None and other.content != one.content:
                clashes.append(_clash(one.label, other.upstreams, one.upstreams, other.content, one.content))
            else:
                resources[one.type_url, one.name] = one if other is None else _with_origins(other, one)
        for name, each in part.assignments.items():
            previous = assignments.get(name)
            if previous is not None and (previous.targets, previous.is_member) != (each.targets, each.is_member):
                clashes.append(_clash(f"endpoints/{name}", previous.upstreams, each.upstreams))
            else:
                assignments[name] = each if previous is None else _with_origins(previous, each)
    if clashes:
        raise ValidationError(clashes)
    ordered = tuple(resources[key] for key in sorted(resources))
    return Lowered(ordered, {name: assignments[name] for name in sorted(assignments)}, tuple(warnings))


def _clash(label: str, first: Iterable[str], second: Iterable[str], *contents: Json) -> Violation:
    one, two = next(iter(first)), next(iter(second))
    detail = f"upstreams {one!r} and {two!r} both make {label}, with different content"
    hint = "give both the same limits, passive health check and escape hatches"
    if len({_AGGREGATE in content for content in contents}) > 1:
        hint = "one is for gRPC clients without a proxy, which have no aggregate clusters: set failover to priority"
    elif len({_POLICIES in content for content in contents}) > 1:
        hint = "one is for gRPC clients without a proxy, which get another load balancing policy: use a group for each"
    return Violation("lowered_clash", detail, f"{UPSTREAM}/{two}", hint=hint)


def _with_origins(one: _Named, other: _Named) -> _Named:
    """One of two equal parts, with the origins of both. It is that of the first upstream by name in any order."""
    first = min((one, other), key=lambda each: each.upstreams)
    upstreams = tuple(sorted({*one.upstreams, *other.upstreams}))
    return replace(first, upstreams=upstreams, entries=tuple(sorted({*one.entries, *other.entries})))


def decode_lowered(lowered: LoweredResource, decoder: ResourceDecoder) -> Resource:
    """The resource as canonical bytes. Raises ``ValidationError``; findings name the entry and the place in it."""
    try:
        return decoder.resource(lowered.value)
    except ValidationError as error:
        raise ValidationError([finding_at_entry(one, lowered) for one in error.violations]) from None


def finding_at_entry(finding: Violation, lowered: LoweredResource) -> Violation:
    """A finding in a lowered resource as a finding in the entry from which the part comes."""
    path = parse_pointer(finding.pointer)
    matching = [one for one in lowered.places if path[: len(one.path)] == tuple(map(str, one.path))]
    where = f"in {lowered.label}{finding.pointer}, made of upstream {lowered.upstreams[0]!r}"
    hint = f"{finding.hint}; {where}" if finding.hint else where
    if not matching:
        return replace(finding, resource=lowered.label, hint=hint)
    best = max(matching, key=lambda one: len(one.path))
    return replace(finding, resource=f"{best.kind}/{best.name}", pointer=json_pointer(best.entry_path), hint=hint)
