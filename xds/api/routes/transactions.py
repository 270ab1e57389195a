"""Changes of several groups in one transaction: all of them or none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Annotated, Any

import pydantic
from fastapi import Depends, Header, Request
from fastapi.responses import JSONResponse, Response

from xds.api.bodies import Body, media_of
from xds.api.problem import RequestError, placed
from xds.api.push import (
    PushContext,
    SharedOptions,
    Wait,
    answered,
    applied,
    check_stated,
    read_precondition,
    status_of,
)
from xds.api.routing import ANY, api_router, demand, needs
from xds.api.services import Here
from xds.api.shapes.groups import TransactionAnswer
from xds.codec.document import parse_values
from xds.codec.resources import DecodedPush, ResourceDecoder
from xds.control.group_content import Key
from xds.control.push import PushRequest, patch, replace_all
from xds.control.threads import run_sized
from xds.control.tokens import write_scope
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.names import canonical_name
from xds.model.resource_type import type_url_of

Json = dict[str, Any]

CHANGES_LIMIT = 1000

router = api_router("groups")


class _Part(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", strict=True)


class DeletedResource(_Part):
    """A resource to remove; ``type`` is an alias or a type URL."""

    type: str
    name: str


class GroupChange(_Part):
    """One group's change: the whole ``snapshot``, or single resources to ``put`` and ``delete``."""

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


class TransactionRequest(_Part):
    """The changes, one per group."""

    changes: Annotated[list[GroupChange], pydantic.Field(min_length=1, max_length=CHANGES_LIMIT)]


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A change with decoded resources; ``deleted`` are keys."""

    change: GroupChange
    pushed: DecodedPush
    deleted: tuple[Key, ...]


async def transaction_context(here: Here, options: SharedOptions, wait_s: Wait) -> PushContext:
    """Everything that a transaction needs besides its body."""
    return PushContext(here, options, wait_s)


@router.post("/transactions", response_model=TransactionAnswer, openapi_extra=needs(ANY))
async def transact(
    pushing: Annotated[PushContext, Depends(transaction_context)],
    request: Request,
    body: Body,
    content_type: Annotated[str, Header(description="JSON or YAML")] = "",
) -> Response:
    """Change several groups in one transaction: ``{"changes": [{"group", "if_match"?, "snapshot"?

    | "put"?, "delete"?}]}``.
    """
    decoded = await run_sized(lambda: _decode(body, content_type, pushing.here.options.decoder), bytes=len(body))
    for each in decoded:
        demand(request, write_scope(each.change.group))
        check_stated(pushing.here, each.change.if_match, each.change.if_none_match)
    warnings = [
        [placed(warning, index, _part(each.change)) for warning in each.pushed.warnings]
        for index, each in enumerate(decoded)
    ]
    pushing.options.check_warnings([warning for found in warnings for warning in found])
    drafts = [await _draft(index, each) for index, each in enumerate(decoded)]
    results = await pushing.here.publisher.transaction(drafts, pushing.options)
    items = await asyncio.gather(*(answered(pushing, *each) for each in zip(results, warnings, strict=True)))
    answer = {"results": [item for item, _ in items]}
    status = status_of(any(pending for _, pending in items))
    return await run_sized(lambda: JSONResponse(answer, status, applied(pushing)), bytes=len(body))


def _decode(body: bytes, content_type: str, decoder: ResourceDecoder) -> list[_Decoded]:
    """Decode all changes. Raises ``ValidationError`` with every finding, ``RequestError``."""
    media = media_of(content_type)
    if media == "protobuf":
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a transaction is JSON or YAML")
    documents = parse_values(body, media)
    if len(documents) != 1:
        raise MalformedError([Violation("malformed", f"expected one transaction, not {len(documents)} documents")])
    changes = _shaped(documents[0]).changes
    found: list[Violation] = []
    decoded = []
    for index, change in enumerate(changes):
        try:
            decoded.append(_Decoded(change, _pushed(change, decoder), _deleted(change)))
        except ValidationError as error:
            found += [placed(violation, index, _part(change)) for violation in error.violations]
    if found:
        raise ValidationError(found)
    return decoded


def _shaped(document: object) -> TransactionRequest:
    try:
        return TransactionRequest.model_validate(document)
    except pydantic.ValidationError as error:
        raise ValidationError(
            [
                Violation(f"transaction_{each['type']}", each["msg"], pointer=_pointer(each["loc"]))
                for each in error.errors(include_url=False, include_input=False)
            ]
        ) from None


def _pointer(path: Sequence[int | str]) -> str:
    return "".join(f"/{part}" for part in path)


def _pushed(change: GroupChange, decoder: ResourceDecoder) -> DecodedPush:
    snapshot = change.snapshot if change.snapshot is not None else {"resources": change.put}
    return decoder.values(snapshot)


def _part(change: GroupChange) -> str:
    """The place of the resources in a change."""
    return "/snapshot/resources" if change.snapshot is not None else "/put"


def _deleted(change: GroupChange) -> tuple[Key, ...]:
    return tuple((type_url_of(each.type), canonical_name(each.name)) for each in change.delete)


async def _draft(index: int, decoded: _Decoded) -> PushRequest:
    change, pushed = decoded.change, decoded.pushed
    try:
        expect, etag = read_precondition(change.if_match, change.if_none_match)
        if change.snapshot is not None:
            draft = await replace_all(change.group, pushed.resources, pushed.label, pushed.labels)
        else:
            draft = await patch(change.group, pushed.resources, decoded.deleted)
    except ValidationError as error:
        raise ValidationError([placed(violation, index, "") for violation in error.violations]) from None
    except RequestError as error:
        raise RequestError(error.status, f"changes[{index}], group {change.group!r}: {error}") from None
    return replace(draft, expect=expect, etag=etag)
