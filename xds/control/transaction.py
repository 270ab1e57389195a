"""One transaction: the planned changes of groups, and what follows from them for groups with upstreams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xds.control.config_entries import EntryPart
from xds.control.group_lowering import LoweredGroup
from xds.control.groups import GroupSettings
from xds.control.lowered_content import LoweringChange
from xds.control.push import ChangeError, PlannedChange, PushRequest
from xds.filter.filter import Filter
from xds.lower.upstreams import UpstreamsDocument
from xds.model.errors import XdsError
from xds.store.base import Delta, GroupPush


@dataclass(frozen=True, slots=True)
class Transaction:
    """What is committed and published together.

    ``planned`` are the changes that were asked for, then those that follow. ``made`` are the groups with newly lowered
    upstreams, None for a group that loses them. ``push`` is the call to the store of ``part``, the config entries.
    """

    planned: Sequence[PlannedChange]
    made: Mapping[str, LoweredGroup | None] = field(default_factory=dict)
    part: EntryPart | None = None
    push: GroupPush | None = None


@dataclass(frozen=True, slots=True)
class UpstreamsWrite:
    """The upstreams that a group is to have, None for none, with its settings if these are written as well.

    ``selector`` is that of the settings, compiled.
    """

    document: UpstreamsDocument | None
    settings: GroupSettings | None = None
    selector: Filter | None = None


def derived_request(group: str, lowering: LoweringChange) -> PushRequest:
    """A change of the lowered resources of a group that follows from another change."""
    return PushRequest(group, Delta((), (), {}), lowering=lowering, is_derived=True)


def refused_group(requests: Sequence[PushRequest], error: XdsError) -> str:
    """The group whose change was refused; all groups of the push where the error is about none of them."""
    return error.group if isinstance(error, ChangeError) else ", ".join(request.group for request in requests)
