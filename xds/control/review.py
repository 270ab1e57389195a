"""What a push means for the rest of its group. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from xds.assignment.policy import Policy
from xds.codec.conflicts import LISTENERS
from xds.codec.crosscheck import check_references
from xds.control.content import BlobIds, Content, Key
from xds.control.policy_review import Find, assignment_name, review_policy
from xds.control.push import Draft, Step, settle
from xds.model.errors import ERROR, ValidationError, Violation
from xds.model.resource import Resource
from xds.model.resource_type import CLUSTER, ENDPOINT
from xds.store.base import Delta, Drop, FullSet

_NOBODY: Mapping[str, Mapping[str, Resource]] = {}


def settle_reviewed(draft: Draft, held: Content | None, target: Content | None) -> Step:
    """Put a draft to what its group holds, with what a review finds in it. Raises as ``settle`` and ``review``."""
    step = settle(draft, held, target)
    return replace(step, warnings=review(step))


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


def review_policies(step: Step, policies: Mapping[str, Policy]) -> list[Violation]:
    """What a step means to the policies of its group whose clusters or endpoints it touches."""
    change = step.draft.change
    if not policies or isinstance(change, Drop):
        return []
    find = partial(_after, step)
    concerned = policies
    if isinstance(change, Delta):
        touched = {*step.known, *change.delete}
        concerned = {name: policy for name, policy in policies.items() if not touched.isdisjoint(_keys(name, find))}
    return [
        finding
        for policy in concerned.values()
        for finding in review_policy(policy, find, _names(step, CLUSTER), policies)
    ]


def _names(step: Step, wanted: str) -> Iterator[str]:
    return (name for type_url, name in step.blob_ids if type_url == wanted)


def _after(step: Step, type_url: str, name: str) -> Resource | None:
    """A resource of the content that a step leads to."""
    key = (type_url, name)
    if key not in step.blob_ids:
        return None
    known = step.known.get(key)
    return known if known is not None or step.held is None else step.held.get(key)


def _keys(cluster: str, find: Find) -> set[Key]:
    return {(CLUSTER, cluster), (ENDPOINT, assignment_name(find(CLUSTER, cluster)))}


def review_size(draft: Draft, held: Content | None) -> int:
    """How many resources a review looks at: a listener is compared with the others, a removal asks everybody."""
    change, size = draft.change, len(draft.known)
    if (
        isinstance(change, Delta)
        and not change.delete
        and not any(type_url in LISTENERS for type_url, _ in draft.known)
    ):
        return size
    return size + (len(held) if held is not None else 0)
