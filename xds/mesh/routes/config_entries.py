"""Config entries: reads, writes of one or several, history and undo (docs/discovery-chain.md)."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Annotated

import pydantic
from fastapi import Depends, Path, Query, Request
from fastapi.responses import Response

from xds.admin.answers import (
    JSON_TYPE,
    Paging,
    answer_json,
    answer_model,
    answer_not_modified,
    answer_yaml,
    etag_header,
    is_not_modified,
)
from xds.admin.bodies import Body, ContentType, accepts_yaml, media_of
from xds.admin.dependencies import Dependencies, Deps
from xds.admin.middleware import Segment
from xds.admin.models.writing import document_of
from xds.admin.problem import RequestError
from xds.admin.push import DryRun, IdempotencyKey, Message, Precondition, Strict, revision_precondition
from xds.admin.routing import Calling, api_router, with_body, with_model
from xds.mesh import operations
from xds.mesh.core.entries.entry import Key, ReadEntries, check_kind, read_entries
from xds.mesh.entry_records import DeleteEntry, EntryResult, EntryWrite, PutEntry
from xds.mesh.models.config_entries import (
    ComparedEntry,
    EntryContent,
    EntryDifferences,
    EntryOutcome,
    EntryRevision,
    EntryUndoProposal,
    StoredEntry,
)
from xds.mesh.served import served
from xds.mesh.texts import ENTRIES, ENTRY
from xds.model.errors import NotFoundError
from xds.push.request import PushOptions
from xds.tasks.threads import run_for_caller, run_sized

REVISION_LIMIT = (1 << 63) - 2  # stores read revisions below the next one, in 64 bits
Revision = Annotated[int, Path(ge=1, le=REVISION_LIMIT)]
_RESOURCES_PER_ENTRY = 5  # encoding an entry takes as long as encoding this many resources

router = api_router("config entries")


class EntryRollbackRequest(pydantic.BaseModel):
    """A rollback of the config entries.

    * ``to``: the revision whose entries are restored; 0: no entries.
    """

    model_config = pydantic.ConfigDict(extra="forbid", strict=True)

    to: Annotated[int, pydantic.Field(ge=0, le=REVISION_LIMIT)]


async def write_options(
    by: Calling,
    idempotency_key: IdempotencyKey = "",
    dry_run: DryRun = False,
    message: Message = "",
    strict: Strict = False,
) -> PushOptions:
    """The options of a write, from its headers and query."""
    return PushOptions(idempotency_key, None, by.meta(message), dry_run, strict=strict, peer=by.peer)


Writing = Annotated[PushOptions, Depends(write_options)]
AllEntriesPrecondition = Annotated[
    Precondition, Depends(revision_precondition("succeed only if no config entry was ever written"))
]
EntryPrecondition = Annotated[
    Precondition, Depends(revision_precondition("succeed only if there is no such config entry"))
]


@router.serve(operations.LIST_CONFIG_ENTRIES)
async def list_config_entries(
    deps: Deps,
    request: Request,
    paging: Paging,
    kind: Annotated[str, Query(description="Only entries of this kind; empty: of all kinds")] = "",
) -> Response:
    """All config entries, or those of a kind, by kind and name."""
    if kind:
        check_kind(kind)
    entries = served(deps).entries
    extra = {"revision": entries.revision, "etag": entries.etag}
    items = await paging.find_items_after(entries.records(kind or None), lambda record: _list_key(record.key))
    return await paging.answer(
        request, items, lambda record: _list_key(record.key), StoredEntry.from_domain, extra=extra
    )


@router.serve(operations.PUT_CONFIG_ENTRIES)
@with_body(ENTRIES, "One entry or a list, as JSON or YAML; or several YAML documents")
async def put_config_entries(
    deps: Deps, body: Body, options: Writing, precondition: AllEntriesPrecondition, content_type: ContentType = ""
) -> Response:
    """Write several config entries, all or none. Other entries stay. `If-Match` is about all entries."""
    read = await _read(body, content_type)
    options.check_warnings(read.warnings)
    expect, etag = precondition
    writes: list[EntryWrite] = [PutEntry(entry) for entry in read.entries]
    result = await served(deps).entries.apply(writes, replace(options, expect=expect, etag=etag))
    return await _answer_write(replace(result, warnings=read.warnings), result.etag)


@router.serve(operations.LIST_CONFIG_ENTRY_REVISIONS)
async def list_config_entry_revisions(deps: Deps, request: Request, paging: Paging) -> Response:
    """All revisions of the config entries, newest first: author, time, message, and whether the revision was undone."""
    before = int(paging.after) if paging.after.isdecimal() else None
    lines = await served(deps).entries.history.line.page(before, paging.limit + 1)
    return await paging.answer(request, lines, lambda line: str(line.revision), EntryRevision.from_domain)


@router.serve(operations.GET_CONFIG_ENTRY_REVISION)
async def get_config_entry_revision(deps: Deps, request: Request, revision: Revision) -> Response:
    """All config entries at a revision."""
    content = await served(deps).entries.history.content(revision)
    records = [content[key] for key in sorted(content)]
    documents = await run_sized(
        lambda: [each.document() for each in records], resources=len(records) * _RESOURCES_PER_ENTRY
    )
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, document_of(EntryContent(revision, tuple(documents))))


@router.serve(operations.GET_CONFIG_ENTRY_DIFFERENCE)
async def get_config_entry_difference(
    deps: Deps,
    request: Request,
    revision: Revision,
    base: Annotated[
        int | None,
        Query(
            alias="from",
            ge=0,
            le=REVISION_LIMIT,
            description="The revision to compare with; 0: no entries. By default the revision before",
        ),
    ] = None,
) -> Response:
    """The config entries that differ between two revisions, before and after."""
    old = revision - 1 if base is None else base
    changes = await served(deps).entries.history.changes(old, revision)
    items = await run_sized(
        lambda: tuple(map(ComparedEntry.from_domain, changes)), resources=len(changes) * _RESOURCES_PER_ENTRY
    )
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, document_of(EntryDifferences(base=old, to=revision, items=items)))


@router.serve(operations.GET_CONFIG_ENTRY_UNDO)
async def get_config_entry_undo(deps: Deps) -> Response:
    """The plan of undoing the last change of the config entries. Nothing is changed.

    To undo it, roll back to the revision in `to`, with `etag` as `If-Match`. 404 if there is nothing to undo.
    """
    entries = served(deps).entries
    revision, etag = entries.revision, entries.etag
    plan = await entries.history.undo_plan()
    return answer_model(EntryUndoProposal.from_domain(plan, revision, etag), etag_header(etag))


@router.serve(operations.ROLL_BACK_CONFIG_ENTRIES)
@with_model(EntryRollbackRequest, "The revision to go back to, as JSON", media_types=(JSON_TYPE,))
async def roll_back_config_entries(
    deps: Deps, body: Body, options: Writing, precondition: AllEntriesPrecondition, content_type: ContentType = ""
) -> Response:
    """Make a new revision with the config entries of an earlier one. `If-Match` is about all entries."""
    media_of(content_type)
    try:
        wanted = EntryRollbackRequest.model_validate_json(body)
    except pydantic.ValidationError:
        raise RequestError(HTTPStatus.BAD_REQUEST, 'the body must be {"to": REVISION}') from None
    expect, etag = precondition
    result = await served(deps).entries.roll_back(wanted.to, replace(options, expect=expect, etag=etag))
    return await _answer_write(result, result.etag)


@router.serve(operations.GET_CONFIG_ENTRY)
async def get_config_entry(deps: Deps, request: Request, kind: Segment, name: Segment) -> Response:
    """One config entry, and who modified it last."""
    check_kind(kind)
    entries = served(deps).entries
    record = entries.record(kind, name)
    if record is None:
        raise NotFoundError(f"no config entry {kind}/{name}")
    if is_not_modified(request, record.etag):
        return answer_not_modified(record.etag)
    stored = StoredEntry.from_domain(record, await entries.history.line.find(record.modified_revision))
    write = answer_yaml if accepts_yaml(request) else answer_json
    return await write(request, document_of(stored), etag_header(record.etag))


@router.serve(operations.PUT_CONFIG_ENTRY)
@with_body(ENTRY, "The entry, as JSON or YAML. `Kind` and `Name` may be left out")
async def put_config_entry(
    deps: Deps,
    kind: Segment,
    name: Segment,
    body: Body,
    options: Writing,
    precondition: EntryPrecondition,
    content_type: ContentType = "",
) -> Response:
    """Write one config entry. `If-Match` is about this entry."""
    check_kind(kind)
    read = await _read(body, content_type, kind, name)
    options.check_warnings(read.warnings)
    (entry,) = read.entries
    result = await served(deps).entries.apply([PutEntry(entry, *precondition)], options)
    return await _answer_write(replace(result, warnings=read.warnings), _etag(deps, kind, name))


@router.serve(operations.DELETE_CONFIG_ENTRY)
async def delete_config_entry(
    deps: Deps, kind: Segment, name: Segment, options: Writing, precondition: EntryPrecondition
) -> Response:
    """Delete one config entry. `If-Match` is about this entry."""
    check_kind(kind)
    return await _answer_write(await served(deps).entries.apply([DeleteEntry(kind, name, *precondition)], options))


async def _read(body: bytes, content_type: str, kind: str = "", name: str = "") -> ReadEntries:
    """The config entries in a body. Raises ``RequestError``, ``ValidationError`` with all findings."""
    media = media_of(content_type)
    if media == "protobuf":
        raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "config entries are JSON or YAML")
    return await run_for_caller(lambda: read_entries(body, media, kind=kind, name=name))


async def _answer_write(result: EntryResult, etag: str = "") -> Response:
    headers = etag_header(etag) if etag else {}
    size = (len(result.changes) + len(result.chains)) * _RESOURCES_PER_ENTRY
    return await run_sized(lambda: answer_model(EntryOutcome.from_domain(result), headers), resources=size)


def _etag(deps: Dependencies, kind: str, name: str) -> str:
    record = served(deps).entries.record(kind, name)
    return record.etag if record is not None else ""


def _list_key(key: Key) -> str:
    """The key by which entries are sorted in a list."""
    return " ".join(key)
