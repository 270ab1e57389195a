"""Changes of several groups, and of config entries, in one transaction: all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, Any

import pydantic
from fastapi import Depends, Request
from fastapi.responses import Response

from xds.access.tokens import ADMIN, write_scope
from xds.admin import operations
from xds.admin.answers import answer_model
from xds.admin.bodies import Body, ContentType, media_of
from xds.admin.dependencies import dependencies_of
from xds.admin.problem import RequestError, place_in_transaction
from xds.admin.push import (
    RETRY,
    ROLLOUT,
    Force,
    PushContext,
    SharedOptions,
    Wait,
    check_precondition_present,
    preference_headers,
    read_precondition,
    status_of,
    wait_for_outcome,
)
from xds.admin.routing import api_router, demand, with_model
from xds.codec.document import parse_values
from xds.codec.findings import json_pointer
from xds.codec.resources import DecodedPush, ResourceDecoder
from xds.mesh.core.entries.entry import check_kind, read_entry
from xds.mesh.entry_records import DeleteEntry, EntryWrite, PutEntry
from xds.mesh.models.config_entries import EntryOutcome, TransactionOutcome
from xds.mesh.parts import EntryPart
from xds.mesh.served import served
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.names import canonical_name
from xds.model.resource_type import type_url_of
from xds.push.content import Key
from xds.push.request import PushRequest, patch, replace_all
from xds.tasks.threads import run_for_caller, run_sized

Json = dict[str, Any]

CHANGES_LIMIT = 1000
WRITES_LIMIT = 10_000  # config entries

router = api_router("groups")


class _TransactionPart(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)


class DeletedResource(_TransactionPart):
    """A resource to remove.

    * ``type``: a type alias or a type URL.
    """

    type: str
    name: str


class GroupChange(_TransactionPart):
    """The change of one group: either ``snapshot``, or ``put`` and ``delete``.

    * ``if_match``: succeed only if the group has this etag, as ``If-Match``;
    * ``if_none_match``: ``*``: succeed only if the group does not exist;
    * ``snapshot``: replace all resources of the group, as ``PUT /groups/{group}/snapshot``;
    * ``put``: resources to add or replace, each with its ``@type``;
    * ``delete``: resources to remove.
    """

    group: str
    if_match: str | None = None
    if_none_match: str | None = None
    snapshot: Json | None = None
    put: list[Json] = []
    delete: list[DeletedResource] = []

    @pydantic.model_validator(mode="after")
    def _one_or_the_other(self) -> GroupChange:
        if (self.snapshot is not None) == bool(self.put or self.delete):
            raise ValueError("give either a snapshot, or resources to put or delete")
        return self


class DeletedEntry(_TransactionPart):
    """A config entry to delete.

    * ``name``: the name of the config entry.
    """

    kind: str
    name: str


class EntriesChange(_TransactionPart):
    """The change of config entries; needs the scope ``admin``.

    * ``if_match``: succeed only if all config entries have this etag;
    * ``if_none_match``: ``*``: succeed only if no config entry was ever written;
    * ``put``: config entries to write;
    * ``delete``: config entries to delete.
    """

    if_match: str | None = None
    if_none_match: str | None = None
    put: Annotated[list[Json], pydantic.Field(max_length=WRITES_LIMIT)] = []
    delete: Annotated[list[DeletedEntry], pydantic.Field(max_length=WRITES_LIMIT)] = []

    @pydantic.model_validator(mode="after")
    def _is_a_change(self) -> EntriesChange:
        if not (self.put or self.delete):
            raise ValueError("give config entries to put or delete")
        return self


class TransactionRequest(_TransactionPart):
    """Changes that are made together or not at all.

    * ``changes``: the changes of groups, each group once;
    * ``config_entries``: the change of config entries; null: none;
    * ``rollout``: how it is rolled out, as of a push: of several groups each has the plan of its own settings, and only
      ``all_at_once`` is accepted here;
    * ``retry``: content that a rollout has taken back is pushed again.
    """

    changes: Annotated[list[GroupChange], pydantic.Field(max_length=CHANGES_LIMIT)] = []
    config_entries: EntriesChange | None = None
    rollout: Json | str | None = None
    retry: bool = False

    @pydantic.model_validator(mode="after")
    def _is_a_change(self) -> TransactionRequest:
        if not self.changes and self.config_entries is None:
            raise ValueError("a transaction has at least one change")
        return self


@dataclass(frozen=True, slots=True)
class _DecodedChange:
    """A change with decoded resources; ``deleted`` are keys."""

    change: GroupChange
    pushed: DecodedPush
    deleted: tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class _DecodedTransaction:
    """All changes, read; ``writes`` are those of config entries."""

    groups: list[_DecodedChange]
    entries: EntriesChange | None
    writes: tuple[EntryWrite, ...]
    warnings: tuple[Violation, ...]
    rollout: Mapping[str, object]


async def transaction_context(
    request: Request, options: SharedOptions, wait_s: Wait, force: Force = False
) -> PushContext:
    """Everything that a transaction needs in addition to its body."""
    return PushContext(dependencies_of(request), replace(options, force=force), wait_s, request)


@router.serve(operations.TRANSACT)
@with_model(
    TransactionRequest, "The changes, as JSON or YAML", GroupChange, EntriesChange, DeletedResource, DeletedEntry
)
async def transact(
    pushing: Annotated[PushContext, Depends(transaction_context)],
    request: Request,
    body: Body,
    content_type: ContentType = "",
) -> Response:
    """Change several groups, and config entries, in one transaction: all changes are made, or none.

    It needs the scope `write:group/<group>` for each group, and `admin` for config entries.
    """
    decoded = await run_for_caller(_decode, body, content_type, pushing.deps.options.decoder)
    pushing = await pushing.rolled_out(decoded.rollout)
    for each in decoded.groups:
        demand(request, write_scope(each.change.group))
        check_precondition_present(pushing.deps, each.change.if_match, each.change.if_none_match)
    warnings = [
        [place_in_transaction(warning, index, _resources_pointer(each.change)) for warning in each.pushed.warnings]
        for index, each in enumerate(decoded.groups)
    ]
    pushing.options.check_warnings([warning for warned in (*warnings, decoded.warnings) for warning in warned])
    part = _entries_part(pushing, request, decoded)
    requests = [await _request_of(index, each) for index, each in enumerate(decoded.groups)]
    results = await pushing.deps.publisher.transaction(requests, pushing.options, part)
    outcomes = await asyncio.gather(*(wait_for_outcome(pushing, *each) for each in zip(results, warnings, strict=True)))
    entries: EntryOutcome | None = None
    if part is not None and part.result is not None:
        entries = EntryOutcome.from_domain(replace(part.result, warnings=decoded.warnings))
    answer = TransactionOutcome(tuple(outcome for outcome, _ in outcomes), entries)
    status = status_of(any(pending for _, pending in outcomes))
    return await run_sized(answer_model, answer, preference_headers(pushing), status, bytes=len(body))


def _entries_part(pushing: PushContext, request: Request, decoded: _DecodedTransaction) -> EntryPart | None:
    """The writes of config entries with their precondition; None without any. Raises ``RequestError``."""
    change = decoded.entries
    if change is None:
        return None
    demand(request, ADMIN)
    check_precondition_present(pushing.deps, change.if_match, change.if_none_match)
    expect, etag = read_precondition(change.if_match, change.if_none_match)
    return served(pushing.deps).entry_part(decoded.writes, replace(pushing.options, expect=expect, etag=etag))


def _decode(body: bytes, content_type: str, decoder: ResourceDecoder) -> _DecodedTransaction:
    """Decode all changes. Raises ``ValidationError`` with every finding, ``RequestError``."""
    media = media_of(content_type)
    if media == "protobuf":
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a transaction is JSON or YAML")
    documents = parse_values(body, media, content="typed")
    if len(documents) != 1:
        raise MalformedError([Violation("malformed", f"expected one transaction, not {len(documents)} documents")])
    parsed = _parse_transaction(documents[0])
    violations: list[Violation] = []
    decoded = []
    for index, change in enumerate(parsed.changes):
        try:
            decoded.append(_DecodedChange(change, _decode_push(change, decoder), _deleted_keys(change)))
        except ValidationError as error:
            violations += [
                place_in_transaction(violation, index, _resources_pointer(change)) for violation in error.violations
            ]
    writes, warnings = _writes(parsed.config_entries, violations) if parsed.config_entries is not None else ((), ())
    if violations:
        raise ValidationError(violations)
    rollout = {ROLLOUT: parsed.rollout, RETRY: parsed.retry}
    return _DecodedTransaction(decoded, parsed.config_entries, writes, warnings, rollout)


def _writes(change: EntriesChange, violations: list[Violation]) -> tuple[tuple[EntryWrite, ...], tuple[Violation, ...]]:
    """The writes of config entries and their warnings; findings are added to ``violations``."""
    writes: list[EntryWrite] = []
    warnings: list[Violation] = []
    for index, value in enumerate(change.put):
        try:
            read = read_entry(value)
        except ValidationError as error:
            violations += [_place_entry(violation, index) for violation in error.violations]
            continue
        writes += map(PutEntry, read.entries)
        warnings += [_place_entry(violation, index) for violation in read.warnings]
    for index, each in enumerate(change.delete):
        try:
            check_kind(each.kind)
        except ValidationError as error:
            violations += [replace(one, pointer=f"/config_entries/delete/{index}/kind") for one in error.violations]
        writes.append(DeleteEntry(each.kind, each.name))
    return tuple(writes), tuple(warnings)


def _place_entry(violation: Violation, index: int) -> Violation:
    return replace(violation, pointer=f"/config_entries/put/{index}{violation.pointer}", index=index)


def _parse_transaction(document: object) -> TransactionRequest:
    try:
        return TransactionRequest.model_validate(document)
    except pydantic.ValidationError as error:
        raise ValidationError(
            [
                Violation(f"transaction_{each['type']}", each["msg"], pointer=json_pointer(each["loc"]))
                for each in error.errors(include_url=False, include_input=False)
            ]
        ) from None


def _decode_push(change: GroupChange, decoder: ResourceDecoder) -> DecodedPush:
    snapshot = change.snapshot if change.snapshot is not None else {"resources": change.put}
    return decoder.values(snapshot)


def _resources_pointer(change: GroupChange) -> str:
    """The JSON pointer of the resources of a change."""
    return "/snapshot/resources" if change.snapshot is not None else "/put"


def _deleted_keys(change: GroupChange) -> tuple[Key, ...]:
    return tuple((type_url_of(each.type), canonical_name(each.name)) for each in change.delete)


async def _request_of(index: int, decoded: _DecodedChange) -> PushRequest:
    change, pushed = decoded.change, decoded.pushed
    try:
        expect, etag = read_precondition(change.if_match, change.if_none_match)
        if change.snapshot is not None:
            draft = await replace_all(change.group, pushed.resources, pushed.label, pushed.labels)
        else:
            draft = await patch(change.group, pushed.resources, decoded.deleted)
    except ValidationError as error:
        raise ValidationError([place_in_transaction(violation, index, "") for violation in error.violations]) from None
    except RequestError as error:
        raise RequestError(error.status, f"changes[{index}], group {change.group!r}: {error}") from None
    return replace(draft, expect=expect, etag=etag)
