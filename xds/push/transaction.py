"""One transaction: the planned changes of groups, and the write that some of them follow from."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from xds.model.errors import XdsError
from xds.push.derived import DerivedChange, DerivedWrite
from xds.push.request import NO_CHANGE, ChangeError, PlannedChange, PushRequest
from xds.store.base import DocumentWrite


@dataclass(frozen=True, slots=True)
class Transaction:
    """Changes that are committed and published together.

    ``planned`` are the requested changes, then those that follow from ``write``, a write of what resources are derived
    from.
    """

    planned: Sequence[PlannedChange]
    write: DerivedWrite | None = None

    def writes(self) -> Iterator[DocumentWrite]:
        """The documents that are written with the groups."""
        return (write for planned in self.planned for write in planned.writes)


class OutdatedError(Exception):
    """Another server has changed what a transaction was planned from. ``documents`` are those that it writes.

    ``groups`` are those of the transaction.
    """

    def __init__(self, groups: Collection[str], documents: Collection[tuple[str, str]] = ()) -> None:
        super().__init__("another server has pushed meanwhile")
        self.groups = groups
        self.documents = documents


def derived_request(group: str, change: DerivedChange) -> PushRequest:
    """A change of the derived resources of a group. It is a caller's own if it has documents to write."""
    return PushRequest(group, NO_CHANGE, derived=change, is_derived=not change.writes)


def refused_group(requests: Sequence[PushRequest], error: XdsError) -> str:
    """The group whose change was refused; all groups of the push if the error names none of them."""
    return error.group if isinstance(error, ChangeError) else ", ".join(request.group for request in requests)
