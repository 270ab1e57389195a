"""Checks over a whole push: what single resources cannot know."""

from __future__ import annotations

from collections.abc import Mapping

from xds.codec.findings import Findings
from xds.model.resource import Resource

RESOURCE_LIMIT = 4 * 1024 * 1024


def check_size(body: bytes, limit: int, findings: Findings) -> None:
    """A resource must fit into one response (DESIGN 5: 4 MiB)."""
    if len(body) > limit:
        findings.add("too_large", f"{len(body)} bytes; the limit is {limit}")


def check_unique(resources: Mapping[int, Resource], findings: Findings) -> None:
    """Within a type, a name or alias means one resource. ``resources`` by their position in the push."""
    owners: dict[tuple[str, str], int] = {}
    for index, resource in resources.items():
        owner = owners.setdefault((resource.type_url, resource.name), index)
        if owner != index:
            _note(findings, index, resource, "duplicate_name", "two resources of this type have this name", owner)
    for index, resource in resources.items():
        for alias in resource.aliases:
            owner = owners.setdefault((resource.type_url, alias), index)
            if owner != index and resources[owner].name != resource.name:
                detail = f"{alias!r} means {resources[owner].name!r} too"
                _note(findings, index, resource, "duplicate_alias", detail, owner)


def _note(findings: Findings, index: int, resource: Resource, code: str, detail: str, other: int) -> None:
    findings.turn_to(index)
    findings.name_resource(resource.type_url, resource.name)
    findings.add(code, detail, hint=f"the other one is resources[{other}]")
