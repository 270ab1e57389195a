"""What a push means for the rest of its group. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from xds.codec.crosscheck import check_references
from xds.codec.exclusive import LISTENERS
from xds.control.content import BlobIds
from xds.control.push import Step
from xds.model.errors import ERROR, ValidationError, Violation
from xds.model.resource import Resource
from xds.store.base import Delta, FullSet

_NOBODY: Mapping[str, Mapping[str, Resource]] = {}


def review(step: Step) -> tuple[Violation, ...]:
    """What a step's resources, and those that go away, mean to each other and to the rest: the warnings.

    Raises ``ValidationError`` for what Envoy surely refuses. A rollback was looked at when it was pushed.
    """
    change = step.draft.change
    found: list[Violation] = []
    if isinstance(change, FullSet):
        held = step.held.blob_ids if step.held is not None else BlobIds()
        found = check_references(step.known.values(), removed=held.keys() - step.blob_ids.keys())
    elif isinstance(change, Delta):
        known = _NOBODY if step.held is None else {one.type.type_url: one.resources for one in step.held.snapshot}
        found = check_references(step.known.values(), removed=change.delete, known=known)
    errors = [one for one in found if one.severity == ERROR]
    if errors:
        raise ValidationError(errors)
    return tuple(found)


def review_size(step: Step) -> int:
    """How many resources a review looks at: a listener is compared with the others, a removal asks everybody."""
    change = step.draft.change
    if isinstance(change, Delta) and not change.delete and not any(type_url in LISTENERS for type_url, _ in step.known):
        return len(step.known)
    return len(step.blob_ids)
