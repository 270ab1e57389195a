"""The sources of instances with their states, as answers and checks of the server show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from time import time

from xds.admin.models.copying import copied
from xds.admin.models.values import time_of
from xds.model.units import span_text
from xds.services.catalog import ServiceCatalog
from xds.services.core.index import SourceHoldings
from xds.services.models.sources import SourceFinding, SourceState
from xds.services.registration import KIND as REGISTRATION
from xds.services.source_feed import SourceStatus
from xds.services.source_runs import SourceRun, Sources

SHOWN = 100  # findings, and services with a held loss, of one source
NAMED = 3  # in a text


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


def source_state(source: ShownSource) -> SourceState:
    """A source as it is now."""
    status = source.status or SourceStatus(source.name, "")
    run = source.run or SourceRun(source.name, status.kind)
    now = time()
    holdings = source.holdings
    of_services = sorted(holdings.findings.items()) if holdings is not None else ()
    findings = [
        copied(SourceFinding, each, service=service)
        for service, violations in (("", status.rejected), *of_services)
        for each in violations
    ]
    held = sorted(holdings.held_services) if holdings is not None else []
    state = _state(source)
    return SourceState(
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
    items = list(map(source_state, shown_sources(catalog, sources)))
    wrong = [f"{item.name} {item.trouble}" for item in items if item.trouble]
    if wrong:
        more = f" (and {len(wrong) - NAMED} more)" if len(wrong) > NAMED else ""
        return False, "; ".join(wrong[:NAMED]) + more + _unread_text(catalog.unread(catalog.wanted))
    configured = [item for item in items if item.kind != REGISTRATION]
    starting = [item.name for item in configured if item.state == "starting"]
    if starting:
        return False, f"not read yet: {', '.join(starting[:NAMED])}"
    return True, f"{len(configured)} can be read" if configured else "no source is configured"


def _unread_text(services: Sequence[str]) -> str:
    """The services in use whose instances are not known, because a source cannot be read."""
    more = " ..." if len(services) > NAMED else ""
    return f"; not read yet: service {', '.join(services[:NAMED])}{more}" if services else ""


def _state(source: ShownSource) -> str:
    if source.run is None and (source.status is None or source.holdings is None or source.holdings.is_retired):
        return "removed"
    if source.status is None:
        return "starting"
    if source.status.is_failing:
        return "failing"
    began = source.run.started_at if source.run is not None else 0.0
    return "reading" if source.status.read_at > began else "starting"
