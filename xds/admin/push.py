"""What all routes that push share: preconditions, options, and the wait for the fleet.

Also ``If-Match`` and ``If-None-Match`` of documents without revisions, such as policies and settings of groups.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, Header, Query, Request
from fastapi.responses import Response

from xds.admin.answers import answer_model
from xds.admin.dependencies import Dependencies, dependencies_of
from xds.admin.fleet_progress import progress_of_all
from xds.admin.models.findings import Finding
from xds.admin.models.pushes import PushOutcome, PushProgress
from xds.admin.models.rollouts import PushedRollout
from xds.admin.problem import RequestError, overridable
from xds.admin.routing import Calling
from xds.codec.findings import json_pointer
from xds.model.errors import MalformedError, ValidationError, Violation
from xds.model.text_flaws import CODE, find_flaws
from xds.push.progress import PushVerdict
from xds.push.request import PushOptions, PushResult
from xds.rollouts.plan import TIME_LIMIT_S, RolloutPlan, read_plan
from xds.rollouts.wave import waves_of
from xds.store.etags import ANY_ETAG, NO_ETAG
from xds.store.retention import DAY_S
from xds.tasks.threads import run_for_caller, run_sized

WAIT_LIMIT_S = 300.0
PUSH_ID_LIMIT = 200
MESSAGE_LIMIT = 2000

_ETAG = re.compile(r'\s*(?:W/)?"?(r(\d{1,18})(?:-[0-9a-f]+)?)"?\s*')
_WAIT = re.compile(r"\bwait\s*=\s*\"?(\d+)\"?")

Strict = Annotated[bool, Query(description="Treat warnings as errors: they prevent the change (422)")]
DrainTime = Annotated[
    float | None,
    Query(
        ge=0,
        le=DAY_S,
        description="Seconds that removed endpoints drain; 0: they are removed at once. "
        "By default the setting `order.endpoint_drain_s`",
    ),
]

# The required revision and etag of a group, as ``expect`` and ``etag`` of ``PushOptions``.
Precondition = tuple[int | None, str]


def read_precondition(if_match: str | None, if_none_match: str | None) -> Precondition:
    """The precondition in ``If-Match`` and ``If-None-Match``.

    Raises ``RequestError`` if the etag is not in this server's format.
    """
    etag = _wanted_etag(_ETAG, "If-Match is not one etag of this server", if_match, if_none_match)
    return (0, "") if etag == NO_ETAG else (None, etag)


def check_precondition_present(deps: Dependencies, if_match: str | None, if_none_match: str | None) -> None:
    """Raises ``RequestError`` (428) for a write without a precondition where one is required."""
    if deps.options.require_if_match and if_match is None and if_none_match is None:
        detail = "this server requires If-Match or If-None-Match for every write (server.require_if_match)"
        reason = "this server requires a precondition for every write (server.require_if_match)"
        members = overridable("if_match", reason)
        raise RequestError(HTTPStatus.PRECONDITION_REQUIRED, detail, members=members)


IF_MATCH = (
    'Succeed only if the present etag is this one, such as `"r42-1f3a9c07"`, or `"r42"` for the revision alone; `*`: '
    "there must be one. Otherwise 412"
)


def revision_precondition(absent: str) -> Callable[[Request, str | None, str | None], Awaitable[Precondition]]:
    """A dependency: the precondition of a write to something with revisions, from its headers.

    ``absent`` says in the description what ``If-None-Match: *`` asks for.
    """

    async def stated(
        request: Request,
        if_match: str | None = Header(None, description=IF_MATCH),
        if_none_match: str | None = Header(None, description=f"`*`: {absent}. Otherwise 412"),
    ) -> Precondition:
        check_precondition_present(dependencies_of(request), if_match, if_none_match)
        return read_precondition(if_match, if_none_match)

    return stated


GroupPrecondition = Annotated[Precondition, Depends(revision_precondition("succeed only if the group does not exist"))]


IdempotencyKey = Annotated[
    str,
    Header(
        max_length=PUSH_ID_LIMIT,
        description="A repeated request with the same key gets the answer of the first and changes nothing. "
        "A key is kept for a day. Another body with the same key is refused (422)",
    ),
]
DryRun = Annotated[bool, Query(description="Validate, and show what would change; change nothing")]
Message = Annotated[str, Query(max_length=MESSAGE_LIMIT, description="Why the change is made; the history has it")]


AllowEmpty = Annotated[
    bool, Query(description="Permit that connected nodes lose their whole configuration; otherwise 409")
]
Force = Annotated[
    bool, Query(description="Permit that resources are deleted that others of the group name; otherwise 409")
]


async def shared_options(
    by: Calling,
    dry_run: DryRun = False,
    allow_empty: AllowEmpty = False,
    message: Message = "",
    strict: Strict = False,
    idempotency_key: IdempotencyKey = "",
) -> PushOptions:
    """The options of a push to any number of groups, from its headers and query."""
    return PushOptions(idempotency_key, None, by.meta(message), dry_run, allow_empty, strict=strict, peer=by.peer)


SharedOptions = Annotated[PushOptions, Depends(shared_options)]


ALL_AT_ONCE = "all_at_once"
ROLLOUT, RETRY = "rollout", "retry"  # members of a body beside its resources, and parameters of the query
# What a plan leaves out is that of its group, which the publisher reads it with. Here it is wrong only by itself.
_OF_ANY_GROUP = RolloutPlan(hold_s=0.0, timeout_s=TIME_LIMIT_S)


def with_rollout(options: PushOptions, members: Mapping[str, object]) -> PushOptions:
    """The options with what a request says about its rollout. Raises ``ValidationError``."""
    plan, retry = members.get(ROLLOUT), members.get(RETRY) or False
    if not isinstance(retry, bool):
        raise ValidationError([Violation("wrong_type", "retry must be true or false", pointer=f"/{RETRY}")])
    options = replace(options, retry=options.retry or retry)
    if plan is None:
        return options
    if options.rollout is not None or options.all_at_once:
        detail = "the plan is given twice: in the query and in the body"
        raise ValidationError([Violation("conflict", detail, pointer=f"/{ROLLOUT}")])
    if plan == ALL_AT_ONCE:
        return replace(options, all_at_once=True)
    read_plan(plan, defaults=_OF_ANY_GROUP)
    return replace(options, rollout=plan if isinstance(plan, dict) else {"waves": plan})


async def _with_plan(options: PushOptions, rollout: str) -> PushOptions:
    """The options with the plan of a query. Raises ``MalformedError``, ``ValidationError``."""
    try:
        plan = json.loads(rollout) if rollout.lstrip().startswith(("{", '"')) else rollout
    except ValueError as error:
        raise MalformedError([Violation("syntax", f"not JSON: {error}", pointer="/rollout", source="query")]) from None
    for path, flaw in find_flaws(plan):
        raise MalformedError([Violation(CODE, flaw, pointer="/rollout" + json_pointer(path), source="query")])
    # Not `run_for_caller`: while it waits it would read the body, which has not been read yet.
    return await asyncio.to_thread(with_rollout, options, {ROLLOUT: plan})


async def wait_preference(
    prefer: Annotated[
        str,
        Header(
            description="`wait=30`: answer when each connected node has ACKed or NACKed the push, after at most 30 "
            "seconds; at most 300. The answer is 202 if nodes are still pending then",
        ),
    ] = "",
) -> float:
    """Seconds to wait for the fleet, from ``Prefer`` (RFC 7240)."""
    match = _WAIT.search(prefer)
    return min(float(match[1]), WAIT_LIMIT_S) if match else 0.0


Wait = Annotated[float, Depends(wait_preference)]


@dataclass(frozen=True, slots=True)
class PushContext:
    """The options of a pushing request, and what its route uses."""

    deps: Dependencies
    options: PushOptions
    wait_s: float
    request: Request

    async def rolled_out(self, members: Mapping[str, object]) -> PushContext:
        """With what the body says about its rollout. Raises ``ValidationError``."""
        if not members:
            return self
        return replace(self, options=await run_for_caller(with_rollout, self.options, members))


async def push_context(
    request: Request,
    options: SharedOptions,
    precondition: GroupPrecondition,
    wait_s: Wait,
    rollout: Annotated[
        str,
        Query(
            description="How the push is rolled out, as the member `rollout` of a body: a plan as JSON, "
            "or `all_at_once`. Ask `/version` first: an older server may ignore it"
        ),
    ] = "",
    retry: Annotated[bool, Query(description="Push again what a rollout has taken back; otherwise 409")] = False,
) -> PushContext:
    """Everything that a route needs in addition to its input to push to one group."""
    expect, etag = precondition
    options = replace(options, expect=expect, etag=etag, retry=retry)
    if rollout:
        options = await _with_plan(options, rollout)
    return PushContext(dependencies_of(request), options, wait_s, request)


Pushing = Annotated[PushContext, Depends(push_context)]


async def answer(pushing: PushContext, result: PushResult, warnings: Sequence[Violation] = ()) -> Response:
    """200 with the changes and the warnings of the input; after ``Prefer: wait`` 202 while nodes are pending."""
    outcome, pending = await wait_for_outcome(pushing, result, warnings)
    tag = {"ETag": f'"{result.etag}"'} if result.etag else {}
    headers = {**tag, **preference_headers(pushing)}
    return await run_sized(answer_model, outcome, headers, status_of(pending), resources=result.touched)


async def wait_for_outcome(
    pushing: PushContext, result: PushResult, warnings: Sequence[Violation] = ()
) -> tuple[PushOutcome, bool]:
    """The outcome of a push, after the wait that ``Prefer`` asks for, and whether nodes are still pending."""
    findings = tuple(map(Finding.from_domain, (*warnings, *result.warnings)))
    progress: PushProgress | None = None
    is_dry = pushing.options.dry_run
    if pushing.wait_s and not is_dry:
        progress = await progress_of_all(pushing.deps, pushing.request, result.group, result.revision, pushing.wait_s)
    pending = progress is not None and progress.verdict == PushVerdict.PENDING
    rollout = await _rollout_of(pushing, result)
    return PushOutcome.from_domain(result, findings, is_dry, progress, rollout), pending


async def _rollout_of(pushing: PushContext, result: PushResult) -> PushedRollout | None:
    """What a push does to the rollout of its group; in a dry run with the waves that it would have."""
    step, rollout = result.rollout, result.rollout.rollout
    if not pushing.options.dry_run or rollout is None or step.nodes is None:
        return PushedRollout.from_domain(step)
    kinds = step.nodes.facts.connected
    planned = partial(waves_of, rollout.plan, result.group, kinds, step.nodes.selected)
    waves = await run_sized(lambda: list(planned()), resources=len(kinds))
    *before, last = ({kinds[id] for id in ids} for _, ids in waves)
    last_kinds = sorted(filter(None, last.difference(*before))) if before else ()
    return PushedRollout.from_domain(step, [(str(size), ids) for size, ids in waves], last_kinds)


def status_of(pending: bool) -> HTTPStatus:
    """202 while nodes are pending."""
    return HTTPStatus.ACCEPTED if pending else HTTPStatus.OK


def preference_headers(pushing: PushContext) -> dict[str, str]:
    """The header that confirms the preference to wait."""
    waits = pushing.wait_s and not pushing.options.dry_run
    return {"Preference-Applied": f"wait={pushing.wait_s:g}"} if waits else {}


def etag_precondition(
    prefix: str, absent: str, shown: str = "Succeed only if the present etag is this one, such as"
) -> Callable[[Request, str | None, str | None], Awaitable[str]]:
    """A dependency: the etag that a document without revisions must have; empty if any will do.

    ``prefix`` is that of its etags. ``absent`` says in the description what ``If-None-Match: *`` asks for, ``shown``
    which etags ``If-Match`` takes. The dependency raises ``RequestError`` for an etag of another kind.
    """

    tag = re.compile(rf'\s*(?:W/)?"?({prefix}-[0-9a-f]{{1,32}})"?\s*')

    async def expected(
        request: Request,
        if_match: str | None = Header(
            None, description=f'{shown} `"{prefix}-1f3a9c07"`; `*`: there must be one. Otherwise 412'
        ),
        if_none_match: str | None = Header(None, description=f"`*`: {absent}. Otherwise 412"),
    ) -> str:
        check_precondition_present(dependencies_of(request), if_match, if_none_match)
        return _wanted_etag(tag, f"If-Match is not an etag of this kind ({prefix}-...)", if_match, if_none_match)

    return expected


def _wanted_etag(tag: re.Pattern[str], wrong: str, if_match: str | None, if_none_match: str | None) -> str:
    """The etag that a write asks for; `NO_ETAG`: there must be nothing. Raises ``RequestError`` for another ``tag``."""
    if if_none_match is not None:
        if if_none_match.strip() != ANY_ETAG:
            raise RequestError(HTTPStatus.BAD_REQUEST, "If-None-Match of a write can only be *")
        return NO_ETAG
    if if_match is None or if_match.strip() == ANY_ETAG:
        return "" if if_match is None else ANY_ETAG
    found = tag.fullmatch(if_match)
    if found is None:
        raise RequestError(HTTPStatus.BAD_REQUEST, f"{wrong}: {if_match[:100]!r}")
    return found[1]
