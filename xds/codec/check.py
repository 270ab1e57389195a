"""Checks over a whole push: what single resources cannot know."""

from __future__ import annotations

from collections.abc import Iterable

from xds.codec.findings import Findings
from xds.model.resource import Resource
from xds.model.resource_type import alias_of

RESOURCE_LIMIT = 4 * 1024 * 1024


def check_size(body: bytes, limit: int, findings: Findings) -> None:
    """A resource must fit into one response (DESIGN 5: 4 MiB)."""
    if len(body) > limit:
        findings.add("too_large", f"{len(body)} bytes; the limit is {limit}")


def check_unique(resources: Iterable[Resource], findings: Findings) -> None:
    """Within a type, a name or alias means one resource."""
    owners: dict[tuple[str, str], Resource] = {}
    aliases: list[tuple[str, Resource]] = []
    for resource in resources:
        findings.resource = resource_label(resource.type_url, resource.name)
        if owners.setdefault((resource.type_url, resource.name), resource) is not resource:
            findings.add("duplicate_name", "two resources of this type have this name")
        aliases += [(alias, resource) for alias in resource.aliases]
    for alias, resource in aliases:
        owner = owners.setdefault((resource.type_url, alias), resource)
        if owner is not resource and owner.name != resource.name:
            findings.resource = resource_label(resource.type_url, resource.name)
            findings.add("duplicate_alias", f"{alias!r} means {owner.name!r} too")


def resource_label(type_url: str, name: str) -> str:
    """How findings call a resource: ``clusters/c1``."""
    return f"{alias_of(type_url)}/{name}"
