"""What the nodes outside of a rollout are served: what an undo to the base would publish now. Pure.

It has the configuration of the base with the present endpoints and derived resources of the group. So a change of
these reaches all nodes at once, and a roll-back sends nothing to a node that is served the base.
"""

from __future__ import annotations

from collections.abc import Mapping

from xds.model.errors import ValidationError
from xds.model.resource import Resource, short_hash
from xds.model.snapshot import ResourceSet, Snapshot
from xds.push.content import GroupContent
from xds.push.derived import DerivedContent, stored_derived, unchanged
from xds.push.request import PlannedChange, PushRequest, plan_change
from xds.store.base import Rollback


def base_content(head: GroupContent, base: GroupContent, before: GroupContent | None = None) -> GroupContent:
    """The content to serve in place of ``head``. ``base`` is the base as it was pushed.

    Sets that equal those of ``base`` or ``head``, or of the former result ``before``, are the same objects, and so is a
    content that is as ``before``. Any other set has a label of its own, which depends on its content alone. If a name
    of the base belongs to a derived resource now, an undo would be refused; then it is the base as it was pushed.
    """
    derived = DerivedContent(stored_derived(head))
    request = PushRequest(head.group, Rollback(base.revision, keeps_endpoints=True), derived=unchanged(derived))
    try:
        planned = plan_change(request, head, base)
    except ValidationError:
        return base
    types = dict.fromkeys((*base.snapshot.sets, *head.snapshot.sets))
    sets = {type_url: _set_of(type_url, planned, head, base, before) for type_url in types}
    if before is not None and before.blob_ids == planned.blob_ids and _has_sets(before, sets):
        return before
    for each in sets.values():
        each.prepare()
    return GroupContent(Snapshot(head.group, base.revision, sets), planned.blob_ids, base.meta)


def _has_sets(content: GroupContent, sets: Mapping[str, ResourceSet]) -> bool:
    present = content.snapshot.sets
    return present.keys() == sets.keys() and all(present[type_url] is each for type_url, each in sets.items())


def _set_of(
    type_url: str, planned: PlannedChange, head: GroupContent, base: GroupContent, before: GroupContent | None
) -> ResourceSet:
    present = head.snapshot.get(type_url)
    former = (before or base).snapshot.get(type_url)
    digest = planned.digests.get(type_url, present.digest)
    for each in (base.snapshot.get(type_url), present, former):
        if each.digest == digest:
            return each
    # It is made from the former set, so that what streams need of it costs as much as it differs.
    members = {name: planned.resources[of_type, name] for of_type, name in planned.blob_ids if of_type == type_url}
    put = {name: one for name, one in members.items() if not _is_same(one, former.resources.get(name))}
    removed = [name for name in former.resources if name not in members]
    label = f"{base.revision}-{short_hash(digest)}"
    shares_most = len(put) + len(removed) <= len(members) // 2
    return former.amended(label, put, removed, digest=digest, keeps_lineage=shares_most)


def _is_same(one: Resource, other: Resource | None) -> bool:
    return other is not None and one.version == other.version
