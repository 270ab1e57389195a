"""Problems of a binding in its group and the catalog. Those that a later push or source may end are warnings."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from xds.model.errors import WARNING, ValidationError, Violation
from xds.model.resource_type import CLUSTER
from xds.push.content import GroupContent
from xds.services.bindings import BoundAssignment
from xds.services.catalog import ServiceCatalog
from xds.snapshots.resource_lookup import assignment_name

_COMPARED_LIMIT = 2_000  # names


def check_assignment(content: GroupContent | None, name: str) -> None:
    """Raises ``ValidationError`` if a cluster has this name and takes its endpoints from another assignment."""
    cluster = content.get((CLUSTER, name)) if content is not None else None
    own = assignment_name(cluster)
    if own and own != name:
        detail = f"cluster {name!r} takes its endpoints from assignment {own!r}"
        raise ValidationError([Violation("not_an_assignment", detail, f"endpoints/{name}", hint=f"bind {own!r}")])


def review_binding(
    bound: BoundAssignment, is_used: bool, selected: int, catalog: ServiceCatalog
) -> Iterator[Violation]:
    """Warnings. ``is_used``: a cluster of the group has the assignment. ``selected`` is the number of instances."""
    group, name = bound.key
    binding = bound.binding
    if not is_used:
        yield _warning(name, "unused", f"no cluster of group {group!r} takes its endpoints from {name!r}")
    present = catalog.instances(binding.service)
    if not catalog.is_known(binding.service):
        detail = f"no source has the service {binding.service!r} yet: the pushed assignment is served until then"
        close = get_close_matches(binding.service, catalog.names()[:_COMPARED_LIMIT], n=1)
        yield _warning(name, "unknown_service", detail, f"did you mean {close[0]!r}?" if close else "")
    elif present and not selected:
        detail = f"it selects none of the {len(present)} instances of {binding.service!r}"
        yield _warning(name, "selects_nothing", detail)
    if binding.port and selected and not any(binding.port in one.instance.ports for one in present):
        known = sorted({port for one in present for port in one.instance.ports})
        detail = f"no instance of {binding.service!r} has a port named {binding.port!r}"
        yield _warning(name, "unknown_port", detail, f"there are: {', '.join(known[:10])}" if known else "")


def _warning(name: str, code: str, detail: str, hint: str = "") -> Violation:
    return Violation(code, detail, f"endpoints/{name}", severity=WARNING, hint=hint)
