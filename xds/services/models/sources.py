"""The JSON of sources of instances, and of the state of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from time import time

from xds.admin.models.values import time_of
from xds.model.errors import Violation
from xds.model.units import span_text
from xds.services.catalog import ServiceCatalog
from xds.services.core.index import SourceHoldings
from xds.services.registration import KIND as REGISTRATION
from xds.services.source_feed import SourceStatus
from xds.services.source_runs import SourceRun, Sources

SHOWN = 100  # findings, and services with a held loss, of one source

NAMED = 3  # in a text


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFinding:
    """Something of a source that is left out.

    * ``service``: the name of the service; empty if it is about none;
    * ``pointer``: the JSON pointer of the place in the input; may be empty;
    * ``source``: the place in a file, as ``FILE:LINE:COLUMN``; empty if it is about none;
    * ``hint``: how to correct it; may be empty.
    """

    service: str
    code: str
    detail: str
    pointer: str
    source: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceStateItem:
    """A source of instances, and how it is.

    * ``name``: its name;
    * ``kind``: its kind, such as ``consul``;
    * ``state``: ``starting`` (not read since the start), ``reading``, ``failing`` (it cannot be read), or ``removed``
      (the settings no longer have it, and its instances drain);
    * ``message``: why it fails; empty if it does not;
    * ``read_at``: when it was read last; null before the first time;
    * ``read_age_s``: seconds since then; null before the first time;
    * ``failing_since``: since when it cannot be read; null if it can;
    * ``retry_at``: when it is started again; null while it runs;
    * ``failures_n``: how often it could not be read;
    * ``restarts_n``: how often it ended and was started again;
    * ``changes_n``: the number of changes of services that it has shown;
    * ``services_n``: the number of its services;
    * ``instances_n``: the number of its instances;
    * ``waiting_n``: the number of services whose latest change waits because of ``changes_per_s``;
    * ``waiting_s``: for how many seconds the oldest of them has waited; 0 if none waits;
    * ``held``: the names of some services of which a loss is held;
    * ``held_n``: the number of these services;
    * ``findings``: some of what is left out;
    * ``findings_n``: the number of findings;
    * ``trouble``: all of it in words; empty if nothing is wrong.
    """

    name: str
    kind: str
    state: str
    trouble: str
    message: str
    read_at: datetime | None
    read_age_s: float | None
    failing_since: datetime | None
    retry_at: datetime | None
    failures_n: int
    restarts_n: int
    changes_n: int
    services_n: int
    instances_n: int
    waiting_n: int
    waiting_s: float
    held: tuple[str, ...]
    held_n: int
    findings: tuple[SourceFinding, ...]
    findings_n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePage:
    """A page of sources, by name."""

    items: tuple[SourceStateItem, ...]
    next_page_token: str = ""


@dataclass(frozen=True, slots=True)
class ShownSource:
    """A source. ``status`` is None if only its earlier instances are left, ``run`` is None for registration."""

    name: str
    status: SourceStatus | None
    run: SourceRun | None
    holdings: SourceHoldings | None


def shown_sources(catalog: ServiceCatalog, sources: Sources) -> Iterator[ShownSource]:
    """All sources by name."""
    statuses = {status.name: status for status in catalog.statuses()}
    runs = sources.runs()
    holdings = {each.name: each for each in catalog.holdings()}
    for name in sorted({*statuses, *runs, *holdings}):
        yield ShownSource(name, statuses.get(name), runs.get(name), holdings.get(name))


def source_item(source: ShownSource) -> SourceStateItem:
    """The JSON of a source."""
    status = source.status or SourceStatus(source.name, "")
    run = source.run or SourceRun(source.name, status.kind)
    now = time()
    holdings = source.holdings
    by_service = holdings.findings if holdings is not None else {}
    findings = [_finding("", each) for each in status.rejected]
    findings += [_finding(service, each) for service in sorted(by_service) for each in by_service[service]]
    held = sorted(holdings.held_services) if holdings is not None else []
    state = _state(source)
    return SourceStateItem(
        name=source.name,
        kind=status.kind or run.kind,
        state=state,
        trouble=_trouble(state, status, findings, held),
        message=status.message,
        read_at=time_of(status.read_at) if status.read_at else None,
        read_age_s=round(max(now - status.read_at, 0), 3) if status.read_at else None,
        failing_since=time_of(status.failing_since) if status.is_failing else None,
        retry_at=time_of(run.retry_at) if run.retry_at is not None else None,
        failures_n=status.failures_n,
        restarts_n=run.restarts_n,
        changes_n=status.changes_n,
        services_n=len(holdings.by_service) if holdings is not None else 0,
        instances_n=holdings.instances_n if holdings is not None else 0,
        waiting_n=run.waiting_n,
        waiting_s=round(max(now - run.waiting_since, 0), 3) if run.waiting_since is not None else 0.0,
        held=tuple(islice(held, SHOWN)),
        held_n=len(held),
        findings=tuple(findings[:SHOWN]),
        findings_n=len(findings),
    )


def _trouble(state: str, status: SourceStatus, findings: Sequence[SourceFinding], held: Sequence[str]) -> str:
    parts = []
    if state == "failing":
        parts.append(f"cannot be read for {span_text(max(0.0, time() - status.failing_since))}: {status.message}")
    elif findings:
        first = findings[0]
        place = first.source or first.service or first.pointer
        parts.append(f"{len(findings)} left out, first {place}: {first.detail}")
    if held:
        more = " ..." if len(held) > NAMED else ""
        parts.append(f"held loss of {', '.join(held[:NAMED])}{more}")
    return "; ".join(parts)


def check_sources(catalog: ServiceCatalog, sources: Sources) -> tuple[bool, str]:
    """Whether all sources can be read completely, without held losses; and a detail."""
    items = list(map(source_item, shown_sources(catalog, sources)))
    wrong = [f"{item.name} {item.trouble}" for item in items if item.trouble]
    if wrong:
        more = f" (and {len(wrong) - NAMED} more)" if len(wrong) > NAMED else ""
        return False, "; ".join(wrong[:NAMED]) + more
    configured = [item for item in items if item.kind != REGISTRATION]
    starting = [item.name for item in configured if item.state == "starting"]
    if starting:
        return False, f"not read yet: {', '.join(starting[:NAMED])}"
    return True, f"{len(configured)} can be read" if configured else "no source is configured"


def _state(source: ShownSource) -> str:
    if source.run is None and (source.status is None or source.holdings is None or source.holdings.is_retired):
        return "removed"
    if source.status is None:
        return "starting"
    if source.status.is_failing:
        return "failing"
    began = source.run.started_at if source.run is not None else 0.0
    return "reading" if source.status.read_at > began else "starting"


def _finding(service: str, violation: Violation) -> SourceFinding:
    return SourceFinding(
        service=service,
        code=violation.code,
        detail=violation.detail,
        pointer=violation.pointer,
        source=violation.source,
        hint=violation.hint,
    )
