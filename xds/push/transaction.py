"""One transaction: the planned changes of groups, and the changes that follow for groups with upstreams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xds.filter.filter import Filter
from xds.mesh.config_entries import EntryPart
from xds.mesh.core.lower.upstreams import UpstreamsDocument
from xds.mesh.group_lowering import LoweredGroup
from xds.mesh.lowered_content import LoweringChange
from xds.model.errors import XdsError
from xds.push.groups import GroupSettings
from xds.push.request import ChangeError, PlannedChange, PushRequest
from xds.store.base import Delta, GroupPush


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes that are committed and published together.

    ``planned`` are the requested changes, then those that follow. ``lowered`` are the groups with newly lowered
    upstreams, by name; None for a group that loses its upstreams. ``part`` are the config entries, and
    ``entries_push`` is their call to the store.
    """

    planned: Sequence[PlannedChange]
    lowered: Mapping[str, LoweredGroup | None] = field(default_factory=dict)
    part: EntryPart | None = None
    entries_push: GroupPush | None = None


@dataclass(frozen=True, slots=True)
class UpstreamsWrite:
    """A write of the upstreams of a group; ``document`` None deletes them. ``settings`` are written too, if given.

    ``selector`` is the compiled selector of the settings.
    """

    document: UpstreamsDocument | None
    settings: GroupSettings | None = None
    selector: Filter | None = None


def derived_request(group: str, lowering: LoweringChange) -> PushRequest:
    """A change of the lowered resources of a group that follows from another change."""
    return PushRequest(group, Delta((), (), {}), lowering=lowering, is_derived=True)


def refused_group(requests: Sequence[PushRequest], error: XdsError) -> str:
    """The group whose change was refused; all groups of the push if the error names none of them."""
    return error.group if isinstance(error, ChangeError) else ", ".join(request.group for request in requests)
