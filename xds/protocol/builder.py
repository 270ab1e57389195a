"""Drafts to encoded responses, each built once for all streams in the same situation.

The nonce is a per-process prefix and the build's number, so every stream gets the very same bytes object
(push_path 6.2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from xds.model.errors import StatusCode
from xds.model.resource import Resource
from xds.model.resource_type import Missing
from xds.model.snapshot import Frame, ResourceSet
from xds.protocol import wire
from xds.protocol.draft import ChangeOf, Demand, Draft, Variant, compose
from xds.protocol.memo import Memo
from xds.protocol.response import Response

PREPARED_FROM = 256  # resources of a set: fewer are quickly encoded when they are asked for
_MEMO_ENTRIES = 8192
_SOTW_ERRORS_FIELD = 7
_ENTRY_OVERHEAD = 512
_NAME_BYTES = 150  # a name in the sets and tuples of a demand and its draft


class Built(NamedTuple):
    """A draft and, unless there is nothing to tell, its response."""

    draft: Draft
    response: Response | None


class ResponseBuilder:
    """Builds and keeps responses; bounded by ``bytes_limit``."""

    def __init__(self, identifier: str, nonce_prefix: str, change_of: ChangeOf, bytes_limit: int) -> None:
        self._control_plane = wire.control_plane_field(identifier)
        self._nonce_prefix = nonce_prefix
        self._change_of = change_of
        self._numbers = count(1)
        self.encoded_bytes = 0  # of all responses so far
        self._built: Memo[Demand, Built | None] = Memo(_MEMO_ENTRIES, bytes_limit, _built_cost)

    def build(self, demand: Demand, doubted: Mapping[str, str]) -> Built | None:
        """The response to a demand; None when the client holds all it wants."""
        if doubted:  # a client's own mixture of versions: of no use to others
            return self._build(demand, doubted)
        return self._built.get(demand, lambda: self._build(demand, doubted))

    def begin_age(self) -> None:
        """Forget the responses that were not asked for since the age before began.

        They hold on to the sets they lead from and to: with many small pushes to a large group, all of its past.
        """
        self._built.begin_age()

    def heartbeat(self, resource_set: ResourceSet, resources: Mapping[str, Resource]) -> Response:
        """Rule 72: TTLs start anew, nothing else changes."""
        beats = [wire.delta_heartbeat(resource) for resource in resources.values()]
        nonce, number = self._next_nonce()
        url, version = resource_set.type.type_url, resource_set.version_info
        body = wire.encode_delta(url, version, nonce, (), (), self._control_plane, beats)
        return Response(body, nonce, number, resource_set, tuple(resources), (), b"", heartbeat=True)

    def respliced(self, response: Response) -> tuple[bytes, str]:
        """The same body under a fresh nonce, for a stream that was sent it before (rule 12)."""
        nonce, _ = self._next_nonce()
        return wire.splice_nonce(response.body, nonce), nonce

    def _build(self, demand: Demand, doubted: Mapping[str, str]) -> Built | None:
        draft = compose(demand, doubted, self._change_of)
        if draft is None:
            return None
        if draft == Draft(withheld=draft.withheld) and draft.withheld:
            return Built(draft, None)
        return Built(draft, self._encode(demand, draft))

    def _encode(self, demand: Demand, draft: Draft) -> Response:
        goal = demand.goal
        nonce, number = self._next_nonce()
        encode = self._encode_sotw if demand.variant is Variant.SOTW else self._encode_delta
        body = encode(goal, draft, nonce)
        self.encoded_bytes += len(body)
        return Response(body, nonce, number, goal, draft.names, draft.removed, draft.digest(goal))

    def _encode_sotw(self, goal: ResourceSet, draft: Draft, nonce: str) -> bytes:
        errors = wire.resource_errors(draft.errors, StatusCode.NOT_FOUND, "no such resource", _SOTW_ERRORS_FIELD)
        frames = [*_frames(goal, draft.names), *map(wire.frame, _placeholders(goal, draft))]
        return wire.encode_sotw(goal.type.type_url, goal.version_info, nonce, frames, self._control_plane, errors)

    def _encode_delta(self, goal: ResourceSet, draft: Draft, nonce: str) -> bytes:
        frames = _frames(goal, draft.names)
        absent = [wire.delta_alias_only(name) for name in draft.absent]
        return wire.encode_delta(
            goal.type.type_url, goal.version_info, nonce, frames, draft.removed, self._control_plane, absent
        )

    def _next_nonce(self) -> tuple[str, int]:
        number = next(self._numbers)
        return f"{self._nonce_prefix}{number:x}", number


def prepare(resource_set: ResourceSet, before: ResourceSet | None = None) -> None:
    """Compute now what streams will ask of a set, where it may be another thread than theirs.

    ``before`` is the set that it follows: what was prepared of their common resources is taken over.
    """
    resource_set.prepare()
    if len(resource_set) >= PREPARED_FROM and not resource_set.frames:
        names = list(resource_set.resources)
        resource_set.frames = before.frames if before is not None else {}
        resource_set.frames = dict(zip(names, _frames(resource_set, names), strict=True))


def _frames(goal: ResourceSet, names: Sequence[str]) -> list[Frame]:
    """The frames of some of a set's resources; some were prepared for an earlier set."""
    resources, prepared = goal.resources, goal.frames
    if not prepared:
        return [wire.frame(resources[name]) for name in names]
    members, made = map(resources.__getitem__, names), map(prepared.get, names)
    return [
        frame if frame is not None and frame[0] is resource else wire.frame(resource)
        for resource, frame in zip(members, made, strict=True)
    ]


def _placeholders(goal: ResourceSet, draft: Draft) -> Iterator[Resource]:
    if goal.type.missing is Missing.EMPTY_ASSIGNMENT:
        for name in draft.absent:
            yield Resource(goal.type.type_url, name, wire.empty_assignment(name), "")


def _built_cost(demand: Demand, built: Built | None) -> int:
    names = len(demand.interest.names) + len(demand.owed) + len(demand.forced)
    if built is not None:
        names += len(built.draft.names) + len(built.draft.removed) + len(built.draft.absent)
    body = built.response.body if built is not None and built.response is not None else b""
    return _ENTRY_OVERHEAD + names * _NAME_BYTES + len(body)
